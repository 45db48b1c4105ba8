"""`dralloc explain`: the answer first, for people and for machines."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner, Result

from dralloc.cli.main import app

CASES = Path(__file__).parents[1] / "cases" / "explain"


def run(*arguments: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(app, ["explain", *arguments, "-f", str(CASES)], input=stdin)


def test_a_claim_that_does_not_fit() -> None:
    result = run("claim", "ml/big")
    assert result.exit_code == 1
    assert (
        result.stdout
        == """\
claim ml/big does not fit on any of 2 nodes: 1 node: insufficient memory: requested 30Gi (rounded up to 31Gi), available 23Gi; 1 node: the only device is in use

Nodes
  1  insufficient memory: requested 30Gi (rounded up to 31Gi), available 23Gi  [n1]
  1  the only device is in use  [n2]

It would fit if you
  - tolerate the taint broken=fan:NoSchedule in request gpu  [n1]
  - request 23Gi of memory instead of 30Gi in request gpu  [n1]
  - omit memory in request gpu (the default, 1Gi, applies)  [n1]
  - release claim ml/held  [n1]
  - release claim ml/whole  [n2]

On n1
  request gpu: 1 device of class gpu
     2  devices on the node
    -1  insufficient memory: requested 30Gi (rounded up to 31Gi), available 23Gi (gpu.example.com/n1/gpu-0), held by ml/held
    -1  untolerated taint broken=fan:NoSchedule
     0  available, 1 requested

On n2
  request gpu: 1 device of class gpu
     1  device on the node
    -1  in use, held by ml/whole
     0  available, 1 requested
"""
    )


def test_a_claim_that_fits() -> None:
    result = run("claim", "small")
    assert result.exit_code == 0
    assert (
        result.stdout
        == """\
claim default/small fits on 1 of 2 nodes; on n1 it gets gpu.example.com/n1/gpu-0

Nodes
  1  fits  [n1]
  1  no alternative of request gpu fits, nearest gpu/one: the only device is in use  [n2]

Why these devices, on n1
  request gpu/one: gpu.example.com/n1/gpu-0 (a share: memory=3Gi), the first free device

Preferred alternatives that do not fit
  gpu/two: only 1 of 2 devices: untolerated taint broken=fan:NoSchedule
"""
    )


@pytest.mark.parametrize("word", ["claims", "Claim", "resourceclaim", "ResourceClaims"])
def test_a_kind_may_be_written_as_for_kubectl(word: str) -> None:
    assert run(word, "small").stdout == run("claim", "small").stdout


def test_an_unknown_kind() -> None:
    result = run("node", "n1")
    assert result.exit_code == 2
    assert "'node' is not one of pod, claim" in result.output


def test_a_typing_error_shows_at_once() -> None:
    result = run("claim", "ml/typing-error")
    assert result.exit_code == 1
    assert result.stdout.startswith("claim ml/typing-error cannot be allocated: request selector #0: ")
    assert "gpu.example.com/modle exists on 0 of 3 devices; did you mean gpu.example.com/model?" in result.stdout


def test_a_pod_hears_which_of_its_claims_blocks() -> None:
    result = run("pod", "ml/hungry")
    assert result.exit_code == 1
    told = result.stdout.splitlines()
    assert told[0].startswith("pod ml/hungry does not fit on any of 2 nodes: 1 node: claim ml/big: insufficient memory")
    assert "  ml/hungry-own: fits alone on 1 of 2 nodes" in told
    assert any(line.startswith("  ml/big: does not fit on any node, even alone: insufficient memory") for line in told)


def test_a_pod_that_fits() -> None:
    result = run("pod", "ml/train")
    assert result.exit_code == 0
    assert result.stdout.startswith("pod ml/train fits on 1 of 2 nodes; on n1 it gets gpu.example.com/n1/gpu-0\n")


def test_only_the_node_that_is_asked_about() -> None:
    result = run("claim", "ml/big", "--node", "n2")
    assert result.stdout.startswith("claim ml/big does not fit on n2: the only device is in use\n")


def test_a_claim_that_has_its_devices() -> None:
    result = run("claim", "ml/held")
    assert (result.exit_code, result.stdout) == (
        0,
        "claim ml/held has its devices already\nml/held: request r has gpu.example.com/n1/gpu-0 (memory=17Gi)\n",
    )


def test_a_pod_that_runs() -> None:
    pod = """\
apiVersion: v1
kind: Pod
metadata: {name: p, namespace: ml}
spec: {nodeName: n1, containers: [{name: c, image: i}], resourceClaims: [{name: a, resourceClaimName: held}]}
"""
    result = run("pod", "ml/p", "-f", "-", stdin=pod)
    assert (result.exit_code, result.stdout) == (
        0,
        "pod ml/p is on node n1 already\nml/held: request r has gpu.example.com/n1/gpu-0 (memory=17Gi)\n",
    )


@pytest.mark.parametrize(
    ("ready", "phase", "code", "told"),
    [
        ("True", "Pending", 0, ""),
        (
            "False",
            "Pending",
            1,
            " and does not run: the node is not ready (the node agent has ended); delete the pod to have it scheduled again",
        ),
        ("False", "Running", 0, ""),
    ],
)
def test_a_pod_whose_node_is_not_ready(ready: str, phase: str, code: int, told: str) -> None:
    objects = f"""\
apiVersion: v1
kind: Pod
metadata: {{name: p, namespace: ml}}
spec: {{nodeName: n1, containers: [{{name: c, image: i}}]}}
status: {{phase: {phase}}}
---
apiVersion: v1
kind: Node
metadata: {{name: n1}}
status: {{conditions: [{{type: Ready, status: "{ready}", message: the node agent has ended}}]}}
"""
    result = run("pod", "ml/p", "-f", "-", stdin=objects)
    assert (result.exit_code, result.stdout) == (code, f"pod ml/p is on node n1 already{told}\n")


@pytest.mark.parametrize(
    ("node", "code", "told"),
    [
        (
            "nodeName: n1,",
            0,
            "pod ml/p is on node n1 already; its claim going will be deleted when no pod uses it\n",
        ),
        ("", 1, "pod ml/p cannot be scheduled: claim ml/going is being deleted\n"),
    ],
    ids=["runs", "waits"],
)
def test_a_pod_whose_claim_is_being_deleted(node: str, code: int, told: str) -> None:
    objects = f"""\
apiVersion: v1
kind: Pod
metadata: {{name: p, namespace: ml}}
spec: {{{node} containers: [{{name: c, image: i}}], resourceClaims: [{{name: a, resourceClaimName: going}}]}}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata:
  {{name: going, namespace: ml, deletionTimestamp: 2026-01-01T00:00:00Z, finalizers: [resource.kubernetes.io/delete-protection]}}
spec: {{devices: {{requests: [{{name: r, exactly: {{deviceClassName: gpu.example.com}}}}]}}}}
status:
  reservedFor: [{{resource: pods, name: p, uid: u}}]
  allocation: {{devices: {{results: [{{request: r, driver: gpu.example.com, pool: n2, device: gpu-0}}]}}}}
"""
    result = run("pod", "ml/p", "-f", "-", stdin=objects)
    assert (result.exit_code, result.stdout.splitlines(keepends=True)[0]) == (code, told)


FIRST_SHARE_DECIDES = """\
apiVersion: v1
kind: Node
metadata: {name: n1}
status: {allocatable: {cpu: "4", memory: 8Gi, pods: "10"}}
---
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: nic}
---
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: s}
spec:
  driver: nic.example.com
  nodeName: n1
  pool: {name: n1, generation: 1, resourceSliceCount: 1}
  devices:
  - name: eth0
    allowMultipleAllocations: true
    capacity: {bandwidth: {value: "10", requestPolicy: {strategy: ConsumedOrNever}}}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: first, namespace: default}
spec: {devices: {requests: [{name: r, exactly: {deviceClassName: nic}}]}}
status:
  allocation:
    devices:
      results:
      - {request: r, driver: nic.example.com, pool: n1, device: eth0, shareID: 11111111-2222-4333-8444-555555555555}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: new, namespace: default}
spec: {devices: {requests: [{name: r, exactly: {deviceClassName: nic, capacity: {AMOUNTS}}}]}}
"""


@pytest.mark.parametrize(
    ("amounts", "gates", "says", "proposed"),
    [
        (
            "requests: {bandwidth: '3'}",
            "DRACapacityStrategies=true",
            "bandwidth is not consumable while shares without a request for it are in use",
            {"omit bandwidth in request r", "release claim default/first"},
        ),
        (
            "limits: {bandwidth: '12'}",
            "DRACapacityStrategies=true,DRACapacityLimits=true",
            "insufficient bandwidth: requested 12, the largest device has 10",
            {"omit the limit 12 of bandwidth in request r"},
        ),
        (
            "limits: {bandwith: '3'}",
            "DRACapacityStrategies=true,DRACapacityLimits=true",
            "no device has the capacity bandwith",
            {"omit the limit 3 of bandwith in request r"},
        ),
        ("requests: {bandwidth: '3'}", "", "devices need the feature DRACapacityStrategies, which is off", set()),
        ("limits: {bandwidth: '3'}", "", "has capacity limits, but the feature DRACapacityLimits is off", set()),
    ],
    ids=[
        "not consumable",
        "a limit alone",
        "a misspelled limit",
        "a device that needs a feature",
        "a claim that needs a feature",
    ],
)
def test_devices_whose_first_share_decides(amounts: str, gates: str, says: str, proposed: set[str]) -> None:
    objects = FIRST_SHARE_DECIDES.replace("{AMOUNTS}", f"{{{amounts}}}")
    arguments = ["explain", "claim", "new", "-f", "-", *(["--feature-gates", gates] if gates else [])]
    result = CliRunner().invoke(app, arguments, input=objects)
    assert result.exit_code == 1
    assert says in result.stdout
    assert proposed <= {line.strip().removeprefix("- ") for line in result.stdout.splitlines()}


def pod_with(claims: str) -> str:
    return f"""\
apiVersion: v1
kind: Pod
metadata: {{name: p, namespace: ml}}
spec:
  containers: [{{name: c, image: i}}]
  resourceClaims: [{claims}]
"""


def test_a_pod_some_of_whose_claims_have_devices() -> None:
    pod = pod_with("{name: a, resourceClaimName: held}, {name: b, resourceClaimTemplateName: eight}")
    result = run("pod", "ml/p", "-f", "-", stdin=pod)
    assert result.exit_code == 0
    assert "  1  claim ml/held is allocated on node n1, which this node cannot use  [n2]" in result.stdout
    assert "  ml/held: request r has gpu.example.com/n1/gpu-0 (memory=17Gi)" in result.stdout


def test_a_claim_that_a_pod_names_twice_is_one_claim() -> None:
    pod = pod_with("{name: a, resourceClaimName: once}, {name: b, resourceClaimName: once}")
    claim = """\
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: once, namespace: ml}
spec: {devices: {requests: [{name: r, exactly: {deviceClassName: gpu, capacity: {requests: {memory: 14Gi}}}}]}}
"""
    result = run("pod", "ml/p", "-f", "-", stdin=pod + claim)
    assert result.exit_code == 0
    assert result.stdout.startswith("pod ml/p fits on 1 of 2 nodes; on n1 it gets gpu.example.com/n1/gpu-0\n")


def test_for_machines_as_json_and_yaml() -> None:
    result = run("claim", "ml/big", "-o", "json")
    assert result.exit_code == 1
    told = json.loads(result.stdout)
    assert yaml.safe_load(run("claim", "ml/big", "-o", "yaml").stdout) == told
    assert told["verdict"] == "DoesNotFit"
    assert told["availability"].startswith("0/2 nodes are available: ")
    assert told["reasons"][0] == {
        "nodes": ["n1"],
        "cause": "CapacityShort",
        "message": "insufficient memory: requested 30Gi (rounded up to 31Gi), available 23Gi",
        "claim": "ml/big",
        "request": "gpu",
        "subject": "memory",
        "asked": "30Gi",
        "takes": "31Gi",
        "most": "23Gi",
        "example": "gpu.example.com/n1/gpu-0",
    }
    assert told["nearestMisses"][0] == {
        "node": "n1",
        "change": "Tolerate",
        "message": "tolerate the taint broken=fan:NoSchedule in request gpu",
        "changes": [
            {
                "action": "set",
                "apiVersion": "resource.k8s.io/v1",
                "kind": "ResourceClaim",
                "namespace": "ml",
                "name": "big",
                "path": "/spec/devices/requests/0/exactly/tolerations",
                "to": [{"key": "broken", "operator": "Equal", "value": "fan", "effect": "NoSchedule"}],
            }
        ],
    }
    [funnel] = told["details"][0]["requests"]
    assert funnel["seen"] == funnel["left"] + sum(lost["count"] for lost in funnel["lost"]) == 2


def test_a_choice_for_machines() -> None:
    told = json.loads(run("claim", "small", "-o", "json").stdout)
    assert told["verdict"] == "Fits"
    assert told["choice"]["devices"] == [
        {
            "claim": "default/small",
            "request": "gpu/one",
            "device": "gpu.example.com/n1/gpu-0",
            "consumedCapacity": {"memory": "3Gi"},
        }
    ]


@pytest.mark.parametrize("output", ["table", "wide", "json", "yaml"])
def test_a_pod_that_cannot_be_judged_is_told_in_every_form(output: str) -> None:
    pod = """\
apiVersion: v1
kind: Pod
metadata: {name: p, namespace: ml}
spec: {containers: [{name: c, image: i}], resourceClaims: [{name: a, resourceClaimName: missing}]}
"""
    result = run("pod", "ml/p", "-f", "-", "-o", output, stdin=pod)
    assert result.exit_code == 1
    assert "pod ml/p cannot be scheduled: claim ml/missing does not exist" in result.stdout


def test_an_unknown_name_is_answered_with_what_may_be_meant() -> None:
    result = run("claim", "bigg")
    assert result.exit_code == 1
    assert "no claim default/bigg in the files; did you mean ml/big?" in result.stderr


def test_a_name_like_no_other_is_answered_with_some_that_there_are_those_of_its_namespace_first() -> None:
    claims = "---\n".join(
        f"apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {{name: c{number}, namespace: zoo}}\n"
        for number in range(9)
    )
    result = run("claim", "zoo/nothing-like-it", "-f", "-", stdin=claims)
    assert result.exit_code == 1
    assert "no claim zoo/nothing-like-it in the files; known: zoo/c0, zoo/c1, " in result.stderr
    assert result.stderr.endswith(" more claims\n")


def test_the_help_teaches_by_example() -> None:
    result = CliRunner().invoke(app, ["explain", "--help"], env={"COLUMNS": "200"})
    assert "dralloc explain pod ml/train-0 -f cluster.json" in result.stdout


def test_the_order_of_devices_is_named_where_it_is_not_first_fit() -> None:
    examples = CASES.parents[2] / "examples"
    for folder, pod, gate, says in (
        ("14-summed-bandwidth", "bundle", "DRAAggregatedCapacity", "one of as few devices as have enough together"),
        ("19-which-device-first", "packed", "DRADevicePreference", "chosen by LeastAvailable"),
    ):
        arguments = ["explain", "pod", pod, "-f", str(examples / folder), "--feature-gates", f"{gate}=true"]
        assert says in CliRunner().invoke(app, arguments).stdout


def test_remedies_of_a_total_that_too_few_devices_have() -> None:
    folder = CASES.parents[2] / "examples" / "14-summed-bandwidth"
    arguments = ["explain", "pod", "narrow", "-f", str(folder), "--feature-gates", "DRAAggregatedCapacity=true"]
    answer = CliRunner().invoke(app, arguments).stdout
    assert "insufficient bandwidth: requested 25G, 2 devices can give 20G" in answer
    assert "request 20G of bandwidth instead of 25G in request lines" in answer
    assert "allow 3 devices instead of 2 in request lines" in answer
