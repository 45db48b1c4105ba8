"""`dralloc dump`: answers from a dump equal those of the live cluster, to the byte, wherever and whenever they are given."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from dralloc.cli.main import app
from tests.support.api_thread import ApiThread, api_thread, refused
from tests.support.local_api import FixedClock

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
ONE_MORE = ROOT / "tests" / "cases" / "fit" / "pod.yaml"
CASES = Path(__file__).parents[1] / "cases" / "explain"
MORE = """\
apiVersion: v1
kind: Node
metadata: {name: n1, labels: {kubernetes.io/hostname: n1, rack: west}, annotations: {notes: SECRET-NOTE}}
status: {allocatable: {cpu: "8", memory: 32Gi, pods: "110"}}
---
apiVersion: v1
kind: Node
metadata: {name: n2, labels: {kubernetes.io/hostname: n2, rack: east}}
spec: {taints: [{key: dedicated, value: jane, effect: PreferNoSchedule}]}
status: {allocatable: {cpu: "4", memory: 32Gi, pods: "110"}}
---
apiVersion: v1
kind: Namespace
metadata: {name: vision, labels: {resource.kubernetes.io/admin-access: "true", owner: jane}}
---
apiVersion: v1
kind: ResourceQuota
metadata: {name: few, namespace: vision}
spec: {hard: {gpu.deviceclass.resource.k8s.io/devices: "1"}}
---
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: urgent}
value: 1000
---
apiVersion: resource.k8s.io/v1
kind: DeviceTaintRule
metadata: {name: broken}
spec: {deviceSelector: {driver: gpu.example.com, pool: n1}, taint: {key: broken, effect: NoSchedule}}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: one-gpu, namespace: vision}
spec: {spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu}}]}}}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: admin, namespace: vision}
spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu, adminAccess: true}}]}}
---
apiVersion: v1
kind: Pod
metadata:
  name: look
  namespace: vision
  labels: {app: look}
  annotations: {kubectl.kubernetes.io/last-applied-configuration: SECRET-ANNOTATION, notes: SECRET-NOTE}
spec:
  priorityClassName: urgent
  containers:
  - name: main
    image: registry.example.com/SECRET-IMAGE
    args: [--password=SECRET-ARGUMENT]
    env: [{name: TOKEN, value: SECRET-VALUE}]
    resources: {claims: [{name: gpu}], requests: {cpu: "1"}}
  resourceClaims: [{name: gpu, resourceClaimTemplateName: one-gpu}]
---
apiVersion: v1
kind: Pod
metadata: {name: gated, namespace: vision}
spec:
  schedulingGates: [{name: example.com/wait}]
  containers: [{name: main, image: main}]
---
apiVersion: v1
kind: Pod
metadata: {name: lost, namespace: vision}
spec:
  containers: [{name: main, image: main, resources: {claims: [{name: gpu}]}}]
  resourceClaims: [{name: gpu, resourceClaimTemplateName: nowhere}]
---
apiVersion: v1
kind: Pod
metadata: {name: static, namespace: vision, annotations: {kubernetes.io/config.mirror: abc}}
spec: {nodeName: n1, containers: [{name: main, image: main}]}
---
apiVersion: v1
kind: Event
metadata: {name: look.1, namespace: vision}
involvedObject: {apiVersion: v1, kind: Pod, namespace: vision, name: look}
type: Warning
reason: FailedResourceClaimCreation
message: 'PodResourceClaim gpu: exceeded quota: few'
---
apiVersion: batch/v1
kind: Job
metadata: {name: sweep, namespace: vision}
spec:
  parallelism: 2
  template:
    spec:
      restartPolicy: Never
      containers: [{name: main, image: main, env: [{name: TOKEN, value: SECRET-VALUE}], resources: {claims: [{name: gpu}]}}]
      resourceClaims: [{name: gpu, resourceClaimTemplateName: one-gpu}]
"""
QUESTIONS = [
    ("explain", "claim", "ml/big"),
    ("explain", "claim", "vision/admin"),
    ("explain", "pod", "ml/hungry"),
    ("explain", "pod", "ml/train", "-o", "json"),
    ("explain", "pod", "vision/look"),
    ("explain", "pod", "vision/gated"),
    ("explain", "pod", "vision/lost"),
    ("allocate",),
    ("allocate", "-n", "default", "-o", "wide"),
    ("allocate", "-o", "yaml"),
    ("plan", "--shape", "gpu=2", "-o", "wide"),
    ("plan", "--shape", "gpu=2", "-o", "json"),
    ("fit", "POD"),
    ("fit", "POD", "-o", "json"),
    ("drain", "n1", "--dry-run"),
    ("drain", "--device", "gpu.example.com/n2/*", "--dry-run", "-o", "json"),
    ("top", "devices"),
    ("top", "devices", "-o", "wide"),
    ("top", "devices", "-o", "json"),
]


def documents(file: Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(file.read_text()))


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiThread]:
    """A cluster with objects of every kind that answers depend on. All are old: answers change when a pod has waited for seconds."""
    with api_thread(tmp_path_factory.mktemp("api"), FixedClock()) as api:
        api.client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ml"}})
        cases = [document for file in sorted(CASES.glob("*.yaml")) for document in documents(file)]
        api.fill((*cases, *yaml.safe_load_all(MORE)))
        yield api


@pytest.fixture
def cluster(filled: ApiThread) -> Iterator[ApiThread]:
    with filled.fresh():
        yield filled


@pytest.fixture(scope="module", params=["yaml", "json"])
def dumped(filled: ApiThread, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    file = tmp_path_factory.mktemp("dump") / f"dump.{request.param}"
    live(filled, "dump", "-o", str(file))
    return file


def ask(*arguments: str) -> Result:
    return CliRunner().invoke(app, [str(ONE_MORE) if each == "POD" else each for each in arguments])


def live(api: ApiThread, *arguments: str) -> Result:
    return ask(*arguments, "--kubeconfig", str(api.kubeconfig))


@pytest.mark.parametrize("question", QUESTIONS, ids=" ".join)
def test_W2_the_answer_from_a_dump_is_the_live_answer(
    cluster: ApiThread, dumped: Path, question: tuple[str, ...]
) -> None:
    expected, told = live(cluster, *question), ask(*question, "-f", str(dumped))
    assert expected.exit_code in (0, 1), expected.stderr
    assert (told.stdout, told.stderr, told.exit_code) == (expected.stdout, expected.stderr, expected.exit_code)


def test_a_dump_is_only_read_and_says_what_it_contains(cluster: ApiThread, tmp_path: Path) -> None:
    file = tmp_path / "dump.yaml"
    told = live(cluster, "dump", "-o", str(file))
    assert told.exit_code == 0, told.stderr
    assert {method for method, _ in cluster.requests} == {"GET"}
    header, *objects = documents(file)
    assert (header["kind"], header["namespace"]) == ("ClusterDump", "default")
    assert header["kubernetes"].startswith("v1.")
    counted = {each["kind"]: each["count"] for each in header["kinds"]}
    assert counted == {kind: sum(each["kind"] == kind for each in objects) for kind in counted}
    for kind in ("Node", "Pod", "ResourceClaim", "ResourceClaimTemplate", "ResourceSlice", "DeviceClass"):
        assert counted[kind], kind
    for kind in ("DeviceTaintRule", "Namespace", "ResourceQuota", "PriorityClass", "Job"):
        assert counted[kind], kind


def test_W2_no_answer_reads_a_clock() -> None:
    """Answers have the time of the objects that they are about."""
    package = ROOT / "src" / "dralloc"
    commands = [file for file in (package / "cli").glob("*.py") if "ClusterSource(" in file.read_text()]
    for file in (*commands, *(package / "whatif").rglob("*.py")):
        if file.name != "cluster_objects.py":
            assert not re.search(r"datetime\.now|time\.time|SystemClock|uuid4|random", file.read_text()), file


def test_a_dump_has_no_secrets(dumped: Path) -> None:
    assert "SECRET" not in dumped.read_text()


def test_an_anonymized_dump_names_nobody(dumped: Path, tmp_path: Path) -> None:
    file = tmp_path / dumped.name
    told = ask("dump", "-f", str(dumped), "--anonymize", "-o", str(file))
    assert told.exit_code == 0, told.stderr
    for name in ("jane", "vision", "hungry", "sweep", "n1", "one-gpu"):
        assert not re.search(rf"\b{name}\b", file.read_text()), name
    for question in (("allocate",), ("top", "devices")):
        before, after = (ask(*question, "-f", str(each)) for each in (dumped, file))
        assert (before.exit_code, len(before.stdout.split())) == (after.exit_code, len(after.stdout.split()))


def test_dumps_of_the_same_cluster_differ_in_the_time_only(cluster: ApiThread) -> None:
    first, second = (live(cluster, "dump").stdout.splitlines() for _ in range(2))
    assert [line for line in first if not line.startswith("time:")] == [
        line for line in second if not line.startswith("time:")
    ]


def test_a_full_disk_is_named(dumped: Path) -> None:
    result = ask("dump", "-f", str(dumped), "-o", "/dev/full")
    assert (result.exit_code, "cannot write /dev/full: No space left on device" in result.stderr) == (2, True)


def test_a_dump_of_a_dump_is_the_same(dumped: Path, tmp_path: Path) -> None:
    again = tmp_path / dumped.name
    assert ask("dump", "-f", str(dumped), "-o", str(again)).exit_code == 0
    assert again.read_bytes() == dumped.read_bytes()


@pytest.mark.parametrize(
    "question",
    [("explain", "pod", "ml/hungry"), ("allocate", "-o", "yaml"), ("top", "devices", "-o", "json")],
    ids=" ".join,
)
def test_W2_answers_depend_neither_on_hash_seeds_nor_on_time_zones(dumped: Path, question: tuple[str, ...]) -> None:
    command = [sys.executable, "-m", "dralloc.cli.main", *question, "-f", str(dumped)]
    answers = {
        subprocess.run(command, env={**os.environ, **settings}, capture_output=True, check=False).stdout
        for settings in (
            {"PYTHONHASHSEED": "0", "TZ": "UTC"},
            {"PYTHONHASHSEED": "1", "TZ": "Asia/Kathmandu"},
            {"PYTHONHASHSEED": "4711", "TZ": "America/Caracas", "LC_ALL": "C.UTF-8"},
        )
    }
    assert len(answers) == 1
    assert answers != {b""}


def test_the_time_of_a_dump_is_the_time_of_its_answers(tmp_path: Path, filled: ApiThread) -> None:
    """A device must be ready ten minutes after its allocation: in the dump it still has time, whenever it is read."""
    file = tmp_path / "dump.yaml"
    live(filled, "dump", "-o", str(file))
    header, *objects = documents(file)
    assert header["time"].endswith("Z")
    told = []
    for time in ("2020-01-01T00:00:00Z", "2020-01-01T01:00:00Z"):
        file.write_text(yaml.safe_dump_all([{**header, "time": time}, *objects, *yaml.safe_load_all(WAITING)]))
        told.append(ask("explain", "pod", "vision/bound", "-f", str(file)).stdout)
    assert told[0] != told[1]


WAITING = """\
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: bound, namespace: vision, uid: b1}
spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu}}]}}
status:
  allocation:
    allocationTimestamp: "2020-01-01T00:00:00Z"
    devices:
      results: [{request: gpu, driver: gpu.example.com, pool: n1, device: gpu-0, bindingConditions: [Ready]}]
---
apiVersion: v1
kind: Pod
metadata: {name: bound, namespace: vision, uid: b2}
spec:
  containers: [{name: main}]
  resourceClaims: [{name: gpu, resourceClaimName: bound}]
"""


def test_the_gates_of_a_dump_are_the_gates_of_its_answers(cluster: ApiThread, tmp_path: Path) -> None:
    file, gates = tmp_path / "dump.yaml", "DRADeviceTaints=false,DRADeviceTaintRules=false"
    live(cluster, "dump", "-o", str(file), "--feature-gates", gates)
    question = ("explain", "claim", "ml/big")
    assert ask(*question, "-f", str(file)).stdout == live(cluster, *question, "--feature-gates", gates).stdout


def test_what_could_not_be_read_is_noted_with_every_answer(cluster: ApiThread, tmp_path: Path) -> None:
    file = tmp_path / "dump.yaml"
    rules = "/apis/resource.k8s.io/v1/devicetaintrules"
    cluster.answers[rules] = refused(403, "Forbidden", "jane may not list devicetaintrules")
    told = live(cluster, "dump", "-o", str(file))
    assert "cannot read devicetaintrules" in told.stderr
    question = ("explain", "claim", "ml/big")
    expected = live(cluster, *question)
    told = ask(*question, "-f", str(file))
    assert "cannot read devicetaintrules" in told.stderr
    assert (told.stdout, told.stderr) == (expected.stdout, expected.stderr)


def test_missing_kinds_are_named(dumped: Path, tmp_path: Path) -> None:
    """An empty kind of a dump is no missing kind; in other files nothing says that it is empty."""
    assert "assumes" not in ask("top", "devices", "-f", str(dumped)).stderr
    plain = tmp_path / "plain.yaml"
    objects = [each for each in all_objects(dumped) if each["kind"] not in ("ClusterDump", "DeviceTaintRule")]
    plain.write_text(yaml.safe_dump_all(objects))
    told = ask("explain", "claim", "ml/big", "-f", str(plain))
    assert "no DeviceTaintRules in the files: the answer assumes that the cluster has none" in told.stderr
    assert "dralloc dump writes all kinds" in told.stderr


def test_a_dump_of_files_knows_no_more_than_they_do(dumped: Path, tmp_path: Path) -> None:
    plain, again = tmp_path / "plain.yaml", tmp_path / "again.yaml"
    plain.write_text(
        yaml.safe_dump_all([each for each in all_objects(dumped) if each["kind"] in ("ResourceSlice", "Node")])
    )
    assert ask("dump", "-f", str(plain), "-o", str(again)).exit_code == 0
    told = ask("top", "devices", "-f", str(again))
    assert told.exit_code == 0
    assert f"no ResourceClaims and no DeviceTaintRules in the dump {again}" in told.stderr


def all_objects(file: Path) -> list[dict[str, Any]]:
    return [item for document in documents(file) for item in document.get("items", [document])]


def test_the_pods_of_a_dumps_jobs_are_its_pods(dumped: Path, tmp_path: Path) -> None:
    """A job whose controller has made no pods has none; a job that is added by another file has those that it would get."""
    assert "sweep" not in ask("allocate", "-n", "vision", "-f", str(dumped)).output
    job = next(each for each in all_objects(dumped) if each["kind"] == "Job")
    more = tmp_path / "more.yaml"
    more.write_text(yaml.safe_dump({**job, "metadata": {"name": "other", "namespace": "vision"}}))
    assert "other" in ask("allocate", "-n", "vision", "-f", str(dumped), "-f", str(more)).output


@pytest.mark.parametrize(
    "header",
    [
        {"apiVersion": "dralloc.io/v9", "kind": "ClusterDump"},
        {"apiVersion": "dralloc.io/v1alpha1", "kind": "ClusterDump", "time": "yesterday"},
        {"apiVersion": "dralloc.io/v1alpha1", "kind": "ClusterDump", "time": "2026-01-01T00:00:00Z", "kinds": 3},
    ],
)
def test_a_header_that_cannot_be_read(tmp_path: Path, header: dict[str, Any]) -> None:
    file = tmp_path / "dump.yaml"
    file.write_text(yaml.safe_dump(header))
    told = ask("top", "devices", "-f", str(file))
    assert told.exit_code == 2
    assert str(file) in told.stderr
