"""The manifests of `deploy/` and the example drivers: valid for us and for kubectl, without root, and complete."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from dralloc import __version__
from tests.support.server_process import ServerProcess, server_process

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
DRIVERS = sorted(path.parent for path in (ROOT / "examples" / "drivers").glob("*/manifests"))
# Files of programs, not objects of a cluster; and an object of the Prometheus operator, whose kind is a custom resource.
NO_OBJECTS = {"kustomization.yaml", "alerts.yaml", "prometheus-rule.yaml"}
FOLDERS = [DEPLOY, *(driver / "manifests" for driver in DRIVERS)]
# Templates, and links to the manifests.
CHART = DEPLOY / "chart"
MANIFESTS = sorted(
    path
    for folder in FOLDERS
    for path in folder.rglob("*.yaml")
    if path.name not in NO_OBJECTS and not path.is_relative_to(CHART)
)


def documents(*paths: Path) -> Iterator[dict[str, Any]]:
    for path in paths:
        yield from yaml.safe_load_all(path.read_text())


def workloads() -> list[dict[str, Any]]:
    return [each for each in documents(*MANIFESTS) if each["kind"] in ("Deployment", "DaemonSet")]


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=100)


@pytest.mark.slow
def test_manifests_are_valid() -> None:
    done = run(sys.executable, "-m", "dralloc", "validate", *map(str, MANIFESTS))
    said = done.stdout + done.stderr
    assert said.endswith(" 0 errors, 0 warnings\n"), said


# --- kubectl ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with server_process(tmp_path_factory.mktemp("server")) as running:
        yield running


@pytest.fixture(params=["debian", "machine"])
def kubectl(request: pytest.FixtureRequest) -> str:
    """The oldest supported version, and the machine's own if it has one."""
    debian = ROOT / ".tools" / "kubectl-debian" / "usr" / "bin" / "kubectl"
    found = shutil.which("kubectl") if request.param == "machine" else None
    if found is None and not debian.exists():
        pytest.skip("needs kubectl: scripts/install-system-tools installs it as root on Debian")
    return found or str(debian)


@pytest.mark.slow
@pytest.mark.real
def test_kubectl_accepts_the_manifests(kubectl: str, server: ServerProcess) -> None:
    namespace = run(kubectl, "--kubeconfig", str(server.kubeconfig), "apply", "-f", str(DEPLOY / "namespace.yaml"))
    assert namespace.returncode == 0, namespace.stderr
    files = [argument for path in MANIFESTS for argument in ("-f", str(path))]
    done = run(kubectl, "--kubeconfig", str(server.kubeconfig), "apply", "--dry-run=server", *files)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == len(list(documents(*MANIFESTS)))


@pytest.mark.slow
@pytest.mark.real
@pytest.mark.parametrize("folder", [".", "scheduler", "controllers"])
def test_kustomize_builds_everything(kubectl: str, folder: str) -> None:
    built = run(kubectl, "kustomize", str(DEPLOY / folder))
    assert built.returncode == 0, built.stderr
    kinds = [each["kind"] for each in yaml.safe_load_all(built.stdout) if each["kind"] != "Namespace"]
    roles = ("ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding")
    assert sorted(set(kinds)) == sorted(["ServiceAccount", "Deployment", *roles])
    assert len(kinds) == len(
        list(documents(*(path for path in MANIFESTS if path.parent.name == (folder if folder != "." else "scheduler"))))
    )
    assert folder == "scheduler" or f"image: example.com/dralloc:{__version__}" in built.stdout


# --- What is installed --------------------------------------------------------------------------------------------


def test_workloads_are_unprivileged_and_observable() -> None:
    found = list(documents(*DEPLOY.glob("*/deployment.yaml")))
    assert len(found) == 2
    for each in found:
        spec = each["spec"]["template"]["spec"]
        (container,) = spec["containers"]
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        ports = {port["name"]: port["containerPort"] for port in container["ports"]}
        assert f"--metrics-address=0.0.0.0:{ports['metrics']}" in container["args"]
        for probe in ("livenessProbe", "readinessProbe"):
            assert container[probe]["httpGet"] == {"path": "/healthz", "port": "metrics"}


@pytest.mark.slow
def test_accounts_and_command_options_exist() -> None:
    accounts = {
        (each["metadata"]["namespace"], each["metadata"]["name"])
        for each in documents(*MANIFESTS)
        if each["kind"] == "ServiceAccount"
    }
    for each in workloads():
        spec = each["spec"]["template"]["spec"]
        assert (each["metadata"]["namespace"], spec["serviceAccountName"]) in accounts
    for each in documents(*DEPLOY.glob("*/deployment.yaml")):
        command, *options = each["spec"]["template"]["spec"]["containers"][0]["args"]
        shown = run(sys.executable, "-m", "dralloc", command, "--help").stdout
        for option in options:
            assert option.partition("=")[0] in shown


# --- The image ----------------------------------------------------------------------------------------------------

CONTAINERFILE = (DEPLOY / "Containerfile").read_text()


def locked(name: str) -> dict[str, str]:
    text = (ROOT / "requirements" / f"{name}.txt").read_text()
    return dict(re.findall(r"^([a-z0-9-]+)==(\S+)", text, re.M))


def test_the_image_has_the_tested_versions_and_a_non_root_user() -> None:
    assert re.search(r"^USER 65532:65532$", CONTAINERFILE, re.M)
    assert re.search(r"^ARG PYTHON=python:\d+\.\d+\.\d+-slim-\w+$", CONTAINERFILE, re.M), "a base that stays the same"
    installs = re.findall(r"pip install .*", CONTAINERFILE)
    assert len(installs) == 2
    assert all("--require-hashes" in each or "--no-deps --no-index" in each for each in installs)
    tested = locked("dev")
    for name in ("runtime", "build"):
        assert locked(name).items() <= tested.items(), f"requirements/{name}.txt: make lock"


def test_the_image_has_all_dependencies() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    for needed, name in (
        (project["project"]["dependencies"], "runtime"),
        (project["build-system"]["requires"], "build"),
    ):
        names = {re.split(r"[<>=;\s]", each)[0].lower() for each in needed}
        assert names <= locked(name).keys()


@pytest.mark.parametrize("driver", DRIVERS, ids=lambda driver: driver.name)
def test_files_of_the_image_build_exist(driver: Path) -> None:
    drivers = (driver.parent / "Containerfile").read_text().replace("${DRIVER}", driver.name)
    for sources in re.findall(r"^COPY (?!--from)(.*) \S+$", f"{CONTAINERFILE}\n{drivers}", re.M):
        for source in sources.split():
            # The wheel: make image builds it before.
            assert source.startswith("dist/") or (ROOT / source).exists(), source


def test_hadolint_has_no_objection() -> None:
    """tests/install/test_image.py builds the image; that takes too long for every change."""
    lint = shutil.which("hadolint", path=str(Path(sys.executable).parent))
    if lint is None:
        pytest.skip("hadolint is packaged for Linux on x86-64 only")
    # Sockets and CDI files of a node belong to root; Debian has one version of a package.
    ignored = ("--ignore", "DL3002", "--ignore", "DL3008")
    done = run(lint, "--no-color", *ignored, "deploy/Containerfile", "examples/drivers/Containerfile")
    assert done.stdout + done.stderr == ""
