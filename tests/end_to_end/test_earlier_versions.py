"""What is left of earlier versions: their data directories open, and what went is told in one line to those who ask for it."""

from __future__ import annotations

import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from dralloc.client.blocking_client import connect
from dralloc.client.discovery import Discovery, UnknownKind
from dralloc.client.in_process_transport import InProcessTransport
from dralloc.client.transport import ClientRequest
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.resource_v1 import ResourceClaim
from dralloc.primitives.removals import COMMANDS, KINDS, OPTIONS, SUBRESOURCES, Removal
from dralloc.testing.virtual_time import run_virtual
from tests.support.api_server import TOKEN, api_application
from tests.support.cluster_process import cluster_process
from tests.support.server_process import server_process

# As `dralloc up` of 0.1.0 left it: three pods with shares, a CertificateSigningRequest, an authority beside an earlier one.
WRITTEN = Path(__file__).parents[1] / "cases" / "data_directory_of_0_1.tar.gz"


@pytest.fixture
def written(tmp_path: Path) -> Path:
    with tarfile.open(WRITTEN) as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path / "data"


def dralloc(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "dralloc", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_a_cluster_goes_on_from_a_data_directory_of_0_1(written: Path) -> None:
    with cluster_process("--data-dir", str(written)) as cluster, connect(cluster.kubeconfig) as client:
        shares = {
            claim.metadata.name[:5]: claim.status.allocation.devices.results[0].device
            for claim in client.list(ResourceClaim)
            if claim.status is not None and claim.status.allocation is not None
        }
        assert shares == {"web-1": "eth1", "web-2": "eth1", "web-3": "eth2"}
        assert {pod.spec.node_name for pod in client.list(Pod)} == {"nic-0"}
        kept = "1 objects are kept in the store and not served: certificatesigningrequests.certificates.k8s.io ("
        assert cluster.said.count(kept) == 1


@pytest.mark.slow
def test_a_server_goes_on_with_the_authority_of_0_1(written: Path) -> None:
    before = (written / "tls" / "ca.crt").read_text()
    earlier = yaml.safe_load((written / "kubeconfig").read_text())
    with server_process(written) as server:
        now = yaml.safe_load(server.kubeconfig.read_text())
        assert dralloc("get", "namespaces", "--kubeconfig", server.kubeconfig).returncode == 0
    assert (written / "tls" / "ca.crt").read_text() == before
    assert now["users"] == earlier["users"], "clients keep their tokens"


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_that_is_gone(name: str) -> None:
    tell(dralloc(name, "anything"), COMMANDS[name])


@pytest.mark.parametrize("name", OPTIONS)
def test_an_option_that_is_gone(name: str) -> None:
    tell(dralloc("up", f"{name}=x"), OPTIONS[name])


def tell(ended: subprocess.CompletedProcess[str], removal: Removal) -> None:
    """One line says what it was, since when it is gone and what to use, and the command fails."""
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.count("\n") == 1
    assert removal.told_of("").removeprefix(" ") in ended.stderr


def test_what_follows_two_dashes_is_for_another_program() -> None:
    for name in OPTIONS:
        assert "is gone" not in dralloc("driver-test", "--", "/nowhere", name).stderr


@pytest.mark.parametrize("name", KINDS)
def test_a_kind_that_is_gone(name: str) -> None:
    plural, _, group = name.partition(".")
    assert KINDS[name].since in message_of(f"/apis/{group}/v1/{plural}")
    assert KINDS[name].instead in message_of(f"/apis/{group}/v1/{plural}/x")


@pytest.mark.parametrize("name", SUBRESOURCES)
def test_a_subresource_that_is_gone(name: str) -> None:
    resource, _, subresource = name.partition("/")
    assert SUBRESOURCES[name].instead in message_of(f"/api/v1/namespaces/default/{resource}/x/{subresource}")


def message_of(path: str) -> str:
    """The message of the Status that answers a read of the path."""

    async def ask() -> Any:
        async with api_application() as application:
            return await InProcessTransport(application, token=TOKEN).send(ClientRequest(method="GET", path=path))

    response = run_virtual(ask())
    assert response.status == 404
    return str(msgspec.json.decode(response.body)["message"])


@pytest.mark.parametrize("word", ["csr", "certificatesigningrequest", "CertificateSigningRequests.certificates.k8s.io"])
def test_a_kind_that_is_gone_by_its_names(word: str) -> None:
    with pytest.raises(UnknownKind, match=r"is gone since 0\.2\.0"):
        Discovery(()).find(word)


def test_a_manifest_of_a_kind_that_is_gone(tmp_path: Path) -> None:
    manifest = tmp_path / "request.yaml"
    manifest.write_text(
        "apiVersion: certificates.k8s.io/v1\nkind: CertificateSigningRequest\nmetadata: {name: user-a}\n"
    )
    assert "is gone since 0.2.0" in dralloc("validate", manifest).stdout
