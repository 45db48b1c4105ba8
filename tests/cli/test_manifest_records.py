"""Large manifests, read in parts: the same objects as when they are read whole."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from dralloc.cli.manifest_records import PART_SIZE_MIN, Part, PartRead, cut_list, read_part

SLICE = """\
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {{name: slice-{at}}}
spec:
  driver: gpu.example.com
  nodeName: node-{at}
  pool: {{name: node-{at}, generation: 1, resourceSliceCount: 1}}
  devices:
  - name: gpu-0
    attributes: {{text: {{string: "- apiVersion: v1"}}}}
"""


def kubectl_list(count: int) -> str:
    """As `kubectl get -o yaml` prints it."""
    items = []
    for at in range(count):
        first, *rest = SLICE.format(at=at).splitlines()
        items.append("\n".join([f"- {first}", *(f"  {line}" for line in rest)]))
    return "\n".join(["apiVersion: v1", "items:", *items, "kind: List", "metadata:", '  resourceVersion: ""', ""])


def read(content: str, size_min: int) -> list[PartRead]:
    return [read_part(part) for part in cut_list(Part("file", content.encode()), size_min)]


@pytest.mark.parametrize("size_min", [1, 500, 2000, 10**9])
def test_a_list_in_parts_has_the_same_objects(size_min: int) -> None:
    content = kubectl_list(20)
    parts = read(content, size_min)
    assert [part.error for part in parts] == [""] * len(parts)
    bodies = [record.body for part in parts for record in part.records]
    assert [yaml.safe_load(body)["metadata"]["name"] for body in bodies] == [f"slice-{at}" for at in range(20)]
    assert bodies == [record.body for record in read_part(Part("file", content.encode())).records]


def test_small_parts_are_many() -> None:
    assert len(read(kubectl_list(20), 500)) > 5


def test_faults_are_told_with_their_line_in_the_whole_file() -> None:
    lines = kubectl_list(20).splitlines(keepends=True)
    lines[151] = "  spec: [\n"
    whole = read_part(Part("file", "".join(lines).encode())).error
    errors = [part.error for part in read("".join(lines), 500) if part.error]
    assert errors[0].split(":")[:2] == whole.split(":")[:2]


def test_other_files_are_left_whole() -> None:
    documents = "---\n".join(SLICE.format(at=at) for at in range(5))
    assert [len(part.records) for part in read(documents, 1)] == [5]


@pytest.mark.slow
def test_a_large_cluster_is_answered_from_kubectl_output(tmp_path: Path) -> None:
    """Large enough that it is read by several processes, mostly because of annotations."""
    note = "x" * 2000
    listed = re.sub(r"name: slice-\d+", rf"\g<0>, annotations: {{note: {note}}}", kubectl_list(1000))
    assert len(listed) > 2 * PART_SIZE_MIN
    (tmp_path / "slices.yaml").write_text(listed)
    (tmp_path / "claim.yaml").write_text(
        """\
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: gpu}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: claim}
spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu, count: 2}}]}}
"""
    )
    command = [sys.executable, "-m", "dralloc", "explain", "claim", "claim", "-f", str(tmp_path)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=250, check=False)
    assert result.stdout.startswith("claim default/claim does not fit on any of 1000 nodes: 1 device, 2 requested\n")
    assert result.returncode == 1
