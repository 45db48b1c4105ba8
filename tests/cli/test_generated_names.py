"""Objects with `generateName` and no name, as samples of Kueue and others have them: every command takes them, or says why not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

CLUSTER = """
apiVersion: v1
kind: Node
metadata: {name: node-a}
status: {capacity: {cpu: "8", pods: "10"}, allocatable: {cpu: "8", pods: "10"}}
---
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: gpu}
spec: {}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: share}
spec: {spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu}}]}}}
"""
SLICES = "".join(
    f"""---
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {{generateName: slice-}}
spec:
  driver: gpu.example.com
  nodeName: node-a
  pool: {{name: node-a, generation: 1, resourceSliceCount: 2}}
  devices: [{{name: {device}}}]
"""
    for device in ("gpu-0", "gpu-1")
)
POD_SPEC = """
      restartPolicy: Never
      resourceClaims: [{name: gpu, resourceClaimTemplateName: share}]
      containers: [{name: c, image: registry.example/c:1, resources: {claims: [{name: gpu}]}}]
"""
POD = f"---\napiVersion: v1\nkind: Pod\nmetadata: {{generateName: sample-}}\nspec:{POD_SPEC}"
JOB = f"""---
apiVersion: batch/v1
kind: Job
metadata: {{generateName: sample-, labels: {{kueue.x-k8s.io/queue-name: user-queue}}}}
spec:
  parallelism: 2
  completions: 2
  template:
    spec:{POD_SPEC}"""
CLAIM = """---
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {generateName: sample-}
spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu}}]}}
"""
GATE = ("--feature-gates", "GenericWorkload=true")
GROUP = """---
apiVersion: scheduling.k8s.io/v1beta1
kind: PodGroup
metadata: {generateName: sample-}
spec: {schedulingPolicy: {gang: {minCount: 2}}}
"""


@pytest.fixture
def files(tmp_path: Path) -> Path:
    texts = {
        "cluster": CLUSTER + SLICES,
        "pod": POD,
        "job": JOB,
        "claim": CLAIM,
        "all": CLUSTER + SLICES + POD + POD + CLAIM,
    }
    for name, text in texts.items():
        (tmp_path / f"{name}.yaml").write_text(text)
    return tmp_path


def run(files: Path, *arguments: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "dralloc", *arguments]
    return subprocess.run(command, cwd=files, capture_output=True, text=True, input=stdin, timeout=120, check=False)


def test_they_are_valid(files: Path) -> None:
    ended = run(files, "validate", "pod.yaml", "job.yaml", "claim.yaml", "cluster.yaml", "-", *GATE, stdin=GROUP)
    assert (ended.stdout, ended.stderr, ended.returncode) == ("", "9 objects in 5 files: 0 errors, 0 warnings\n", 0)


@pytest.mark.parametrize(
    ("metadata", "path"),
    [
        ("{generateName: Sample_}", "metadata.generateName"),
        ("{}", "metadata.name"),
        ("{generateName: ''}", "metadata.name"),
    ],
)
def test_what_no_server_would_take_is_told(metadata: str, path: str, files: Path) -> None:
    ended = run(files, "validate", "-", stdin=CLAIM.replace("{generateName: sample-}", metadata))
    assert ended.returncode == 1
    assert f"error: {path}: " in ended.stdout


@pytest.mark.parametrize(
    "arguments",
    [("validate", "claim.yaml", "--output-version", "v1beta2"), ("convert", "-f", "claim.yaml", "--to", "v1beta2")],
)
def test_the_name_is_left_to_the_server(arguments: tuple[str, ...], files: Path) -> None:
    ended = run(files, *arguments)
    assert ended.returncode == 0, ended.stderr
    assert "generateName: sample-\n" in ended.stdout
    assert " name: sample" not in ended.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("fit", "-f", "cluster.yaml", "pod.yaml"), "pod default/sample-qlrl8: 2 more fit"),
        (("fit", "-f", "cluster.yaml", "job.yaml"), "pod default/sample-qlrl8-0: 2 more fit"),
        (("fit", "-f", "cluster.yaml", "claim.yaml"), "claim default/sample-qlrl8: 2 more fit"),
        (("allocate", "-f", "all.yaml"), "default/sample-"),
        (("top", "devices", "-f", "all.yaml"), "2 of 2 free"),
        (("doctor", "-f", "all.yaml"), "nothing found"),
        (("dump", "-f", "all.yaml"), "kind: Pod\n  count: 2"),
        (("defrag", "-f", "all.yaml"), "no more devices"),
        (("drain", "node-a", "--dry-run", "-f", "all.yaml"), "node-a"),
        (("cel", "true", "-f", "cluster.yaml"), "2 of 2 devices match"),
        (("explain", "pod", "sample-qlrl8", "-f", "all.yaml"), "default/sample-qlrl8"),
        (("explain", "pod", "sample-rn6gq", "-f", "all.yaml"), "default/sample-rn6gq"),
    ],
    ids=lambda part: "-".join(part[:2]) if isinstance(part, tuple) else "",
)
def test_answers_give_them_names_like_a_server(arguments: tuple[str, ...], said: str, files: Path) -> None:
    ended = run(files, *arguments)
    assert said in ended.stdout, ended.stderr


def test_an_object_that_is_not_found_by_its_prefix_is_named(files: Path) -> None:
    ended = run(files, "explain", "claim", "sample-", "-f", "all.yaml")
    assert ended.returncode != 0
    assert "did you mean default/sample-" in ended.stderr


def test_without_any_name_the_answer_says_what_is_missing(files: Path) -> None:
    (files / "nameless.yaml").write_text(CLUSTER + CLAIM.replace("{generateName: sample-}", "{}"))
    ended = run(files, "top", "devices", "-f", "nameless.yaml")
    assert (ended.returncode, ended.stderr.splitlines()[-1]) == (
        2,
        "dralloc: nameless.yaml: ResourceClaim without metadata.name or metadata.generateName",
    )
