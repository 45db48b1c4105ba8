"""A cluster with every fault that `dralloc doctor` finds: the objects, and files of a node."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import yaml

from dralloc.client.blocking_client import Client
from dralloc.driver.checkpoint import PreparationRecord, encode_record
from dralloc.kube.meta_v1 import ObjectMeta
from dralloc.kube.resource_v1 import ResourceClaim
from dralloc.node.checkpoint import ClaimRecord, DriverPart, encode_checkpoint

GONE_UID = "11111111-2222-4333-8444-555555555555"
PREPARED_UID = "22222222-2222-4333-8444-555555555555"
DRIVER = "gpu.example.com"
OLD = (datetime.now(UTC) - timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
FINALIZER = "resource.kubernetes.io/delete-protection"

OBJECTS = f"""
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {{name: gpu}}
spec: {{selectors: [{{cel: {{expression: 'device.driver == "{DRIVER}"'}}}}], extendedResourceName: example.com/gpu}}
---
apiVersion: v1
kind: Node
metadata: {{name: both}}
status:
  allocatable: {{cpu: "8", memory: 8Gi, pods: "110", example.com/gpu: "2"}}
  conditions: [{{type: Ready, status: "True"}}]
---
apiVersion: v1
kind: Node
metadata: {{name: quiet}}
status:
  allocatable: {{cpu: "8", memory: 8Gi, pods: "110"}}
  conditions: [{{type: Ready, status: Unknown, lastTransitionTime: "{OLD}", reason: NodeStatusUnknown, message: Kubelet stopped posting node status.}}]
---
apiVersion: v1
kind: Node
metadata: {{name: driverless}}
status: {{allocatable: {{cpu: "8", memory: 8Gi, pods: "110"}}, conditions: [{{type: Ready, status: "True"}}]}}
---
apiVersion: v1
kind: Pod
metadata: {{name: finished}}
spec: {{containers: [{{name: c, image: x}}]}}
status: {{phase: Succeeded}}
---
apiVersion: v1
kind: Pod
metadata: {{name: with-plugin}}
spec: {{nodeName: both, containers: [{{name: c, image: x, resources: {{requests: {{example.com/gpu: "1"}}, limits: {{example.com/gpu: "1"}}}}}}]}}
status: {{phase: Running}}
---
apiVersion: v1
kind: Pod
metadata: {{name: with-claim}}
spec: {{nodeName: both, containers: [{{name: c, image: x}}], resourceClaims: [{{name: gpu, resourceClaimName: held}}]}}
status: {{phase: Running}}
---
apiVersion: v1
kind: Pod
metadata: {{name: user-of-deleted}}
spec: {{nodeName: both, containers: [{{name: c, image: x}}], resourceClaims: [{{name: gpu, resourceClaimName: deleted-in-use}}]}}
status: {{phase: Running}}
---
apiVersion: v1
kind: Pod
metadata: {{name: waits-for-driver}}
spec: {{nodeName: driverless, containers: [{{name: c, image: x}}]}}
---
apiVersion: v1
kind: Event
metadata: {{name: no-driver, namespace: default}}
involvedObject: {{kind: Pod, namespace: default, name: waits-for-driver}}
type: Warning
reason: FailedPrepareDynamicResources
message: "Failed to prepare dynamic resources: DRA driver nic.example.com is not registered"
lastTimestamp: "{OLD}"
firstTimestamp: "{OLD}"
"""


def slice_document(
    name: str, node: str, *devices: str, driver: str = DRIVER, pool: str = "", of: int = 1
) -> dict[str, Any]:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": name},
        "spec": {
            "driver": driver,
            "nodeName": node,
            "pool": {"name": pool or node, "generation": 1, "resourceSliceCount": of},
            "devices": [{"name": each} for each in devices],
        },
    }


def claim_document(
    name: str, device: str, *, reserved: tuple[dict[str, str], ...] = (), finalizers: tuple[str, ...] = ()
) -> dict[str, Any]:
    result = {"request": "gpu", "driver": DRIVER, "pool": "held", "device": device}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": "default", "finalizers": list(finalizers)},
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu"}}]}},
        "status": {"allocation": {"devices": {"results": [result]}}, "reservedFor": list(reserved)},
    }


def reference(name: str, uid: str) -> dict[str, str]:
    return {"resource": "pods", "name": name, "uid": uid}


def fill(client: Client) -> None:
    """Creates the objects."""
    uids: dict[str, str] = {}
    for document in yaml.safe_load_all(OBJECTS):
        if document["kind"] in ("Pod", "Event"):
            document["metadata"].setdefault("namespace", "default")
        uids[document["metadata"]["name"]] = create(client, document)
    for document in (
        slice_document("both", "both", "gpu-0", "gpu-1"),
        slice_document("held", "both", *(f"gpu-{number}" for number in range(9)), pool="held"),
        slice_document("gone", "gone", "gpu-0"),
        slice_document("quiet", "quiet", "gpu-0"),
        slice_document("driverless", "driverless", "nic-0", driver="nic.example.com"),
        slice_document("half", "both", "dpu-0", driver="dpu.example.net", of=2),
    ):
        create(client, document)
    held = (reference("with-claim", uids["with-claim"]),)
    for document in (
        claim_document("held", "gpu-0", reserved=held, finalizers=(FINALIZER,)),
        claim_document("unheld", "gpu-1", finalizers=(FINALIZER,)),
        claim_document("of-a-gone-pod", "gpu-2", reserved=(reference("gone", GONE_UID),)),
        claim_document("of-a-finished-pod", "gpu-3", reserved=(reference("finished", uids["finished"]),)),
        claim_document("partly", "gpu-4", reserved=(reference("gone", GONE_UID), *held)),
        claim_document("deleted", "gpu-5", finalizers=(FINALIZER,)),
        claim_document("deleted-foreign", "gpu-6", finalizers=("example.com/hold",)),
        claim_document(
            "deleted-in-use",
            "gpu-7",
            reserved=(reference("user-of-deleted", uids["user-of-deleted"]),),
            finalizers=(FINALIZER,),
        ),
    ):
        create(client, document)
    for name in ("deleted", "deleted-foreign", "deleted-in-use"):
        client.delete(ResourceClaim, name, namespace="default")


def create(client: Client, document: dict[str, Any]) -> str:
    """Creates the object with its status; returns its UID."""
    status = document.pop("status", None)
    created = client.create(document)
    uid = str(created["metadata"]["uid"] if isinstance(created, dict) else created.metadata.uid)
    if status:
        client.replace_status({**document, "status": status})
    return uid


def checkpoints(directory: Path) -> tuple[Path, Path]:
    """The file of a node and the directory of a driver, which keep a claim that is gone; written an hour ago."""
    node = directory / "dra_manager_state"
    record = ClaimRecord(
        namespace="default", name="vanished", uid=GONE_UID, pods=frozenset({"p"}), drivers={DRIVER: DriverPart()}
    )
    node.write_bytes(encode_checkpoint([record]))
    claims = directory / "claims"
    claims.mkdir()
    driver = claims / f"{PREPARED_UID}.json"
    vanished = ResourceClaim(metadata=ObjectMeta(name="vanished-too", namespace="default", uid=PREPARED_UID))
    driver.write_bytes(encode_record(PreparationRecord(claim=vanished, is_prepared=True)))
    then = (datetime.now(UTC) - timedelta(hours=1)).timestamp()
    for path in (node, driver):
        os.utime(path, (then, then))
    return node, claims
