"""kubectl against the server: Debian's 1.20, and a newer one if the machine has it."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.child_process import child_process
from tests.support.server_process import ServerProcess

DEBIAN = Path(__file__).parents[2] / ".tools" / "kubectl-debian" / "usr" / "bin" / "kubectl"

MANIFEST = """
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: gpu.example.com}
spec: {selectors: [{cel: {expression: 'device.driver == "gpu.example.com"'}}]}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: shared}
spec:
  devices:
    requests:
    - name: gpu
      exactly: {deviceClassName: gpu.example.com, allocationMode: ExactCount, count: 1, capacity: {requests: {memory: 10Gi}}}
"""

pytestmark = [pytest.mark.slow, pytest.mark.real]

Kubectl = Callable[..., str]


@pytest.fixture(scope="module", params=["debian", "machine"])
def program(
    request: pytest.FixtureRequest, server: ServerProcess, tmp_path_factory: pytest.TempPathFactory
) -> list[str]:
    """A kubectl with its connection to the server and a namespace of its own."""
    found = str(DEBIAN) if DEBIAN.exists() else None
    if request.param == "machine":
        # Without a newer kubectl, the only one is Debian's, which is tested already.
        found = shutil.which("kubectl") or found
    if found is None:
        pytest.skip("needs kubectl: scripts/install-system-tools installs it as root on Debian")
    cache = str(tmp_path_factory.mktemp("cache"))
    base = [found, "--kubeconfig", str(server.kubeconfig), "--cache-dir", cache, "--namespace", request.param]
    namespace = json.dumps({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": request.param}})
    subprocess.run([*base, "apply", "-f", "-"], input=namespace, text=True, timeout=60, check=True, capture_output=True)
    return base


@pytest.fixture(scope="module")
def kubectl(program: list[str]) -> Kubectl:
    """Runs kubectl and returns its output; fails if kubectl fails."""

    def run(*arguments: str, stdin: str = "", code: int = 0) -> str:
        command = [*program, *arguments]
        ended = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=60, check=False)
        assert ended.returncode == code, ended.stdout + ended.stderr
        return ended.stdout + (ended.stderr if code else "")

    return run


@pytest.fixture
def applied(kubectl: Kubectl) -> Iterator[str]:
    """Applies a class and a claim, and returns kubectl's output."""
    yield kubectl("apply", "-f", "-", stdin=MANIFEST)
    kubectl("delete", "--ignore-not-found", "-f", "-", stdin=MANIFEST)


def test_apply_creates_then_changes_nothing_then_configures(kubectl: Kubectl, applied: str) -> None:
    assert "resourceclaim.resource.k8s.io/shared created" in applied
    assert "resourceclaim.resource.k8s.io/shared unchanged" in kubectl("apply", "-f", "-", stdin=MANIFEST)
    labelled = MANIFEST.replace("{name: shared}", "{name: shared, labels: {tier: fast}}")
    assert "resourceclaim.resource.k8s.io/shared configured" in kubectl("apply", "-f", "-", stdin=labelled)


def test_server_side_apply_tells_whose_field_it_is(kubectl: Kubectl, applied: str) -> None:
    mine = MANIFEST.replace("{name: shared}", "{name: shared, labels: {tier: mine}}")
    theirs = MANIFEST.replace("{name: shared}", "{name: shared, labels: {tier: theirs}}")
    assert "serverside-applied" in kubectl(
        "apply", "--server-side", "--force-conflicts", "--field-manager=me", "-f", "-", stdin=mine
    )
    refusal = kubectl("apply", "--server-side", "--field-manager=them", "-f", "-", stdin=theirs, code=1)
    assert 'conflict with "me"' in refusal
    assert ".metadata.labels.tier" in refusal


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        ((), "shared"),
        (("-o", "wide"), "gpu=1:gpu.example.com"),
        (("-o", "name"), "resourceclaim.resource.k8s.io/shared"),
        (("-o", "yaml"), "deviceClassName: gpu.example.com"),
        (("-o", "jsonpath={.spec.devices.requests[0].exactly.capacity.requests.memory}"), "10Gi"),
        (("-o", "custom-columns=N:.metadata.name"), "shared"),
        (("-o", "go-template={{.metadata.name}}"), "shared"),
        (("--show-labels",), "<none>"),
    ],
)
def test_get_shows_a_claim_in_every_form(kubectl: Kubectl, applied: str, form: tuple[str, ...], expected: str) -> None:
    assert expected in kubectl("get", "resourceclaim", "shared", *form)


def test_get_finds_kinds_in_all_versions_and_lists_namespaces(kubectl: Kubectl, applied: str) -> None:
    claim = json.loads(kubectl("get", "resourceclaims.v1beta1.resource.k8s.io", "shared", "-o", "json"))
    assert claim["spec"]["devices"]["requests"][0]["deviceClassName"] == "gpu.example.com"
    assert "shared" in kubectl("get", "resourceclaims", "--all-namespaces")
    assert "default" in kubectl("get", "ns")


def test_describe_shows_the_request(kubectl: Kubectl, applied: str) -> None:
    described = kubectl("describe", "resourceclaim", "shared")
    assert "Device Class Name:  gpu.example.com" in described


def test_patch_label_and_annotate(kubectl: Kubectl, applied: str) -> None:
    kubectl("patch", "resourceclaim", "shared", "--type=merge", "-p", '{"metadata":{"labels":{"a":"b"}}}')
    operations = '[{"op":"add","path":"/metadata/labels/c","value":"d"}]'
    kubectl("patch", "resourceclaim", "shared", "--type=json", "-p", operations)
    kubectl("label", "resourceclaim", "shared", "e=f")
    kubectl("annotate", "resourceclaim", "shared", "g=h")
    metadata = json.loads(kubectl("get", "resourceclaim", "shared", "-o", "json"))["metadata"]
    assert metadata["labels"] == {"a": "b", "c": "d", "e": "f"}
    assert metadata["annotations"]["g"] == "h"


def test_a_refusal_names_every_fault(kubectl: Kubectl) -> None:
    broken = MANIFEST.replace("count: 1", "count: -1").replace("name: gpu\n", "name: GPU\n")
    refusal = kubectl("apply", "-f", "-", stdin=broken, code=1)
    assert "spec.devices.requests[0].name" in refusal
    assert "spec.devices.requests[0].exactly.count" in refusal
    kubectl("delete", "deviceclass", "gpu.example.com")


def test_wait_sees_a_deletion_that_a_finalizer_holds_up(kubectl: Kubectl, program: list[str], applied: str) -> None:
    kubectl(
        "patch", "resourceclaim", "shared", "--type=merge", "-p", '{"metadata":{"finalizers":["example.com/hold"]}}'
    )
    kubectl("delete", "resourceclaim", "shared", "--wait=false")
    assert "deletionTimestamp" in kubectl("get", "resourceclaim", "shared", "-o", "yaml")
    waiting = subprocess.Popen([*program, "wait", "--for=delete", "resourceclaim/shared", "--timeout=120s"])
    kubectl("patch", "resourceclaim", "shared", "--type=merge", "-p", '{"metadata":{"finalizers":null}}')
    # A kubectl that starts to wait late may report that nothing is there, but must not time out.
    waiting.wait(timeout=100)
    assert "NotFound" in kubectl("get", "resourceclaim", "shared", code=1)


def test_watch_shows_what_is_there_and_what_changes(kubectl: Kubectl, program: list[str], applied: str) -> None:
    command = [*program, "get", "resourceclaims", "--watch", "--no-headers", "--output-watch-events"]
    with child_process(command, stdout=subprocess.PIPE, text=True) as watching:
        assert watching.stdout is not None
        try:
            assert watching.stdout.readline().split()[:2] == ["ADDED", "shared"]
            kubectl("label", "resourceclaim", "shared", "seen=yes")
            assert watching.stdout.readline().split()[:2] == ["MODIFIED", "shared"]
        finally:
            watching.terminate()


def test_explain_speaks_of_fields(kubectl: Kubectl) -> None:
    assert "requests" in kubectl("explain", "resourceclaim.spec.devices")


def test_dry_run_stores_nothing(kubectl: Kubectl) -> None:
    kubectl("apply", "--dry-run=server", "-f", "-", stdin=MANIFEST)
    assert "NotFound" in kubectl("get", "resourceclaim", "shared", code=1)


def test_api_resources_and_version(kubectl: Kubectl) -> None:
    assert "resourceslices" in kubectl("api-resources", "--api-group=resource.k8s.io")
    assert "resource.k8s.io/v1" in kubectl("api-versions")
    assert "v1.37" in kubectl("version")


# --- who may do what ----------------------------------------------------------------------------------------------

RIGHTS = """
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: readers}
rules: [{apiGroups: [""], resources: [configmaps], verbs: [get, list]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: readers}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: readers}
subjects: [{kind: Group, apiGroup: rbac.authorization.k8s.io, name: devs}, {kind: ServiceAccount, name: web}]
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: web}
"""


@pytest.fixture
def rights(kubectl: Kubectl) -> Iterator[None]:
    kubectl("apply", "-f", "-", stdin=RIGHTS)
    yield
    kubectl("delete", "--ignore-not-found", "-f", "-", stdin=RIGHTS)


@pytest.mark.usefixtures("rights")
def test_auth_can_i_answers_by_roles(kubectl: Kubectl) -> None:
    bob = ("--as", "bob", "--as-group", "devs")
    assert kubectl("auth", "can-i", "delete", "pods") == "yes\n"
    assert kubectl("auth", "can-i", "get", "configmaps", *bob) == "yes\n"
    assert "no" in kubectl("auth", "can-i", "delete", "configmaps", *bob, code=1)
    assert "no" in kubectl("auth", "can-i", "get", "/metrics", *bob, code=1)
    listed = kubectl("auth", "can-i", "--list", *bob)
    assert "configmaps" in listed
    assert "selfsubjectaccessreviews.authorization.k8s.io" in listed
    assert "[*]" not in listed
    refused = kubectl("get", "pods", *bob, code=1)
    assert 'User "bob" cannot list resource "pods" in API group "" in the namespace' in refused
    kubectl("get", "configmaps", *bob)


@pytest.mark.usefixtures("rights")
def test_auth_whoami_and_tokens_of_service_accounts(program: list[str], kubectl: Kubectl) -> None:
    namespace = program[-1]
    if program[0] == str(DEBIAN):
        # It has no commands for these.
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/web/token"
        token = json.loads(kubectl("create", "--raw", path, "-f", "-", stdin="{}"))["status"]["token"]
        whoami: tuple[str, ...] = ("create", "--raw", "/apis/authentication.k8s.io/v1/selfsubjectreviews", "-f", "-")
    else:
        token = kubectl("create", "token", "web", "--duration", "20m").strip()
        whoami = ("auth", "whoami")
    assert "dralloc-admin" in kubectl(*whoami, stdin="{}")
    as_account = ("--token", token)
    assert f"system:serviceaccount:{namespace}:web" in kubectl(*whoami, *as_account, stdin="{}")
    kubectl("get", "configmaps", *as_account)
    assert "forbidden" in kubectl("get", "secrets", *as_account, code=1)
    kubectl("delete", "serviceaccount", "web")
    refused = kubectl("get", "configmaps", *as_account, code=1)
    assert "Unauthorized" in refused or "You must be logged in" in refused


def test_configuration_objects_are_created_by_commands(kubectl: Kubectl) -> None:
    kubectl("create", "configmap", "settings", "--from-literal", "a=b")
    kubectl("create", "secret", "generic", "login", "--from-literal", "password=x")
    assert kubectl("get", "configmap", "settings", "-o", "jsonpath={.data.a}") == "b"
    assert kubectl("get", "secret", "login", "-o", "jsonpath={.data.password}") == "eA=="
    assert "Opaque" in kubectl("get", "secrets")
    kubectl("delete", "configmap/settings", "secret/login")
