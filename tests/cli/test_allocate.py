"""`dralloc allocate`: what would be given, from manifests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from dralloc.cli.main import app
from tests.cli.allocate_command import CASES, CLAIMS, CLUSTER, NODES, POD, rows, run


def test_everything_that_waits_is_served_in_order_from_what_is_left() -> None:
    result = run("-f", CLUSTER, "-f", CLAIMS)
    assert result.exit_code == 1
    *told, error = result.stdout.splitlines()
    assert told == [
        "CLAIM           REQUEST   NODE   DEVICE                     CONSUMED",
        "ml/train-own    gpu       n1     gpu.example.com/n1/gpu-0   memory=9Gi",
        "default/small   gpu/one   n1     gpu.example.com/n1/gpu-0   memory=3Gi",
        "pod ml/hungry does not fit: 0/2 nodes are available: "
        "1 node: claim ml/big: insufficient memory: requested 30Gi (rounded up to 31Gi), available 14Gi; "
        "1 node: claim ml/hungry-own: the only device is in use",
    ]
    at_fault = "claim ml/typing-error, request gpu, device gpu.example.com/n1/gpu-0"
    assert error.startswith(f"claim ml/typing-error cannot be allocated: {at_fault}: request selector #0: ")
    assert "no such key: modle" in error
    assert (
        "note: no Node objects in the files: assuming the 2 that slices and pods name, without labels" in result.stderr
    )
    assert "note: pod ml/train: claim ml/train-own does not exist yet; its template is used" in result.stderr


def test_what_is_given_can_be_read_back() -> None:
    given = run("-f", CLUSTER, "-f", CLAIMS, "--claim", "small", "-o", "yaml")
    assert given.exit_code == 0
    [claim] = yaml.safe_load_all(given.stdout)
    [result] = claim["status"]["allocation"]["devices"]["results"]
    assert (result["request"], result["device"], result["consumedCapacity"]) == ("gpu/one", "gpu-0", {"memory": "3Gi"})
    assert len(result["shareID"]) == 36
    again = run("-f", CLUSTER, "-f", CLAIMS, "-f", "-", "--claim", "small", stdin=given.stdout)
    assert rows(again) == [["default/small", "gpu/one", "n1", "gpu.example.com/n1/gpu-0", "memory=3Gi"]]


@pytest.mark.parametrize("form", ["json", "yaml"])
def test_what_does_not_fit_is_told_to_machines_too(form: str) -> None:
    refused = run("-f", CLUSTER, "-f", CLAIMS, "--pod", "ml/hungry", "-o", form)
    told = yaml.safe_load(refused.stdout)
    assert (refused.exit_code, told["kind"], told["items"]) == (1, "List", [])
    [refusal] = told["refusals"]
    assert refusal["subject"] == "pod ml/hungry"
    assert refusal["message"].startswith("does not fit: 0/2 nodes are available: ")
    assert f"pod ml/hungry {refusal['message']}" in refused.stderr
    everything = run("-f", CLUSTER, "-f", CLAIMS, "-o", form)
    told = yaml.safe_load(everything.stdout)
    assert ([each["metadata"]["name"] for each in told["items"]], len(told["refusals"])) == (["train-own", "small"], 2)
    # Claims in such a list are read like any others.
    again = run("-f", CLUSTER, "-f", "-", "-o", form, stdin=everything.stdout)
    assert "refusals" not in again.stdout
    nothing = run("-f", CLUSTER, "-o", form)
    assert (nothing.exit_code, yaml.safe_load(nothing.stdout)["items"]) == (0, [])


def test_asking_twice_gives_the_same_answer() -> None:
    arguments = ("-f", CLUSTER, "-f", CLAIMS, "--pod", "ml/train", "-o", "json")
    first, second = run(*arguments), run(*arguments)
    assert first.stdout == second.stdout
    claim = json.loads(first.stdout)
    assert claim["metadata"]["annotations"] == {"resource.kubernetes.io/pod-claim-name": "own"}
    assert claim["status"]["reservedFor"] == [{"resource": "pods", "name": "train", "uid": "uid-of-train"}]


def test_a_pod_has_its_claims_served_together_or_not_at_all() -> None:
    result = run("-f", CLUSTER, "-f", CLAIMS, "--pod", "ml/hungry")
    assert result.exit_code == 1
    assert rows(result) == []


def test_only_on_the_node_that_is_asked_for() -> None:
    result = run("-f", CLUSTER, "-f", CLAIMS, "--claim", "small", "--node", "n2")
    assert result.exit_code == 1
    assert "0/1 nodes are available: 1 node: no alternative of request gpu fits" in result.stdout


def test_output_of_kubectl_is_as_good_as_manifests(tmp_path: Path) -> None:
    objects = [obj for path in (CLUSTER, CLAIMS) for obj in yaml.safe_load_all(Path(path).read_text())]
    as_list = {"apiVersion": "v1", "kind": "List", "items": objects, "metadata": {"resourceVersion": ""}}
    (tmp_path / "list.json").write_text(json.dumps(as_list))
    from_directory = run("-f", str(CASES))
    from_list = run("-f", str(tmp_path))
    assert from_list.stdout == from_directory.stdout
    assert run("-f", "-", stdin=yaml.safe_dump(as_list)).stdout == from_directory.stdout


def test_older_versions_of_the_api_are_read(tmp_path: Path) -> None:
    convert = CliRunner().invoke(app, ["convert", "-f", CLUSTER, "-f", CLAIMS, "--to", "v1beta1"])
    (tmp_path / "old.yaml").write_text(convert.stdout)
    assert run("-f", str(tmp_path)).stdout == run("-f", str(CASES)).stdout


@pytest.mark.parametrize(
    "command",
    [("allocate",), ("explain", "claim", "ml/big"), ("top", "devices"), ("plan", "--shape", "gpu"), ("cel", "true")],
    ids=lambda command: command[0],
)
def test_devices_in_a_version_that_cannot_be_read_are_not_left_out(command: tuple[str, ...]) -> None:
    slices = "apiVersion: resource.k8s.io/v1alpha3\nkind: ResourceSlice\nmetadata: {name: old}\n"
    result = CliRunner().invoke(app, [*command, "-f", CLUSTER, "-f", CLAIMS, "-f", "-"], input=slices)
    assert (result.exit_code, result.stdout, result.stderr) == (
        2,
        "",
        "dralloc: <stdin>: ResourceSlice old: there is no ResourceSlice in resource.k8s.io/v1alpha3; "
        "it exists in v1, v1beta2, v1beta1\n",
    )


def test_kinds_to_come_are_left_out_with_a_note() -> None:
    kinds = "apiVersion: resource.k8s.io/v2\nkind: DeviceDream\nmetadata: {name: a}\n---\n"
    result = run("-f", CLUSTER, "-f", CLAIMS, "-f", "-", "--claim", "small", stdin=2 * kinds)
    assert result.exit_code == 0
    assert result.stderr.count("note: <stdin>: ignored unknown kind DeviceDream of resource.k8s.io/v2\n") == 1


def test_features_that_are_off_are_heeded() -> None:
    result = run("-f", CLUSTER, "-f", CLAIMS, "--claim", "ml/big", "--feature-gates", "DRAConsumableCapacity=false")
    assert result.exit_code == 1
    assert "requests capacity, but the feature DRAConsumableCapacity is off" in result.stdout


# --- Pods and nodes -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("more", "want"),
    [
        pytest.param("", "1 node: taint reserved:NoSchedule is not tolerated", id="a taint of the node"),
        pytest.param("  nodeSelector: {zone: b}", "node selector or affinity does not match", id="a node selector"),
        pytest.param("  nodeName: n2", "a pod that has a node gets none", id="a node by name"),
    ],
)
def test_nodes_that_cannot_take_the_pod_are_left_out(tmp_path: Path, more: str, want: str) -> None:
    (tmp_path / "nodes.yaml").write_text(NODES)
    (tmp_path / "pod.yaml").write_text(POD.format(more=more))
    full = """\
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: all-of-it, namespace: ml}
spec: {devices: {requests: [{name: r, exactly: {deviceClassName: gpu}}]}}
status:
  allocation:
    devices:
      results:
      - {request: r, driver: gpu.example.com, pool: n1, device: gpu-0}
"""
    result = run("-f", CLUSTER, "-f", CLAIMS, "-f", str(tmp_path), "-f", "-", "--pod", "ml/p", stdin=full)
    assert result.exit_code == 1
    assert want in result.stdout
    assert "no Node objects" not in result.stderr


def test_a_pod_that_others_do_not_want_near_is_told(tmp_path: Path) -> None:
    lonely = """\
apiVersion: v1
kind: Pod
metadata: {name: lonely, namespace: ml}
spec:
  nodeName: n1
  containers: [{name: c, image: i}]
  affinity:
    podAntiAffinity:
      requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: zone, labelSelector: {}}]
"""
    (tmp_path / "nodes.yaml").write_text(NODES)
    (tmp_path / "pod.yaml").write_text(POD.format(more=""))
    result = run("-f", CLUSTER, "-f", CLAIMS, "-f", str(tmp_path), "-f", "-", "--pod", "ml/p", stdin=lonely)
    assert result.exit_code == 1
    assert "1 node: excluded by the anti-affinity of pod ml/lonely" in result.stdout


IN_USE = """\
---
apiVersion: v1
kind: Pod
metadata: {name: user, namespace: ml, uid: uid-of-user}
spec:
  nodeName: n2
  containers: [{name: c, image: i}]
  resourceClaims: [{name: a, resourceClaimName: whole}]
"""


@pytest.mark.parametrize("is_in_use", [False, True])
def test_a_pod_with_an_allocated_claim(tmp_path: Path, is_in_use: bool) -> None:
    """Devices in use decide the node; an idle claim that keeps the pod from its node is allocated again, as by the scheduler."""
    pod = POD.format(more="").replace(
        "{name: own, resourceClaimTemplateName: eight}",
        "{name: a, resourceClaimName: whole}, {name: b, resourceClaimTemplateName: eight}",
    )
    (tmp_path / "pod.yaml").write_text(pod + (IN_USE if is_in_use else ""))
    result = run("-f", CLUSTER, "-f", CLAIMS, "-f", str(tmp_path), "--pod", "ml/p")
    assert result.exit_code == is_in_use
    if is_in_use:
        assert "1 node: claim ml/whole is allocated on node n2, which this node cannot use" in result.stdout
    else:
        assert [row[:3] for row in rows(result)] == [["ml/whole", "r", "n1"], ["ml/p-b", "gpu", "n1"]]


def test_a_claim_that_was_made_for_the_pod_is_used_in_place_of_the_template(tmp_path: Path) -> None:
    claim = """\
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata:
  name: p-own-x7
  namespace: ml
  annotations: {resource.kubernetes.io/pod-claim-name: own}
  ownerReferences: [{apiVersion: v1, kind: Pod, name: p, uid: uid-of-p, controller: true}]
spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu, capacity: {requests: {memory: 1Gi}}}}]}}
"""
    (tmp_path / "pod.yaml").write_text(POD.format(more="") + "---\n" + claim)
    result = run("-f", CLUSTER, "-f", CLAIMS, "-f", str(tmp_path), "--pod", "ml/p")
    assert rows(result) == [["ml/p-own-x7", "gpu", "n1", "gpu.example.com/n1/gpu-0", "memory=1Gi"]]
    assert "template" not in result.stderr


def test_a_claim_that_two_pods_share_is_served_once(tmp_path: Path) -> None:
    pods = "---\n".join(
        POD.format(more="")
        .replace("name: p,", f"name: {name},")
        .replace("{name: own, resourceClaimTemplateName: eight}", "{name: a, resourceClaimName: shared}")
        for name in ("one", "two")
    )
    shared = """\
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: shared, namespace: ml}
spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu}}]}}
"""
    (tmp_path / "pods.yaml").write_text(pods + shared)
    result = run("-f", CLUSTER, "-f", str(tmp_path))
    assert result.exit_code == 0
    assert rows(result) == [["ml/shared", "gpu", "n1", "gpu.example.com/n1/gpu-0", "memory=1Gi"]]


# --- Wrong input ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "stdin", "want"),
    [
        pytest.param(("--claim", "bigg"), None, "no claim default/bigg in the files; did you mean ml/big?", id="claim"),
        pytest.param(
            ("--claim", "ml/zzz"),
            None,
            "no claim ml/zzz in the files; known: ml/big, ml/held, ml/typing-error and 2 more claims",
            id="nothing close",
        ),
        pytest.param(("--pod", "ml/trian"), None, "no pod ml/trian in the files; did you mean ml/train?", id="pod"),
        pytest.param(("--node", "n3"), None, "no node n3 in the files; known: n1, n2", id="node"),
        pytest.param(("--pod", "a", "--claim", "b"), None, "give --pod or --claim, not both", id="both"),
        pytest.param(("-f", "/nowhere"), None, "/nowhere: No such file or directory", id="file"),
        pytest.param(("-f", "-"), "a: [", "<stdin>:2:1: not YAML", id="syntax"),
        pytest.param(
            ("-f", "-"),
            "apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {name: 7}\n",
            "for the position run: dralloc validate <stdin>",
            id="types",
        ),
        pytest.param(("-f", "-"), "apiVersion: v1\nkind: Node\n", "<stdin>: Node without metadata.name", id="no name"),
        pytest.param(
            ("-f", "-"), "kind: Node\nmetadata: {name: n}\n", "<stdin>: Node without apiVersion", id="no version"
        ),
        pytest.param(("--config", "/nowhere"), None, "/nowhere: No such file or directory\n", id="configuration"),
        pytest.param(("--feature-gates", "Nonsense=true"), None, "there is no feature gate 'Nonsense'", id="gates"),
    ],
)
def test_wrong_input_is_told_in_a_line(arguments: tuple[str, ...], stdin: str | None, want: str) -> None:
    result = run("-f", CLUSTER, "-f", CLAIMS, *arguments, stdin=stdin)
    is_absent = want.startswith(("no claim", "no pod", "no node"))
    assert result.exit_code == (1 if is_absent else 2)
    assert want in result.stderr
    assert "Traceback" not in result.output


def test_files_without_anything_to_allocate_are_told(tmp_path: Path) -> None:
    (tmp_path / "other.yaml").write_text("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\n")
    result = run("-f", str(tmp_path))
    assert result.exit_code == 2
    assert "no devices, claims, pods or nodes found" in result.stderr


@pytest.mark.parametrize(
    ("pod", "want"),
    [
        pytest.param("resourceClaimName: missing", "does not fit: claim ml/missing does not exist", id="claim"),
        pytest.param(
            "resourceClaimTemplateName: nine",
            "cannot be allocated: claim own: template ml/nine does not exist",
            id="template",
        ),
    ],
)
def test_a_pod_whose_claims_are_not_there_is_told(tmp_path: Path, pod: str, want: str) -> None:
    (tmp_path / "pod.yaml").write_text(POD.format(more="").replace("resourceClaimTemplateName: eight", pod))
    result = run("-f", CLUSTER, "-f", CLAIMS, "-f", str(tmp_path), "--pod", "ml/p")
    assert result.exit_code == 1
    assert f"pod ml/p {want}" in result.stdout


def test_nothing_waits() -> None:
    result = run("-f", CLUSTER)
    assert (result.exit_code, result.stdout) == (0, "no claim waits for devices\n")


def test_extended_resources_get_devices(tmp_path: Path) -> None:
    slice_spec = {
        "driver": "gpu.example.com",
        "nodeName": "n1",
        "pool": {"name": "n1", "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": "gpu-0"}],
    }
    amounts = {"example.com/gpu": 1}
    container = {"name": "main", "image": "i", "resources": {"requests": amounts, "limits": amounts}}
    documents: list[dict[str, Any]] = [
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}},
        {"kind": "DeviceClass", "metadata": {"name": "gpu"}, "spec": {"extendedResourceName": "example.com/gpu"}},
        {"kind": "ResourceSlice", "metadata": {"name": "s"}, "spec": slice_spec},
        *(
            {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [container]}}
            for name in "pq"
        ),
    ]
    path = tmp_path / "cluster.yaml"
    path.write_text(yaml.safe_dump_all([{"apiVersion": "resource.k8s.io/v1", **each} for each in documents]))
    result = run("-f", str(path))
    assert "default/p-extended-resources-" in result.output
    assert "gpu.example.com/n1/gpu-0" in result.output
    assert "pod default/q does not fit" in result.output
