"""The examples in the help of every command run and work, on one cluster and with files of the names that they use."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import pytest
import yaml

from tests.support.markdown import blocks_of
from tests.support.page_runner import going_on
from tests.support.warm_command import warm_command

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reference" / "cli.md").read_text()
EXAMPLES = [
    [command.text for command in block.commands()] for block in blocks_of(PAGE) if block.not_run == "an example"
]
LINES = [line for example in EXAMPLES for line in example]
DEADLINE_S = 60

# Examples that need something else, and the test that runs them.
ELSEWHERE = {
    "etcd://": "a real etcd: tests/store, tests/cli/test_up.py",
    "/var/lib/kubelet": "a kubelet",
    "plugins_registry/my-reg.sock": "a driver that runs: tests/cli/test_driver_test.py",
    "dralloc bench": "tests/cli/test_bench.py",
    "--metrics scheduler=http": "a scheduler of its own: tests/doctor/test_doctor_command.py",
}
# Replacements that make an example smaller or shorter.
INSTEAD = {
    "--fake 500": "--fake 3",
    "--fake 1000": "--fake 3",
    "gpu=100,nic=20": "gpu=2,nic=1",
    "--data-dir ./cluster": "--data-dir ./data",
    "--bind 0.0.0.0 --tls": "--bind 127.0.0.1 --tls --data-dir ./secure",
    "--plugin-dir /tmp/kubelet": "--plugin-dir kubelet",
    "--data-dir /tmp/try": "--data-dir try",
    "--data-dir /tmp/copy": "--data-dir copy",
    "driver-test --": "driver-test --only registration --only prepare.answer --",
}
# Examples that run until Ctrl-C, and what they print before.
ENDLESS = {
    "dralloc up": "dralloc is up…\n…",
    "dralloc apiserver": "serving on …",
    "dralloc scheduler": "scheduling on …",
    "dralloc controllers": "working on …",
    "dralloc node --fake": "publishing …\n…nodes are ready",
    "dralloc node --name": "node here on …\nnode here is ready",
    "dralloc get pods -w": "NAME…\n…\nweb…",
    "dralloc top devices --watch": "…\n…gpu-0…",
}
# Examples whose answer may be no: of doctor, because the claims are allocated by hand; of others, because no controller creates the pods again, and one of them has another scheduler.
MAY_SAY_NO = (
    "dralloc doctor",
    "dralloc defrag",
    "dralloc drain",
    "dralloc allocate",
    "dralloc plan",
    "dralloc explain podgroup",
)
# The port may be in use.
FREE_PORT = ("dralloc up", "dralloc apiserver")

CLAIM = """\
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {{name: {name}, namespace: {namespace}, labels: {{team: vision}}}}
spec: {{devices: {{requests: [{{name: gpu, exactly: {{deviceClassName: gpu.example.com}}}}]}}}}
"""
GANG = """\
apiVersion: scheduling.k8s.io/v1beta1
kind: PodGroup
metadata: {name: gang, namespace: default}
spec: {schedulingPolicy: {gang: {minCount: 1}}}
---
"""
POD = """\
apiVersion: v1
kind: Pod
metadata: {{name: {name}, namespace: {namespace}, labels: {{job: train}}}}
spec:
  containers: [{{name: main, image: train, resources: {{claims: [{{name: gpu}}]}}}}]
  resourceClaims: [{{name: gpu, resourceClaimTemplateName: gpu}}]
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {{name: gpu, namespace: {namespace}}}
spec: {{spec: {{devices: {{requests: [{{name: gpu, exactly: {{deviceClassName: gpu.example.com}}}}]}}}}}}
"""
NODE = """\
apiVersion: v1
kind: Node
metadata: {{name: {name}, labels: {{fake.dralloc.io/profile: manifest, pool: {pool}}}}}
---
"""
SLICE = """\
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {{name: {name}}}
spec:
  driver: gpu.example.com
  nodeName: {name}
  pool: {{name: {name}, generation: 1, resourceSliceCount: 1}}
  devices:
  - name: gpu-0
    allowMultipleAllocations: true
    attributes: {{model: {{string: a100}}}}
    capacity: {{memory: {{value: 80Gi}}}}
""" + "".join(f"  - {{{{name: gpu-{number}}}}}\n" for number in range(1, 9))
CLASS = """\
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: gpu.example.com}
spec: {selectors: [{cel: {expression: 'device.driver == "gpu.example.com"'}}]}
"""
RULE = """\
apiVersion: resource.k8s.io/v1beta2
kind: DeviceTaintRule
metadata: {name: repair}
spec: {deviceSelector: {driver: gpu.example.com, pool: node-7}, taint: {key: repair, effect: NoExecute}}
"""
WORLD = "---\n".join(
    (
        "apiVersion: v1\nkind: Namespace\nmetadata: {name: ml}\n",
        CLASS,
        *(
            (NODE + SLICE).format(name=name, pool=pool)
            for name, pool in (("node-7", "a100"), ("node-8", "gpu"), ("node-9", "gpu"))
        ),
        CLAIM.format(name="shared-gpu", namespace="ml"),
        POD.format(name="train-0", namespace="ml"),
        POD.format(name="train-1", namespace="ml"),
        POD.format(name="web", namespace="default"),
        # Waits until it is scheduled.
        POD.format(name="waiting", namespace="default").replace("spec:\n", "spec:\n  schedulerName: nobody\n", 1),
    )
)
FILES = {
    "cluster/world.yaml": WORLD,
    "cluster.json": json.dumps({"apiVersion": "v1", "kind": "List", "items": list(yaml.safe_load_all(WORLD))}),
    "pods.yaml": POD.format(name="new", namespace="default"),
    "gang.yaml": GANG
    + POD.format(name="member", namespace="default").replace(
        "spec:\n", "spec:\n  schedulingGroup: {podGroupName: gang}\n", 1
    ),
    "claim.yaml": CLAIM.format(name="one", namespace="default"),
    "claims.yaml": CLAIM.format(name="two", namespace="default"),
    "wanted.yaml": CLAIM.format(name="wanted", namespace="default"),
    "old.yaml": CLAIM.format(name="old", namespace="default")
    .replace("k8s.io/v1", "k8s.io/v1beta1")
    .replace("exactly: {deviceClassName: gpu.example.com}", "deviceClassName: gpu.example.com"),
    "pods.csv": "name,cores,memory_gib,devices,arrival_s,duration_s\na,4,16,0.5,0,60\nb,8,32,2,10,\n",
    "nodes.csv": "name,cores,memory_gib,devices\nn0,64,256,4\nn1,64,256,0\n",
    "taintrule.yaml": RULE,
    "slices.yaml": SLICE.format(name="node-7"),
    "s.yaml": SLICE.format(name="node-7"),
    # Replacements for other programs in pipes.
    "bin/helm": "#!/bin/sh\nexec cat claim.yaml\n",
    "bin/jq": "#!/bin/sh\nexec cat\n",
    "my-driver": f"#!/bin/sh\nGPU_MEMORY_CARDS={ROOT}/examples/drivers/gpu-memory/cards.json "
    f"exec {sys.executable} {ROOT}/examples/drivers/gpu-memory/driver.py\n",
}


@dataclass(frozen=True)
class Reader:
    """Runs examples."""

    directory: Path
    programs: Path

    @property
    def kubeconfig(self) -> Path:
        return self.directory / "kubeconfig"

    def environment(self, *, warm: bool) -> Mapping[str, str]:
        places = [self.directory / "bin", *([self.programs] if warm else []), Path(sys.executable).parent]
        return {
            "PATH": ":".join(map(str, [*places, os.environ["PATH"]])),
            "HOME": str(self.directory / "home"),
            "KUBECONFIG": str(self.kubeconfig),
            "PYTHONUNBUFFERED": "1",
            "LC_ALL": "C.UTF-8",
            "COLUMNS": "120",
        }

    def type(self, line: str, before: str = "") -> None:
        for word, other in INSTEAD.items():
            line = line.replace(word, other)
        for beginning, shown in ENDLESS.items():
            if line.startswith(beginning):
                more = " --port 0" if beginning in FREE_PORT and "--port" not in line else ""
                with going_on(line + more, self.directory, self.environment(warm=False)) as output:
                    assert output.wait_for(shown), f"{line} printed\n{output.text}"
                return
        done = subprocess.run(
            ["bash", "-o", "pipefail", "-c", before + line],
            cwd=self.directory,
            env=self.environment(warm=True),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )
        fine = (0, 1) if line.startswith(MAY_SAY_NO) else (0,)
        assert done.returncode in fine, f"{line} ended with {done.returncode} and printed\n{done.stdout}{done.stderr}"


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    """A running cluster, also with the context `production`, and files of the names that the examples use."""
    for name, text in FILES.items():
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
        file.chmod(0o755)
    shutil.copytree(ROOT / "examples", tmp_path / "examples", ignore=shutil.ignore_patterns("drivers", "demo"))
    for kind in ("allocation", "cel"):
        _beginning_of(ROOT / "tests" / "vectors" / f"{kind}.jsonl.gz", tmp_path / "tests" / "vectors")
    with ExitStack() as stack:
        warm = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="warm-")))
        programs = stack.enter_context(warm_command("dralloc", "dralloc.cli.main:main", "dralloc", warm))
        made = Reader(tmp_path, programs)
        start = "dralloc up --ephemeral --no-nodes --port 0 --kubeconfig kubeconfig"
        output = stack.enter_context(going_on(start, tmp_path, made.environment(warm=False)))
        assert output.wait_for("dralloc is up…\n…"), output.text
        document = yaml.safe_load(made.kubeconfig.read_text())
        document["contexts"].append({**document["contexts"][0], "name": "production"})
        made.kubeconfig.write_text(yaml.safe_dump(document))
        made.type("dralloc apply -f cluster/")
        yield made


def _beginning_of(vectors: Path, directory: Path, count: int = 20) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    with gzip.open(vectors, "rb") as lines, gzip.open(directory / vectors.name, "wb") as kept:
        kept.writelines(islice(lines, count))


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_help_examples_work(reader: Reader) -> None:
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not installed: `make system`")
    # Deletions last, because other examples need the objects.
    for example in sorted(EXAMPLES, key=lambda lines: lines[0].startswith("dralloc delete")):
        of_a_server_of_ours = reader.directory / "home" / ".dralloc" / "kubeconfig"
        of_a_server_of_ours.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(reader.kubeconfig, of_a_server_of_ours)
        before = ""
        for line in example:
            if any(word in line for word in ELSEWHERE):
                continue
            reader.type(line, before)
            # Keeps variables of the shell.
            before += f"{line}\n" if "=" in line.partition(" ")[0] else ""


def test_every_exception_applies_to_an_example() -> None:
    """An exception that no example needs any more is removed."""
    for word in (*ELSEWHERE, *INSTEAD):
        assert any(word in line for line in LINES), word
    for beginning in ENDLESS:
        assert any(line.startswith(beginning) for line in LINES), beginning
