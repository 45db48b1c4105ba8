"""The files around the code: hooks and workflows parse, and run the same commands as `make check` and `.ci/run`."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from dralloc import __version__
from tests.support.source_tree import ROOT

MAKEFILE = (ROOT / "Makefile").read_text()
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def prerequisites(target: str) -> list[str]:
    line = re.search(rf"^{target}:(.*)$", MAKEFILE, re.M)
    assert line, f"the Makefile has no target {target}"
    return line[1].split()


def commands_of(workflow: Path) -> list[str]:
    """Every `run` of a workflow, with each value of a matrix in its place."""
    found: list[str] = []
    jobs: dict[str, Any] = yaml.safe_load(workflow.read_text())["jobs"]
    for job in jobs.values():
        runs = [step["run"] for step in job["steps"] if "run" in step]
        matrix = job.get("strategy", {}).get("matrix", {}).get("run", [])
        found += [*runs, *matrix]
    return found


@pytest.mark.parametrize(
    "path",
    [*ROOT.glob(".*.yaml"), *(ROOT / ".github").rglob("*.yml")],
    ids=lambda path: str(path.relative_to(ROOT)),
)
def test_yaml_files_parse(path: Path) -> None:
    assert isinstance(yaml.safe_load(path.read_text()), dict)


def test_hooks_run_what_make_check_runs() -> None:
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())
    assert [repository["repo"] for repository in config["repos"]] == ["local"], "hooks download nothing"
    hooks = [hook for repository in config["repos"] for hook in repository["hooks"]]
    assert [hook["entry"] for hook in hooks] == [f"make {target}" for target in prerequisites("check")]


def test_every_change_runs_the_whole_verification() -> None:
    check = ROOT / ".github" / "workflows" / "check.yml"
    # YAML 1.1 reads the key "on" as true.
    assert set(yaml.safe_load(check.read_text())[True]) == {"push", "pull_request"}
    assert ".ci/run" in commands_of(check)


def test_ci_runs_demo_check_and_test() -> None:
    script = (ROOT / ".ci" / "run").read_text()
    assert re.findall(r"^make (\w+)", script, re.M) == ["demo", "check", "test"]


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_workflows_call_targets_that_exist(workflow: Path) -> None:
    for command in commands_of(workflow):
        for target in re.findall(r"^make (\w+)", command, re.M):
            prerequisites(target)
        if command.startswith("make "):
            for variable in re.findall(r" ([A-Z]+)=", command):
                assert f"\n{variable} ?= " in MAKEFILE, f"the Makefile does not read {variable}"


def test_locked_packages_are_installed_as_they_are_locked() -> None:
    """A resolver also looks at releases that came later: pip 23 refuses them for lack of a hash when extras are asked for."""
    containerfile = (ROOT / "deploy" / "Containerfile").read_text()
    options = MAKEFILE.partition("PIP := ")[2].splitlines()[0]
    commands = re.findall(r"^.*--require-hashes.*$", f"{MAKEFILE.replace('$(PIP)', options)}\n{containerfile}", re.M)
    assert len(commands) == 3, "development, runtime, image"
    assert all("--no-deps" in command for command in commands)


def test_the_locked_packages_are_all_that_is_needed() -> None:
    checked = subprocess.run([sys.executable, "-m", "pip", "check"], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout


def test_manifests_and_pages_name_the_version_of_the_package() -> None:
    """Files that no program reads our version for; a release changes `__version__`, and this test says where else."""
    naming = re.compile(r"(?:example\.com/dralloc:|\b(?:newTag|tag|version|appVersion): )(\d+\.\d+\.\d+)")
    files = [path for folder in ("deploy", "examples/drivers", "docs") for path in (ROOT / folder).rglob("*")]
    named = {
        str(path.relative_to(ROOT)): versions
        for path in files
        if path.suffix in (".yaml", ".md", "") and path.is_file() and (versions := naming.findall(path.read_text()))
    }
    assert "deploy/chart/Chart.yaml" in named
    assert {path: versions for path, versions in named.items() if {*versions} != {__version__}} == {}
