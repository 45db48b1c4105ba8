"""All verbs of kubectl, against a server with a scheduler, controllers and a node whose pods are processes.

DRALLOC_KUBECTL names further programs (paths with `:` between them) to run the same table with.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from tests.real_clients.kubectl_verbs import VERBS, Verb
from tests.support.child_process import child_process
from tests.support.server_process import ServerProcess

pytestmark = [pytest.mark.slow, pytest.mark.real, pytest.mark.timeout(600)]

DEBIAN = Path(__file__).parents[2] / ".tools" / "kubectl-debian" / "usr" / "bin" / "kubectl"
NODE = "here"
TIMEOUT_S = 90


def programs() -> dict[str, str]:
    """The kubectl programs, by a name that is also their namespace."""
    found = {"debian": str(DEBIAN)} if DEBIAN.exists() else {}
    if (machine := shutil.which("kubectl")) is not None:
        found["machine"] = machine
    further = [path for path in os.environ.get("DRALLOC_KUBECTL", "").split(":") if path]
    return {**found, **{f"further-{number}": path for number, path in enumerate(further)}}


POD = """
apiVersion: v1
kind: Pod
metadata: {name: NAME, labels: {app: NAME, drained: "DRAINED"}}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - name: c
    image: none
    command: [sh, -c, 'echo started; sleep 1000']
---
"""
TEMPLATE = '{metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: "busybox:2"}]}}'
OBJECTS = f"""
apiVersion: apps/v1
kind: Deployment
metadata: {{name: dep}}
spec: {{replicas: 1, selector: {{matchLabels: {{a: b}}}}, template: {TEMPLATE}}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {{name: rolled, annotations: {{deployment.kubernetes.io/revision: "2"}}}}
spec: {{replicas: 1, selector: {{matchLabels: {{a: b}}}}, template: {TEMPLATE}}}
---
apiVersion: apps/v1
kind: ReplicaSet
metadata: {{name: rs}}
spec: {{replicas: 1, selector: {{matchLabels: {{a: b}}}}, template: {TEMPLATE}}}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {{name: sts}}
spec: {{replicas: 1, serviceName: svc, selector: {{matchLabels: {{a: b}}}}, template: {TEMPLATE}}}
---
apiVersion: v1
kind: ReplicationController
metadata: {{name: rc}}
spec: {{replicas: 1, selector: {{a: b}}, template: {TEMPLATE}}}
---
apiVersion: v1
kind: Service
metadata: {{name: svc}}
spec: {{ports: [{{port: 80, protocol: TCP, targetPort: 80}}], selector: {{a: b}}}}
---
"""
CONFIG_MAP = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: from-file}\ndata: {a: b}\n"
ROLE = """
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: reconciled, namespace: NAMESPACE}
rules: [{apiGroups: [""], resources: [pods], verbs: [get]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: reconciled, namespace: NAMESPACE}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: reconciled}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: ann}]
"""


@dataclass(frozen=True)
class Scene:
    """A kubectl with a namespace of objects that its verbs work on."""

    program: list[str]
    minor: int
    directory: Path
    namespace: str

    def run(self, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*self.program, *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
            cwd=self.directory,
            env={**os.environ, "KUBE_EDITOR": "true"},
        )

    def filled(self, text: str) -> str:
        return text.format(directory=self.directory, ns=self.namespace, node=NODE)

    def must(self, *arguments: str, stdin: str = "") -> str:
        ended = self.run(*arguments, stdin=stdin)
        assert ended.returncode == 0, ended.stdout + ended.stderr
        return ended.stdout


@contextmanager
def component(server: ServerProcess, *arguments: str, ready: str) -> Iterator[None]:
    """A component of the cluster, as a process of its own, ready inside the block."""
    command = [sys.executable, "-m", "dralloc", *arguments, "--kubeconfig", str(server.kubeconfig)]
    with child_process(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert any(ready in line for line in process.stdout), "it ended early"
            yield
        finally:
            process.terminate()
            process.wait(timeout=TIMEOUT_S)


@pytest.fixture(scope="module")
def cluster(server: ServerProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    state = tmp_path_factory.mktemp("node")
    node = ("node", "--name", NODE, "--plugin-dir", str(state), "--cdi-dir", str(state / "cdi"))
    with ExitStack() as components:
        components.enter_context(component(server, "scheduler", "--default-scheduler", ready="scheduling"))
        components.enter_context(component(server, "controllers", ready="working"))
        components.enter_context(component(server, *node, ready="is ready"))
        yield server


@pytest.fixture(scope="module", params=programs().items(), ids=lambda found: found[0])
def scene(request: pytest.FixtureRequest, cluster: ServerProcess, tmp_path_factory: pytest.TempPathFactory) -> Scene:
    namespace, program = request.param
    directory = tmp_path_factory.mktemp(namespace)
    cache = str(tmp_path_factory.mktemp("cache"))
    base = [program, "--kubeconfig", str(cluster.kubeconfig), "--cache-dir", cache, "--namespace", namespace]
    told = subprocess.run([program, "version", "--client", "-o", "json"], capture_output=True, text=True, check=True)
    minor = int(re.sub(r"[^0-9]", "", json.loads(told.stdout)["clientVersion"]["minor"]))
    scene = Scene(base, minor, directory, namespace)
    (directory / "configmap.yaml").write_text(CONFIG_MAP)
    (directory / "changed.yaml").write_text(CONFIG_MAP.replace("a: b", "a: changed"))
    (directory / "kustomization.yaml").write_text("resources: [configmap.yaml]\n")
    (directory / "role.yaml").write_text(ROLE.replace("NAMESPACE", namespace))
    scene.must("create", "namespace", namespace)
    pods = POD.replace("NAME", "web").replace("DRAINED", "no") + POD.replace("NAME", "away").replace("DRAINED", "yes")
    scene.must("apply", "-f", "-", stdin=pods + OBJECTS)
    scene.must("wait", "--for=condition=Ready", "pod/web", "pod/away", "--timeout=60s")
    roll_out(scene)
    return scene


def roll_out(scene: Scene) -> None:
    """Write what the deployment controller of Kubernetes would: the sets of two revisions, and the status."""
    rolled = json.loads(scene.must("get", "deployment", "rolled", "-o", "json"))
    owner = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "rolled", "controller": True}
    for revision in (1, 2):
        template = json.loads(json.dumps(rolled["spec"]["template"]))
        template["metadata"]["labels"]["pod-template-hash"] = str(revision)
        template["spec"]["containers"][0]["image"] = f"busybox:{revision}"
        replica_set: dict[str, Any] = {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "metadata": {
                "name": f"rolled-{revision}",
                "labels": {"a": "b"},
                "annotations": {"deployment.kubernetes.io/revision": str(revision)},
                "ownerReferences": [{**owner, "uid": rolled["metadata"]["uid"]}],
            },
            "spec": {"replicas": revision - 1, "selector": rolled["spec"]["selector"], "template": template},
        }
        scene.must("create", "-f", "-", stdin=json.dumps(replica_set))
    counts = dict.fromkeys(("replicas", "updatedReplicas", "readyReplicas", "availableReplicas"), 1)
    rolled["status"] = {"observedGeneration": rolled["metadata"]["generation"], **counts}
    path = f"/apis/apps/v1/namespaces/{scene.namespace}/deployments/rolled/status"
    scene.must("replace", "--raw", path, "-f", "-", stdin=json.dumps(rolled))


def test_every_verb(scene: Scene) -> None:
    """The commands in their order: some use what earlier ones have made."""
    failures = {verb.name: failure for verb in VERBS if (failure := failure_of(scene, verb))}
    assert failures == {}


def failure_of(scene: Scene, verb: Verb) -> str:
    """The output if it is not what the table says. Older programs may lack a command, but must not panic."""
    arguments = [word.replace("_", " ") if "_" in word else word for word in scene.filled(verb.command).split()]
    ended = scene.run(*arguments)
    output = ended.stdout + ended.stderr
    is_good = ended.returncode == verb.code and scene.filled(verb.prints) in output
    return "" if "panic" not in output and (is_good or scene.minor < verb.since) else output


def test_logs_follow_to_the_end_of_the_container(scene: Scene) -> None:
    told = scene.directory / "told"
    ends = f"until test -e {told}; do sleep 0.1; done; echo ended"
    pod = POD.replace("NAME", "short").replace("DRAINED", "no").replace("sleep 1000", ends)
    scene.must("apply", "-f", "-", stdin=pod)
    scene.must("wait", "--for=condition=Ready", "pod/short", "--timeout=60s")
    with child_process([*scene.program, "logs", "-f", "short"], stdout=subprocess.PIPE, text=True) as following:
        assert following.stdout is not None
        assert following.stdout.readline() == "started\n"
        told.touch()
        assert following.stdout.readline() == "ended\n"
        assert following.wait(timeout=TIMEOUT_S) == 0


def test_the_proxy_passes_requests_on(scene: Scene) -> None:
    with child_process([*scene.program, "proxy", "--port=0"], stdout=subprocess.PIPE, text=True) as proxy:
        try:
            assert proxy.stdout is not None
            address = proxy.stdout.readline().rsplit(" ", 1)[1].strip()
            with urlopen(f"http://{address}/api/v1/namespaces/{scene.namespace}/pods/web", timeout=30) as answer:
                assert json.load(answer)["metadata"]["name"] == "web"
        finally:
            proxy.terminate()
