"""`explain`, `allocate` and `top` on a running cluster: the same answers as from files, and nothing but reads."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner, Result

from dralloc.cli.main import app
from dralloc.kube.kind import Kind
from dralloc.kube.registry import KINDS
from dralloc.kube.resource_v1 import GROUP
from dralloc.server.describe.discovery import aggregated_discovery, api_group_list, api_versions
from tests.support.api_thread import ApiThread, Said, api_thread, refused

CASES = Path(__file__).parents[1] / "cases" / "explain"
FORBIDDEN = refused(403, "Forbidden", 'User "jane" cannot list this at the cluster scope')

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiThread]:
    """A cluster with the objects of the files."""
    with api_thread(tmp_path_factory.mktemp("api")) as api:
        api.client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ml"}})
        for file in sorted(CASES.glob("*.yaml")):
            api.fill(yaml.safe_load_all(file.read_text()))
        yield api


@pytest.fixture
def cluster(filled: ApiThread) -> Iterator[ApiThread]:
    with filled.fresh():
        yield filled


def run(api: ApiThread, *arguments: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(app, [*arguments, "--kubeconfig", str(api.kubeconfig)], input=stdin)


def from_files(*arguments: str) -> Result:
    return CliRunner().invoke(app, [*arguments, "-f", str(CASES)])


@pytest.mark.parametrize(
    "arguments",
    [
        ("explain", "claim", "ml/big"),
        ("explain", "pod", "ml/hungry"),
        ("explain", "pod", "ml/train", "-o", "json"),
        ("allocate", "--pod", "ml/train"),
        ("allocate", "-n", "default"),
        ("top", "devices"),
        ("top", "devices", "--node", "n1", "-o", "wide"),
    ],
    ids=" ".join,
)
def test_a_cluster_is_answered_about_like_files_and_only_read(cluster: ApiThread, arguments: tuple[str, ...]) -> None:
    told = run(cluster, *arguments)
    expected = from_files(*arguments)
    assert (sorted(told.stdout.split()), told.exit_code) == (sorted(expected.stdout.split()), expected.exit_code)
    assert cluster.requests
    assert {method for method, _ in cluster.requests} == {"GET"}


def test_no_more_is_read_than_the_answer_takes(cluster: ApiThread) -> None:
    run(cluster, "top", "devices")
    assert {path.rpartition("/")[2] for _, path in cluster.requests} == {
        *("api", "apis"),
        *("resourceslices", "resourceclaims", "devicetaintrules", "nodes"),
    }


def test_a_selector_is_tried_on_the_devices_of_the_cluster(cluster: ApiThread) -> None:
    told = run(cluster, "cel", 'device.driver == "gpu.example.com"')
    assert (told.exit_code, "3 of 3 devices match, 0 fail" in told.stdout) == (0, True)


@pytest.mark.parametrize("version", ["v1", "v1beta2", "v1beta1"])
def test_items_of_lists_need_not_say_what_they_are(cluster: ApiThread, version: str) -> None:
    """As Kubernetes answers: only the list has a kind and a version."""
    pretend(cluster, served_as(version))
    request: dict[str, object] = {"name": "gpu", "deviceClassName": "gpu"}
    if version != "v1beta1":
        request = {"name": "gpu", "exactly": {"deviceClassName": "gpu"}}
    item = {
        "metadata": {"name": "bare", "namespace": "default", "uid": "u", "managedFields": [{"manager": "kubectl"}]},
        "spec": {"devices": {"requests": [request]}},
        "status": {},
    }
    listed = {"kind": "ResourceClaimList", "apiVersion": f"{GROUP}/{version}", "metadata": {}, "items": [item]}
    cluster.answers[f"/apis/{GROUP}/{version}/resourceclaims"] = Said(200, listed)
    told = yaml.safe_load(run(cluster, "allocate", "--claim", "bare", "-o", "yaml").stdout)
    assert (told["apiVersion"], told["kind"], told["metadata"]["name"]) == (f"{GROUP}/v1", "ResourceClaim", "bare")
    assert told["status"]["allocation"]["devices"]["results"][0]["device"] == "gpu-0"


def test_files_are_added_to_the_cluster(cluster: ApiThread) -> None:
    claim = """\
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: wanted}
spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu}}]}}
"""
    told = run(cluster, "explain", "claim", "ml/wanted", "-n", "ml", "-f", "-", stdin=claim)
    assert told.stdout.startswith("claim ml/wanted fits on 1 of 2 nodes")


def test_names_without_a_namespace_are_in_the_one_that_is_meant(cluster: ApiThread) -> None:
    assert run(cluster, "explain", "claim", "big", "-n", "ml").stdout.startswith("claim ml/big does not fit")
    lost = run(cluster, "explain", "claim", "big")
    assert (lost.exit_code, "no claim default/big in" in lost.stderr and "did you mean ml/big?" in lost.stderr) == (
        1,
        True,
    )


# --- Clusters that are older, or do not show everything -------------------------------------------------------------------


def served_as(*versions: str) -> tuple[Kind, ...]:
    """What a cluster has that serves our group in these versions only."""
    limited = (
        replace(kind, versions=tuple(each for each in kind.versions if kind.group != GROUP or each.version in versions))
        for kind in KINDS
    )
    return tuple(kind for kind in limited if kind.versions)


def pretend(api: ApiThread, kinds: tuple[Kind, ...]) -> None:
    for path, core in (("/api", True), ("/apis", False)):
        api.answers[path] = Said(200, aggregated_discovery(kinds, core=core, version="v2"))


@pytest.mark.parametrize("version", ["v1beta1", "v1beta2"])
def test_an_older_cluster_is_read_in_the_version_that_it_has(cluster: ApiThread, version: str) -> None:
    pretend(cluster, served_as(version))
    assert run(cluster, "explain", "claim", "ml/big").stdout == from_files("explain", "claim", "ml/big").stdout
    assert ("GET", f"/apis/{GROUP}/{version}/resourceslices") in cluster.requests
    assert ("GET", f"/apis/{GROUP}/v1/resourceslices") not in cluster.requests


def test_a_server_that_tells_what_it_has_version_by_version(cluster: ApiThread) -> None:
    cluster.answers["/api"] = Said(200, api_versions("localhost"))
    cluster.answers["/apis"] = Said(200, api_group_list(KINDS))
    assert run(cluster, "top", "devices").stdout == from_files("top", "devices").stdout


def test_a_cluster_without_the_resource_group_says_what_it_takes(cluster: ApiThread) -> None:
    pretend(cluster, served_as())
    told = run(cluster, "top", "devices")
    assert told.exit_code == 2
    assert "this cluster has no resource.k8s.io; it needs Kubernetes 1.34" in told.stderr


def test_versions_that_are_too_new_are_named(cluster: ApiThread) -> None:
    document = json.loads(json.dumps(aggregated_discovery(KINDS, core=False, version="v2")).replace('"v1', '"v9'))
    cluster.answers["/apis"] = Said(200, document)
    told = run(cluster, "top", "devices")
    assert told.exit_code == 2
    assert "are served in unknown versions only: v9" in told.stderr


def test_what_may_not_be_seen_is_said_and_done_without(cluster: ApiThread) -> None:
    for path in ("/api/v1/nodes", "/api/v1/pods", "/api/v1/namespaces/default/pods"):
        cluster.answers[path] = FORBIDDEN
    told = run(cluster, "allocate", "--claim", "ml/big")
    assert told.stdout.startswith("claim ml/big does not fit: 0/2 nodes are available")
    assert "note: cannot read pods: User" in told.stderr
    assert "no Node objects in the cluster http://127.0.0.1:" in told.stderr


def test_claims_of_the_own_namespace_do_where_no_others_are_shown(cluster: ApiThread) -> None:
    cluster.answers[f"/apis/{GROUP}/v1/resourceclaims"] = FORBIDDEN
    told = run(cluster, "explain", "claim", "big", "-n", "ml")
    assert told.exit_code == 1
    assert "note: resourceclaims were read in namespace ml only" in told.stderr


@pytest.mark.parametrize(
    ("arguments", "path"),
    [
        (("explain", "pod", "ml/train"), "/api/v1/pods"),
        (("top", "devices"), f"/apis/{GROUP}/v1/resourceslices"),
        (("allocate",), f"/apis/{GROUP}/v1/deviceclasses"),
    ],
    ids=["pods", "slices", "classes"],
)
def test_what_cannot_be_done_without_ends_the_command(
    cluster: ApiThread, arguments: tuple[str, ...], path: str
) -> None:
    cluster.answers[path] = FORBIDDEN
    cluster.answers[path.replace("/v1/", "/v1/namespaces/default/")] = FORBIDDEN
    told = run(cluster, *arguments)
    assert (told.exit_code, told.stdout) == (2, "")
    assert ": User" in told.stderr
