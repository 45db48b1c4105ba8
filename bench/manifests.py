"""Manifests: decoding a large slice, reading and validating many claims."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench.measurement import Figure, benchmark, best_time_s
from dralloc.kube.codec import decode, encode, find_stray_fields
from dralloc.kube.manifests import read_manifest
from dralloc.kube.resource_v1 import ResourceSlice

CLAIMS = 10_000

CLAIM = """\
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata:
  name: claim-{number}
  namespace: training
  labels:
    app: trainer
    team: "7"
spec:
  devices:
    requests:
    - name: gpu
      exactly:
        deviceClassName: gpu.example.com
        allocationMode: ExactCount
        count: 2
        selectors:
        - cel:
            expression: device.attributes["gpu.example.com"].model == "m{model}"
        capacity:
          requests:
            memory: 20Gi
    - name: nic
      firstAvailable:
      - name: fast
        deviceClassName: fast.example.com
      - name: slow
        deviceClassName: slow.example.com
        count: 2
    constraints:
    - requests: [gpu]
      matchAttribute: gpu.example.com/numa
    config:
    - requests: [gpu]
      opaque:
        driver: gpu.example.com
        parameters:
          apiVersion: gpu.example.com/v1
          kind: GpuConfig
          sharing: {{strategy: TimeSlicing}}
---
"""


def claims_yaml(count: int) -> bytes:
    """Returns claims for fifty models of device."""
    return "".join(CLAIM.format(number=number, model=number % 50) for number in range(count)).encode()


def slice_json(devices: int) -> bytes:
    """Returns a slice with devices of nine attributes and three capacities each."""
    attributes = [f"gpu.example.com/attribute{index}" for index in range(9)]
    return json.dumps(
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {"name": "node-1-gpus", "creationTimestamp": None},
            "spec": {
                "driver": "gpu.example.com",
                "nodeName": "node-1",
                "pool": {"name": "node-1", "generation": 1, "resourceSliceCount": 1},
                "devices": [
                    {
                        "name": f"gpu-{number}",
                        "attributes": {name: {"string": f"{name}-{number}"} for name in attributes},
                        "capacity": {name: {"value": f"{number + 1}Gi"} for name in ("memory", "bandwidth", "compute")},
                    }
                    for number in range(devices)
                ],
            },
        }
    ).encode()


@benchmark("decode-slice")
def decode_slice() -> Iterator[Figure]:
    body = slice_json(128)
    slice_object = decode(body, ResourceSlice)
    yield Figure("decode 128 devices", best_time_s(lambda: decode(body, ResourceSlice), 50) * 1000, "ms", target=1)
    yield Figure("encode 128 devices", best_time_s(lambda: encode(slice_object), 50) * 1000, "ms", target=1)
    yield Figure("find stray fields", best_time_s(lambda: find_stray_fields(body, ResourceSlice), 20) * 1000, "ms")


@benchmark("validate-claims")
def validate_claims() -> Iterator[Figure]:
    """As users run it: the command in a new process, with one file."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "claims.yaml"
        path.write_bytes(claims_yaml(CLAIMS))
        yield Figure(f"read {CLAIMS:,} claims of YAML", best_time_s(lambda: read_manifest(path.read_bytes()), 1), "s")
        command = [sys.executable, "-m", "dralloc", "validate", str(path)]
        validating_s = best_time_s(lambda: subprocess.run(command, check=True, capture_output=True), 2)
        yield Figure(f"dralloc validate, {CLAIMS:,} claims of YAML", validating_s, "s", target=6)
