"""What-if commands as users run them: a new process, with the cluster in one file. Figures are cpu time."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.measurement import Figure, benchmark
from dralloc.kube.yaml_writer import write_yaml

NODES = 200
RUNNING_PER_NODE = 16
WAITING = 300
MANY_NODES = 5_000
DEVICES_PER_NODE = 8

DRIVER = "gpu.example.com"
CLASS = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "DeviceClass",
    "metadata": {"name": "gpu"},
    "spec": {"selectors": [{"cel": {"expression": f'device.driver == "{DRIVER}"'}}]},
}

Document = dict[str, Any]


def node(number: int) -> Document:
    amounts = {"cpu": "20", "memory": "512Gi", "pods": "110"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": f"node-{number}", "labels": {"zone": f"zone-{number % 3}"}},
        "status": {"capacity": amounts, "allocatable": amounts, "conditions": [{"type": "Ready", "status": "True"}]},
    }


def slice_of(number: int) -> Document:
    devices = [
        {
            "name": f"gpu-{index}",
            "allowMultipleAllocations": True,
            "attributes": {"model": {"string": "a100"}, "index": {"int": index}},
            "capacity": {"memory": {"value": "80Gi"}},
        }
        for index in range(DEVICES_PER_NODE)
    ]
    pool = {"name": f"node-{number}", "generation": 1, "resourceSliceCount": 1}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": f"node-{number}-gpus"},
        "spec": {"driver": DRIVER, "nodeName": f"node-{number}", "pool": pool, "devices": devices},
    }


def devices_spec(memory: str) -> Document:
    exactly = {"deviceClassName": "gpu", "capacity": {"requests": {"memory": memory}}}
    return {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}


def template(memory: str) -> Document:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": "share", "namespace": "default"},
        "spec": {"spec": devices_spec(memory)},
    }


def pod(name: str, **spec: Any) -> Document:
    resources = {"requests": {"cpu": "1", "memory": "1Gi"}, "claims": [{"name": "gpu"}]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}"},
        "spec": {
            "containers": [{"name": "main", "image": "registry.example/main:1", "resources": resources}],
            "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "share"}],
            **spec,
        },
    }


def running(number: int, index: int) -> Iterator[Document]:
    """A pod on a node, and its claim with a quarter of a device."""
    name = f"running-{number}-{index}"
    statuses = [{"name": "gpu", "resourceClaimName": f"{name}-gpu"}]
    yield {
        **pod(name, nodeName=f"node-{number}"),
        "status": {"phase": "Running", "resourceClaimStatuses": statuses},
    }
    result = {
        "request": "gpu",
        "driver": DRIVER,
        "pool": f"node-{number}",
        "device": f"gpu-{index % DEVICES_PER_NODE}",
        "shareID": f"00000000-0000-0000-{number:04}-{index:012}",
        "consumedCapacity": {"memory": "20Gi"},
    }
    owner = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": f"uid-{name}", "controller": True}
    yield {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {
            "name": f"{name}-gpu",
            "namespace": "default",
            "uid": f"uid-{name}-gpu",
            "annotations": {"resource.kubernetes.io/pod-claim-name": "gpu"},
            "ownerReferences": [owner],
        },
        "spec": devices_spec("20Gi"),
        "status": {
            "allocation": {"devices": {"results": [result]}},
            "reservedFor": [{"resource": "pods", "name": name, "uid": f"uid-{name}"}],
        },
    }


def busy_cluster() -> Iterator[Document]:
    yield CLASS
    yield template("20Gi")
    for number in range(NODES):
        yield node(number)
        yield slice_of(number)
        for index in range(RUNNING_PER_NODE):
            yield from running(number, index)
    for index in range(WAITING):
        yield pod(f"waiting-{index}")


def large_cluster() -> Iterator[Document]:
    """A pod that fits nowhere, so that every node has to be explained."""
    yield CLASS
    yield template("90Gi")
    for number in range(MANY_NODES):
        yield node(number)
        yield slice_of(number)
    yield pod("waiting")


def write(path: Path, documents: Iterator[Document]) -> Path:
    if path.suffix == ".json":
        path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": list(documents)}), encoding="utf-8")
    else:
        path.write_text("---\n".join(map(write_yaml, documents)), encoding="utf-8")
    return path


def cpu_s(*arguments: str | Path) -> float:
    """The cpu time of a command. What it finds does not matter, but it must have an answer."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "dralloc", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, check=False)
    assert done.stdout, done.stderr.decode()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def best_cpu_s(*arguments: str | Path) -> float:
    return min(cpu_s(*arguments) for _ in range(2))


@benchmark("whatif-busy")
def whatif_busy() -> Iterator[Figure]:
    beside = f"{NODES} nodes, {NODES * RUNNING_PER_NODE:,} running and {WAITING} waiting pods"
    with tempfile.TemporaryDirectory() as directory:
        cluster = write(Path(directory) / "cluster.json", busy_cluster())
        model = write(Path(directory) / "pod.json", iter([pod("another")]))
        yield Figure(f"allocate: {beside}", best_cpu_s("allocate", "-f", cluster), "cpu s", target=3)
        yield Figure("plan --shape gpu", best_cpu_s("plan", "--shape", "gpu", "-f", cluster), "cpu s", target=3)
        yield Figure("fit", best_cpu_s("fit", model, "-f", cluster), "cpu s", target=3)


@benchmark("whatif-large")
def whatif_large() -> Iterator[Figure]:
    size = f"{MANY_NODES:,} nodes × {DEVICES_PER_NODE} devices"
    with tempfile.TemporaryDirectory() as directory:
        for suffix, target in (("json", 1.5), ("yaml", 4)):
            cluster = write(Path(directory) / f"cluster.{suffix}", large_cluster())
            explaining_s = best_cpu_s("explain", "pod", "waiting", "-f", cluster)
            yield Figure(f"explain from {suffix.upper()}: {size}", explaining_s, "cpu s", target=target)
