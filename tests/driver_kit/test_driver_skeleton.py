"""A new driver is complete and works as it is made; names and directories that cannot be used are refused."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner, Result

from dralloc.cli.main import app
from dralloc.driver_kit.driver_skeleton import project_name, skeleton_files

NAME = "card.example.com"


def new(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["new", "driver", *map(str, arguments)])


def test_everything_that_a_driver_needs_is_there() -> None:
    files = skeleton_files(NAME)
    assert {"driver.py", "pyproject.toml", "README.md", "Containerfile", "cards/card-0", "tests/test_driver.py"} <= set(
        files
    )
    assert {".github/workflows/driver.yml", ".gitignore", "manifests/driver.yaml", "manifests/pod.yaml"} <= set(files)
    for path, text in files.items():
        assert not re.search(r"@[A-Z]+@", text), f"{path} has a placeholder that is not filled in"
        if path.endswith(".py"):
            compile(text, path, "exec")
        if path.endswith((".yaml", ".yml")):
            assert all(yaml.safe_load_all(text))
    assert f'name = "{NAME}"' in files["driver.py"]


def test_where_dralloc_comes_from_is_said_once_for_image_and_workflow() -> None:
    """An index may not have it."""
    files = skeleton_files(NAME)
    assert 'pip install --no-cache-dir "$DRALLOC" .' in files["Containerfile"]
    job = yaml.safe_load(files[".github/workflows/driver.yml"])["jobs"]["test"]
    assert job["env"]["DRALLOC"] == "${{ vars.DRALLOC || 'dralloc' }}"
    (installs,) = [step["run"] for step in job["steps"] if "pip install" in step.get("run", "")]
    assert installs == "pip install \"$DRALLOC\" --editable '.[test]'"
    assert any("driver-test --strict " in step.get("run", "") for step in job["steps"])


def test_the_pod_to_try_it_with_keeps_running() -> None:
    pod = list(yaml.safe_load_all(skeleton_files(NAME)["manifests/pod.yaml"]))[-1]
    assert pod["spec"]["containers"][0]["command"] == ["sh", "-c", "env; exec sleep infinity"]


@pytest.mark.parametrize(
    ("driver", "want"),
    [(NAME, "card-driver"), ("driver.example.com", "driver"), ("3d", "3d-driver"), ("a" * 63, "a" * 50 + "-driver")],
)
def test_the_project_is_named_after_the_driver(driver: str, want: str) -> None:
    assert project_name(driver) == want


@pytest.mark.parametrize("name", ["Card", "card_1", "", "-card", "card..example", "../card", "a" * 64, "card example"])
def test_a_name_that_no_driver_can_have_is_refused(tmp_path: Path, name: str) -> None:
    result = new("--directory", tmp_path / "new", "--", name)
    assert result.exit_code == 2
    assert "cannot be the name of a driver: use at most 63 lower case letters" in result.output
    assert not (tmp_path / "new").exists()


def test_a_name_without_a_domain_is_refused(tmp_path: Path) -> None:
    result = new("fpga", "--directory", tmp_path / "new")
    assert (result.exit_code, (tmp_path / "new").exists()) == (2, False)
    assert (
        "'fpga' has no domain, so another driver may have the same name; use fpga.example.com with a domain of yours"
        in " ".join(result.output.split())
    )


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("precious")
    result = new(NAME, "--directory", tmp_path)
    assert (result.exit_code, "choose another one with --directory" in result.output) == (2, True)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
    result = new(NAME, "--directory", tmp_path / "mine")
    assert (result.exit_code, (tmp_path / "mine").read_text()) == (2, "precious")
    result = new(NAME, "--directory", "/proc/driver-test")
    assert (result.exit_code, "Traceback" in result.output) == (2, False)


@pytest.mark.slow
def test_a_new_driver_passes_its_tests_and_the_kit(tmp_path: Path) -> None:
    directory = tmp_path / "card"
    result = new(NAME, "--directory", directory)
    assert (result.exit_code, "dralloc driver-test --report reports -- python driver.py" in result.output) == (0, True)
    validated = CliRunner().invoke(app, ["validate", str(directory / "manifests")])
    assert validated.exit_code == 0, validated.output
    # Its author has other cards.
    (directory / "cards" / "card-0").rename(directory / "cards" / "fpga-0")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "DRA_"))}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "error"],
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout
