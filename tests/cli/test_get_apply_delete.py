"""`dralloc apply`, `get` and `delete` on a real server: what they say, what they send, and how they end."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner, Result

from dralloc.cli.main import app
from dralloc.client.async_client import AsyncClient
from dralloc.client.blocking_client import Client
from dralloc.client.http_transport import HttpTransport
from dralloc.client.kubeconfig import ConnectionConfig
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.resource_v1 import ResourceClaim
from dralloc.pytest_plugin.cluster import running_cluster
from tests.support.api_server import TOKEN
from tests.support.api_thread import ApiThread, Said, api_thread
from tests.support.child_process import child_process
from tests.support.workloads import existing, pod

pytestmark = pytest.mark.slow

CLASS = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "DeviceClass",
    "metadata": {"name": "gpu"},
    "spec": {"selectors": [{"cel": {"expression": 'device.driver == "gpu.example.com"'}}]},
}


def claim(name: str, count: int = 1, **metadata: object) -> dict[str, object]:
    exactly = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": count}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, **metadata},
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}},
    }


def namespace(name: str) -> dict[str, object]:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def manifest(*documents: object) -> str:
    return yaml.safe_dump_all(documents)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiThread]:
    with api_thread(tmp_path_factory.mktemp("api")) as api:
        yield api


@pytest.fixture
def api(running: ApiThread) -> ApiThread:
    for kind in ("resourceclaims", "deviceclasses"):
        for path in _existing(running, kind):
            run(running, "delete", kind, path)
    running.requests.clear()
    running.answers.clear()
    return running


def _existing(api: ApiThread, kind: str) -> list[str]:
    return [line.rpartition("/")[2] for line in run(api, "get", kind, "-o", "name").stdout.splitlines()]


def run(api: ApiThread, *arguments: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(app, [*arguments, "--kubeconfig", str(api.kubeconfig)], input=stdin)


def apply(api: ApiThread, *documents: object, options: tuple[str, ...] = ()) -> Result:
    return run(api, "apply", "-f", "-", *options, stdin=manifest(*documents))


# --- apply ----------------------------------------------------------------------------------------------------------------


def test_created_then_unchanged_then_configured(api: ApiThread) -> None:
    class_name, claim_name = "deviceclass.resource.k8s.io/gpu", "resourceclaim.resource.k8s.io/c"
    assert apply(api, CLASS, claim("c")).stdout == f"{class_name} created\n{claim_name} created\n"
    assert apply(api, CLASS, claim("c")).stdout == f"{class_name} unchanged\n{claim_name} unchanged\n"
    labelled = claim("c", labels={"team": "vision"})
    assert apply(api, labelled, options=("--dry-run",)).stdout == f"{claim_name} configured (dry run)\n"
    assert apply(api, labelled).stdout == f"{claim_name} configured\n"


def test_namespaces_come_first_and_objects_go_where_they_say(api: ApiThread) -> None:
    told = apply(api, claim("c", namespace="team-a"), claim("d"), namespace("team-a"))
    assert told.stdout.splitlines()[0] == "namespace/team-a created"
    assert told.exit_code == 0
    listed = run(api, "get", "claims", "-A").stdout
    assert [line.split()[:2] for line in listed.splitlines()[1:]] == [["default", "d"], ["team-a", "c"]]
    assert run(api, "delete", "ns", "team-a").exit_code == 0


def test_a_directory_is_applied(api: ApiThread, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(manifest(CLASS))
    (tmp_path / "b.json").write_text(json.dumps(claim("c")))
    assert len(run(api, "apply", "-f", str(tmp_path)).stdout.splitlines()) == 2


def test_an_older_version_is_applied_as_it_is_written(api: ApiThread) -> None:
    old = claim("c") | {
        "apiVersion": "resource.k8s.io/v1beta1",
        "spec": {"devices": {"requests": [{"name": "gpu", "deviceClassName": "gpu"}]}},
    }
    assert apply(api, old).stdout == "resourceclaim.resource.k8s.io/c created\n"


@pytest.mark.parametrize(
    ("document", "said"),
    [
        (claim("c", count=-1), "spec.devices.requests[0].exactly.count"),
        (claim("Not_A_Name"), "metadata.name"),
        (claim("") | {"metadata": {}}, "metadata.name"),
        (claim("c") | {"kind": "ResourceClaims"}, 'did you mean "ResourceClaim"?'),
        (claim("c") | {"apiVersion": "resource.k8s.io/v9"}, "there is no ResourceClaim in resource.k8s.io/v9"),
    ],
    ids=["a value", "a name", "no name", "a kind", "a version"],
)
def test_nothing_is_sent_where_something_is_wrong(api: ApiThread, document: object, said: str) -> None:
    told = apply(api, CLASS, document)
    assert told.exit_code == 1
    assert said in told.stderr
    assert "nothing was sent: 1 error" in told.stderr
    assert api.requests == []


@pytest.mark.parametrize("command", ["apply", "delete"])
def test_what_has_another_name_each_time_is_refused(command: str, api: ApiThread) -> None:
    """As by kubectl: what would be there when it is applied again?"""
    sample = claim("") | {"metadata": {"generateName": "c-"}}
    told = run(api, command, "-f", "-", stdin=manifest(CLASS, sample))
    assert (told.exit_code, told.stdout) == (1, "")
    assert told.stderr == (
        "dralloc: <stdin>: a ResourceClaim has metadata.generateName and no metadata.name, and so it is another object each time: "
        "give it a name, or use kubectl create; nothing was sent\n"
    )
    assert {method for method, _ in api.requests} == {"GET"}


def test_nothing_is_written_where_the_server_does_not_have_a_kind(api: ApiThread) -> None:
    told = apply(api, CLASS, {"apiVersion": "apps/v9", "kind": "Fleet", "metadata": {"name": "f"}})
    assert told.exit_code == 2
    assert "the server has no Fleet in apps/v9" in told.stderr
    assert {method for method, _ in api.requests} == {"GET"}


def test_a_refusal_is_told_and_the_others_are_applied(api: ApiThread) -> None:
    assert apply(api, claim("c")).exit_code == 0
    told = apply(api, claim("c", count=2), claim("d"))
    assert told.exit_code == 1
    assert told.stdout == "resourceclaim.resource.k8s.io/d created\n"
    refusal, *hints = told.stderr.splitlines()
    assert refusal.startswith("resourceclaim.resource.k8s.io/c refused: ")
    assert refusal.endswith("field is immutable")
    assert hints == [
        "  spec.devices.requests[0].exactly.count is 1, and cannot become 2",
        "  to replace it: dralloc delete resourceclaims c -n default, then apply again",
    ]


def test_fields_of_others_are_taken_over_only_by_force(api: ApiThread) -> None:
    apply(api, CLASS)
    theirs = {**CLASS, "metadata": {"name": "gpu", "labels": {"team": "theirs"}}}
    transport = HttpTransport(ConnectionConfig(server=api.url, token=TOKEN))
    with Client(AsyncClient(transport, field_manager="another-manager")) as another_manager:
        another_manager.apply(theirs)
    ours = {**CLASS, "metadata": {"name": "gpu", "labels": {"team": "ours"}}}
    refused = apply(api, ours)
    assert (refused.exit_code, "use --force-conflicts to take them over" in refused.stderr) == (1, True)
    assert "configured" in apply(api, ours, options=("--force-conflicts",)).stdout


def lab(cpu: object) -> dict[str, object]:
    amounts = {"cpu": cpu, "memory": "32Gi", "pods": "110"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "lab"},
        "status": {"capacity": amounts, "allocatable": amounts},
    }


def test_a_new_node_has_the_status_of_its_manifest_and_an_old_one_keeps_its_own(api: ApiThread) -> None:
    first = apply(api, lab("8"))
    assert (first.output, first.exit_code) == ("node/lab created\n", 0)
    stored = json.loads(run(api, "get", "node", "lab", "-o", "json").stdout)
    assert (
        stored["status"]["capacity"] == stored["status"]["allocatable"] == {"cpu": "8", "memory": "32Gi", "pods": "110"}
    )
    assert "f:status" not in json.dumps(stored)
    # The same amount, in other words.
    assert apply(api, lab("8000m")).output == "node/lab unchanged\n"
    again = apply(api, lab("16"))
    assert (again.stdout, again.exit_code) == ("node/lab unchanged\n", 0)
    assert again.stderr.splitlines() == [
        "warning: node/lab: a server takes the status of a new node only",
        "  status.capacity.cpu is 8, and not 16",
        "  status.allocatable.cpu is 8, and not 16",
        "  to replace it: dralloc delete nodes lab, then apply again",
    ]
    run(api, "delete", "nodes", "lab")
    assert apply(api, lab("16")).output == "node/lab created\n"


def test_of_which_kinds_the_status_is_left_out_is_told_once(api: ApiThread) -> None:
    allocation = {"devices": {"results": [{"request": "gpu", "driver": "d", "pool": "p", "device": "x"}]}}
    claims = [{**claim(name), "status": {"allocation": allocation}} for name in ("c", "d")]
    running = {**pod("p", {}), "status": {"phase": "Running", "podIP": "10.0.0.1"}}
    result = apply(api, *claims, running, {**claim("e"), "status": {}})
    assert result.exit_code == 0
    assert result.stderr == (
        "warning: the status of ResourceClaim (2), Pod was not applied: components write it, not manifests\n"
    )
    stored = json.loads(run(api, "get", "resourceclaims", "-o", "json").stdout)
    assert [each["status"] for each in stored["items"]] == [{}, {}, {}]
    # What the server has already is not left out.
    pods = run(api, "get", "pods", "-o", "yaml").stdout
    assert run(api, "apply", "-f", "-", stdin=pods).stderr == ""
    run(api, "delete", "pod", "p")


def test_what_was_applied_is_there_for_machines(api: ApiThread) -> None:
    [one] = yaml.safe_load_all(apply(api, claim("c"), options=("-o", "yaml")).stdout)
    assert one == json.loads(run(api, "get", "claim", "c", "-o", "json").stdout)
    told = apply(api, claim("c", count=2), claim("d"), options=("--dry-run", "-o", "json"))
    assert (told.exit_code, "c refused: " in told.stderr) == (1, True)
    listed = json.loads(told.stdout)
    assert [item["metadata"]["name"] for item in listed["items"]] == ["d"]
    [refusal] = listed["refusals"]
    assert (refusal["subject"], "field is immutable" in refusal["message"]) == ("resourceclaim.resource.k8s.io/c", True)


@pytest.mark.parametrize("command", ["apply", "delete"])
def test_nothing_to_do(command: str, api: ApiThread) -> None:
    told = run(api, command, "-f", "-", stdin="# nothing\n")
    assert (told.exit_code, "no objects in <stdin>: empty, or only comments" in told.stderr) == (2, True)


# --- get ------------------------------------------------------------------------------------------------------------------


def test_tables_are_those_of_the_server(api: ApiThread) -> None:
    apply(api, CLASS, claim("c", labels={"team": "a"}), claim("d"))
    header, first, second = run(api, "get", "resourceclaims").stdout.splitlines()
    assert header.split()[:3] == ["NAME", "STATE", "DEVICES"]
    assert [first.split()[:2], second.split()[:2]] == [["c", "pending"], ["d", "pending"]]
    assert "REQUESTS" in run(api, "get", "resourceclaims", "-o", "wide").stdout
    assert len(run(api, "get", "resourceclaims", "-l", "team=a").stdout.splitlines()) == 2


@pytest.mark.parametrize("word", ["resourceclaims", "resourceclaim", "ResourceClaim", "claims", "resourceclaim/c"])
def test_kinds_by_all_their_names(api: ApiThread, word: str) -> None:
    apply(api, claim("c"))
    assert run(api, "get", word, "-o", "name").stdout == "resourceclaim.resource.k8s.io/c\n"


def test_a_word_for_several_kinds(api: ApiThread) -> None:
    empty = run(api, "get", "all")
    assert (empty.exit_code, empty.stderr) == (0, "nothing found in namespace default\n")
    asked = {path for _, path in api.requests}
    assert asked >= {"/api/v1/namespaces/default/pods", "/apis/batch/v1/namespaces/default/jobs"}


def test_several_kinds_are_told_apart(api: ApiThread) -> None:
    apply(api, CLASS, claim("c"))
    told = run(api, "get", "deviceclasses,claims").stdout
    assert "deviceclass.resource.k8s.io/gpu" in told
    assert "\n\nNAME " in told
    assert "resourceclaim.resource.k8s.io/c" in told


def test_objects_come_out_as_they_would_go_in(api: ApiThread) -> None:
    apply(api, claim("c"), claim("d"))
    as_yaml = run(api, "get", "claim", "c", "-o", "yaml").stdout
    [document] = yaml.safe_load_all(as_yaml)
    assert json.loads(run(api, "get", "claim", "c", "-o", "json").stdout) == document
    assert (document["kind"], "managedFields" in document["metadata"]) == ("ResourceClaim", False)
    assert "unchanged" in run(api, "apply", "-f", "-", stdin=manifest(claim("c"))).stdout
    listed = json.loads(run(api, "get", "claims", "-o", "json").stdout)
    assert [item["metadata"]["name"] for item in listed["items"]] == ["c", "d"]
    assert {item["apiVersion"] for item in listed["items"]} == {"resource.k8s.io/v1"}


def test_what_is_not_there(api: ApiThread) -> None:
    apply(api, claim("c"))
    told = run(api, "get", "claims", "c", "nope")
    assert (told.exit_code, len(told.stdout.splitlines())) == (1, 2)
    assert 'resourceclaims.resource.k8s.io "nope" not found' in told.stderr
    nothing = run(api, "get", "claim", "nope", "-o", "json")
    assert (nothing.exit_code, nothing.stdout) == (1, "")
    for form in ("json", "yaml"):
        assert yaml.safe_load(run(api, "get", "pods", "-o", form).stdout)["items"] == []
    empty = run(api, "get", "pods")
    assert (empty.exit_code, empty.stdout, empty.stderr) == (0, "", "nothing found in namespace default\n")
    unknown = run(api, "get", "resourceclaimz")
    assert (unknown.exit_code, "did you mean resourceclaims?" in unknown.stderr) == (2, True)


def test_a_server_that_makes_no_tables(api: ApiThread) -> None:
    item = {"metadata": {"name": "x", "creationTimestamp": "2026-01-01T00:00:00Z"}}
    api.answers["/api/v1/nodes"] = Said(200, {"kind": "NodeList", "metadata": {}, "items": [item]})
    assert run(api, "get", "nodes").stdout.splitlines()[1].split() == ["x", "2026-01-01T00:00:00Z"]


def test_changes_are_followed_until_interrupted(api: ApiThread) -> None:
    apply(api, claim("first"))
    command = [sys.executable, "-m", "dralloc", "get", "claims", "-w", "--kubeconfig", str(api.kubeconfig)]
    with child_process(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as following:
        try:
            assert following.stdout is not None
            assert following.stdout.readline().startswith("NAME")
            assert following.stdout.readline().startswith("first ")
            apply(api, claim("second"))
            assert following.stdout.readline().startswith("second ")
            following.send_signal(signal.SIGINT)
            assert following.wait(timeout=60) == 0
            assert following.stderr is not None
            assert following.stderr.read() == ""
        finally:
            following.kill()


# --- delete ---------------------------------------------------------------------------------------------------------------


def test_by_name_by_label_and_by_manifest(api: ApiThread) -> None:
    apply(api, claim("a"), claim("b", labels={"team": "x"}), claim("c", labels={"team": "x"}), CLASS)
    assert run(api, "delete", "claim/a").stdout == "resourceclaim.resource.k8s.io/a deleted\n"
    assert len(run(api, "delete", "claims", "-l", "team=x").stdout.splitlines()) == 2
    deleted = run(api, "delete", "-f", "-", stdin=manifest(CLASS))
    assert deleted.stdout == "deviceclass.resource.k8s.io/gpu deleted\n"
    again = run(api, "delete", "-f", "-", stdin=manifest(CLASS))
    assert (again.exit_code, "not found" in again.stderr) == (1, True)
    assert run(api, "delete", "deviceclass", "gpu", "--ignore-not-found").exit_code == 0


@pytest.mark.parametrize("arguments", [(), ("pods",), ("pods", "p", "-l", "a=b"), ("pods", "p", "-f", "x.yaml")])
def test_what_is_not_clear_is_not_deleted(api: ApiThread, arguments: tuple[str, ...]) -> None:
    assert run(api, "delete", *arguments).exit_code == 2
    assert api.requests == []


def test_what_somebody_holds_is_marked_and_goes_when_they_let_go(api: ApiThread) -> None:
    apply(api, claim("c", finalizers=["example.com/a", "example.com/b"]))
    told = run(api, "delete", "claim/c")
    assert told.exit_code == 0
    assert told.stdout == "resourceclaim.resource.k8s.io/c marked for deletion; held by example.com/a, example.com/b\n"
    apply(api, claim("c"))
    assert run(api, "get", "claim", "c").exit_code == 1


def test_what_became_of_each_is_there_for_machines(api: ApiThread) -> None:
    apply(api, CLASS, claim("c"), claim("held", finalizers=["example.com/a"]))
    told = run(api, "delete", "claims", "c", "held", "nope", "-o", "json")
    assert (told.exit_code, told.stderr) == (1, 'resourceclaims.resource.k8s.io "nope" not found\n')
    named = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "namespace": "default"}
    missing = {
        **named,
        "name": "nope",
        "outcome": "missing",
        "reason": 'resourceclaims.resource.k8s.io "nope" not found',
    }
    assert json.loads(told.stdout) == {
        "objects": [
            {**named, "name": "c", "outcome": "deleted"},
            {**named, "name": "held", "outcome": "marked for deletion", "reason": "held by example.com/a"},
            missing,
        ]
    }
    again = run(api, "delete", "claims", "nope", "--ignore-not-found", "-o", "yaml")
    assert (again.exit_code, yaml.safe_load(again.stdout), again.stderr) == (0, {"objects": [missing]}, "")
    apply(api, claim("held"))


def test_a_claim_in_use_is_marked_and_its_users_are_named() -> None:
    def user(name: str) -> dict[str, object]:
        return pod(name, {"gpu": existing("shared")})

    with running_cluster(nodes={"gpu": 1}) as cluster:
        cluster.apply(claim("shared"), CLASS, *map(user, "abcde"))
        for name in "abcde":
            cluster.wait_until_running(name)
        told = CliRunner().invoke(app, ["delete", "claim/shared", "--kubeconfig", str(cluster.kubeconfig())])
        said, _, users = told.stdout.strip().partition(" in use by ")
        assert said == "resourceclaim.resource.k8s.io/shared marked for deletion;"
        *named, more = users.split(", ")
        assert (len(set(named) & {f"pods/{name}" for name in "abcde"}), more) == (3, "2 more")


SHARING_JOB = """
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: one-card}
spec: {spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu.example.com}}]}}}
---
apiVersion: batch/v1
kind: Job
metadata: {name: sharing, annotations: {dralloc.io/shared-claims: shared-card=one-card}}
spec:
  parallelism: 3
  completions: 3
  template:
    spec:
      restartPolicy: Never
      containers: [{name: main, image: app:1, resources: {claims: [{name: gpu}]}}]
      resourceClaims: [{name: gpu, resourceClaimName: shared-card}]
"""


def test_with_a_job_its_pods_and_its_claim_go() -> None:
    with running_cluster(nodes={"gpu": 1}) as cluster:
        server = ("--kubeconfig", str(cluster.kubeconfig()))
        assert CliRunner().invoke(app, ["apply", "-f", "-", *server], input=SHARING_JOB).exit_code == 0

        def running() -> list[Pod]:
            return [pod for pod in cluster.client.list(Pod) if pod.status.phase == "Running"]

        cluster.wait_for(lambda: len(running()) == 3, what="the job's pods run")
        deleted = CliRunner().invoke(app, ["delete", "-f", "-", *server], input=SHARING_JOB)
        assert "job.batch/sharing deleted" in deleted.stdout
        cluster.wait_for(lambda: not cluster.client.list(Pod), what="no pod is left")
        cluster.wait_for(lambda: not cluster.client.list(ResourceClaim), what="no claim is left")
