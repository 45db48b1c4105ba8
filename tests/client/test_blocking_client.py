"""`dralloc.connect`: the client for scripts and notebooks, against a real server in a process of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import dralloc
from dralloc.client.blocking_client import Client
from dralloc.client.kubeconfig import BadKubeconfig
from dralloc.kube.meta_v1 import ObjectMeta
from dralloc.kube.resource_v1 import DeviceClass
from dralloc.primitives.errors import NotFound
from tests.support.server_process import server_process


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """Over TLS, with the certificate and the token that the server generated at its first start."""
    with (
        server_process(tmp_path_factory.mktemp("server")) as server,
        dralloc.connect(server.kubeconfig) as connected,
    ):
        yield connected


def test_a_script_creates_reads_watches_and_deletes(client: Client) -> None:
    created = client.create(DeviceClass(metadata=ObjectMeta(name="gpu")))
    assert client.get(DeviceClass, "gpu") == created
    for event in client.watch(DeviceClass):
        assert (event.type, event.object.metadata.name) == ("ADDED", "gpu")
        break
    assert client.apply(
        {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "nic"}, "spec": {}}
    )
    assert [item.metadata.name for item in client.list(DeviceClass)] == ["gpu", "nic"]
    client.delete(DeviceClass, "gpu")
    with pytest.raises(NotFound):
        client.get(DeviceClass, "gpu")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "is not a kubeconfig"),
        ("{}", "no current context"),
        ("current-context: x", "no context named 'x'"),
        ("[1, 2", "cannot read"),
        ("current-context: x\ncontexts: [{name: x, context: {cluster: c}}]\nclusters: [{name: c}]", "is not complete"),
    ],
)
def test_a_bad_kubeconfig_is_a_clear_error(tmp_path: Path, text: str, complaint: str) -> None:
    path = tmp_path / "config"
    path.write_text(text)
    with pytest.raises(BadKubeconfig, match=complaint):
        dralloc.connect(path)


def test_a_missing_kubeconfig_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(BadKubeconfig, match="does not exist"):
        dralloc.connect(tmp_path / "nothing")
