"""The Helm chart, rendered and installed by Helm itself. Its objects are the plain manifests; values change them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from dralloc import __version__
from dralloc.primitives.features import FeatureGates
from dralloc.scheduler.leader_loop import lease_of
from tests.support.server_process import ServerProcess, server_process

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
CHART = DEPLOY / "chart"
HELM = Path(sys.executable).parent / "helm"
# Kubernetes versions that the chart is for.
VERSIONS = ("1.34.0", "1.35.0", "1.36.0", "1.37.0")

pytestmark = pytest.mark.slow


def helm(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    if not HELM.exists():
        pytest.skip("needs the package helm-binary: make setup")
    return subprocess.run([str(HELM), *arguments], capture_output=True, text=True, check=False, timeout=100, **options)


def render(*arguments: str, release: str = "dralloc", namespace: str = "dralloc-system") -> list[dict[str, Any]]:
    version = () if "--kube-version" in arguments else ("--kube-version", VERSIONS[-1])
    done = helm("template", release, str(CHART), "--namespace", namespace, *version, *arguments)
    assert done.returncode == 0, done.stderr
    return [document for document in yaml.safe_load_all(done.stdout) if document]


def plain(*folders: str) -> list[dict[str, Any]]:
    files = [path for folder in folders for path in sorted((DEPLOY / folder).glob("*.yaml"))]
    documents = [each for path in files if path.name != "kustomization.yaml" for each in read_all(path)]
    for each in documents:
        if each["kind"] == "Deployment":
            container_of(each)["image"] = f"example.com/dralloc:{__version__}"
    return documents


def read_all(path: Path) -> Iterator[dict[str, Any]]:
    return (each for each in yaml.safe_load_all(path.read_text()) if each)


def container_of(deployment: dict[str, Any]) -> dict[str, Any]:
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    result: dict[str, Any] = container
    return result


def args_of(documents: list[dict[str, Any]], name: str) -> list[str]:
    found = next(each for each in documents if each["kind"] == "Deployment" and each["metadata"]["name"] == name)
    return list(container_of(found)["args"])


def by_name(documents: list[dict[str, Any]]) -> dict[tuple[str, str, str], dict[str, Any]]:
    named = {
        (each["kind"], each["metadata"].get("namespace", ""), each["metadata"]["name"]): each for each in documents
    }
    assert len(named) == len(documents)
    return named


def test_helm_finds_no_fault() -> None:
    done = helm("lint", "--strict", str(CHART), "--set", "controllers.enabled=true")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("version", VERSIONS)
def test_the_default_release_is_the_plain_installation(version: str) -> None:
    assert by_name(render("--kube-version", version)) == by_name(plain("scheduler"))
    both = render("--kube-version", version, "--set", "controllers.enabled=true")
    assert by_name(both) == by_name(plain("scheduler", "controllers"))


def test_an_older_kubernetes_is_refused() -> None:
    done = helm("template", "dralloc", str(CHART), "--kube-version", "1.33.0")
    assert "requires kubeVersion" in done.stderr


def test_values_change_the_objects() -> None:
    values = (
        *("--set", "scheduler.name=team-a", "--set", "scheduler.pools={gpu.example.com,nic.example.com/rack-*}"),
        *("--set", "scheduler.replicas=1", "--set", "image.repository=registry.example/x", "--set", "image.tag=v7"),
        *("--set", "scheduler.resources.limits.memory=4Gi", "--set", "scheduler.extraArgs={--bindings=8}"),
        *("--set", "controllers.enabled=true", "--set", "controllers.only={jobs,claim-lifecycle}"),
    )
    rendered = render(*values, release="team", namespace="devices")
    assert args_of(rendered, "team-scheduler") == [
        *("scheduler", "--leader-elect", "--metrics-address=0.0.0.0:8080"),
        *("--pools=gpu.example.com", "--pools=nic.example.com/rack-*", "--pool-leases=devices"),
        *("--scheduler-name=team-a", "--bindings=8"),
    ]
    assert args_of(rendered, "team-controllers")[-1] == "--only=jobs,claim-lifecycle"
    objects = by_name(rendered)
    deployment = objects["Deployment", "devices", "team-scheduler"]
    assert deployment["spec"]["replicas"] == 1
    assert container_of(deployment)["image"] == "registry.example/x:v7"
    assert container_of(deployment)["resources"]["limits"] == {"memory": "4Gi"}
    leases = objects["Role", "kube-system", "team-scheduler-lease"]["rules"][1]["resourceNames"]
    assert leases == [lease_of({"team-a"}).name]
    assert "dralloc-system" not in json.dumps(rendered)
    for each in rendered:
        for subject in each.get("subjects", ()):
            assert ("ServiceAccount", subject["namespace"], subject["name"]) in objects


@pytest.mark.parametrize("value", ["scheduler.replica=1", "scheduler.replicas=many", "image.tag=", "contoller.x=1"])
def test_wrong_values_are_refused(value: str) -> None:
    done = helm("template", "dralloc", str(CHART), "--kube-version", VERSIONS[-1], "--set", value)
    assert done.returncode != 0
    assert "values don't meet the specifications of the schema" in done.stderr


def test_the_version_is_that_of_the_project() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    assert values["image"]["tag"] == chart["appVersion"] == __version__


# --- On a server --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with server_process(tmp_path_factory.mktemp("server")) as running:
        yield running


@pytest.mark.real
def test_helm_installs_upgrades_and_removes_it(server: ServerProcess, tmp_path: Path) -> None:
    """Helm is a client of the API server like any other: it keeps releases in secrets, and reads OpenAPI to validate."""
    environment = {"KUBECONFIG": str(server.kubeconfig), "HOME": str(tmp_path)}
    place = ("--namespace", "devices")

    def done(*arguments: str) -> str:
        result = helm(*arguments, *place, env=environment)
        assert result.returncode == 0, result.stderr
        return result.stdout

    done("install", "team", str(CHART), "--create-namespace")
    assert [each["status"] for each in json.loads(done("list", "--output", "json"))] == ["deployed"]
    done("upgrade", "team", str(CHART), "--set", "scheduler.replicas=1", "--set", "controllers.enabled=true")
    manifest = [each for each in yaml.safe_load_all(done("get", "manifest", "team")) if each]
    assert sum(each["kind"] == "Deployment" for each in manifest) == 2
    done("rollback", "team", "1")
    done("uninstall", "team")
    assert json.loads(done("list", "--all", "--output", "json")) == []


# --- Versions of Kubernetes ---------------------------------------------------------------------------------------


def test_the_gates_that_the_documents_name_for_each_version_are_accepted() -> None:
    table = (ROOT / "docs" / "real-cluster.md").read_text()
    (row,) = (line for line in table.splitlines() if line.startswith("| `--feature-gates` of our scheduler"))
    settings = [cell.strip().strip("`") for cell in row.strip("|").split("|")[1:]]
    assert len(settings) == len(VERSIONS)
    for each in settings:
        if not each.startswith("as "):
            assert "DRAReservedForWorkloads" not in FeatureGates.parse(each)
