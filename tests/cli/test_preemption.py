"""`dralloc explain` and `dralloc allocate --dry-run` name the pods that would be evicted."""

from __future__ import annotations

import json
from pathlib import Path

from typer.testing import CliRunner

from dralloc.cli.main import app

CLUSTER = """
apiVersion: v1
kind: Node
metadata: {name: node-a}
status: {allocatable: {cpu: "4", memory: 8Gi, pods: "110"}}
---
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: gpu}
spec: {}
---
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: gpus}
spec:
  driver: gpu.example.com
  nodeName: node-a
  pool: {name: node-a, generation: 1, resourceSliceCount: 1}
  devices: [{name: gpu-0}]
---
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: high}
value: 10
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: weak, namespace: default, uid: claim-uid, finalizers: [resource.kubernetes.io/delete-protection]}
spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu}}]}}
status:
  allocation:
    devices: {results: [{request: gpu, driver: gpu.example.com, pool: node-a, device: gpu-0}]}
  reservedFor: [{resource: pods, name: weak, uid: pod-uid}]
---
apiVersion: v1
kind: Pod
metadata: {name: weak, namespace: default, uid: pod-uid}
spec:
  nodeName: node-a
  containers: [{name: main}]
  resourceClaims: [{name: gpu, resourceClaimName: weak}]
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: strong, namespace: default}
spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu}}]}}
---
apiVersion: v1
kind: Pod
metadata: {name: strong, namespace: default}
spec:
  priorityClassName: high
  containers: [{name: main}]
  resourceClaims: [{name: gpu, resourceClaimName: strong}]
"""


def run(tmp_path: Path, *arguments: str) -> str:
    file = tmp_path / "cluster.yaml"
    file.write_text(CLUSTER)
    return CliRunner().invoke(app, [*arguments, "-f", str(file)]).stdout


def test_an_explanation_names_the_victims(tmp_path: Path) -> None:
    text = run(tmp_path, "explain", "pod", "strong", "--feature-gates", "DRAPreemption=true")
    assert "It would preempt default/weak on node node-a" in text
    assert "evict pod default/weak (priority 0) on node-a, which frees default/weak" in text
    assert "it then gets gpu.example.com/node-a/gpu-0" in text


def test_while_the_gate_is_off_this_is_said_as_a_condition(tmp_path: Path) -> None:
    answer = json.loads(run(tmp_path, "explain", "pod", "strong", "-o", "json"))
    assert answer["preemption"]["enabled"] is False
    assert answer["preemption"]["message"].startswith("with the gate DRAPreemption")
    assert [victim["pod"] for victim in answer["preemption"]["victims"]] == ["default/weak"]


def test_a_dry_run_of_an_allocation_names_the_victims(tmp_path: Path) -> None:
    assert "would preempt" not in run(tmp_path, "allocate")
    assert "would preempt default/weak on node node-a" in run(tmp_path, "allocate", "--dry-run")
