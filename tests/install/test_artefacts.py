"""Wheel and source archive: what is in them, that builds repeat, and that users can install them in any of the usual ways."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import urllib.request
import zipfile
from pathlib import Path

import pytest

from dralloc import __version__
from dralloc.cli.product_version import RECORD, commit_of_clone
from dralloc.web.page import CONTENT_TYPES, FIRST
from tests.support.child_process import child_process
from tests.support.cluster_process import ready
from tests.support.installation import PREBUILT_ONLY, build_dist, interpreters, only, outside, run, version_line
from tests.support.source_tree import ROOT

pytestmark = pytest.mark.slow

PAGE = ROOT / "src" / "dralloc" / "web" / "static"
UV = [sys.executable, "-m", "uv", "--quiet"]
THIS_PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
# Beside `src`, what a wheel is built from and what its reader should have.
AROUND_THE_SOURCE = {
    *("pyproject.toml", "hatch_build.py", "PKG-INFO", ".gitignore", "README.md", "CHANGELOG.md", "LICENSE"),
    *(str(path.relative_to(ROOT)) for folder in ("proto", "requirements") for path in (ROOT / folder).iterdir()),
}


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Wheel, source archive and checksums; the archives of the kubectl plugin have their own tests."""
    return build_dist(tmp_path_factory.mktemp("dist"), "--platform")


@pytest.fixture(scope="module")
def sources() -> set[str]:
    """The files of the package, new ones that git does not know yet included."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "src/dralloc"]
    return {path for path in run(command, ROOT).splitlines() if (ROOT / path).exists()}


# --- Contents -----------------------------------------------------------------------------------------------------


def test_a_wheel_has_every_file_of_the_package_and_nothing_else(dist: Path, sources: set[str]) -> None:
    names = set(zipfile.ZipFile(only(dist, "*.whl")).namelist())
    assert commit_of_clone(ROOT) in version_line(dist)
    packaged = {name for name in names if not name.startswith(f"dralloc-{__version__}.dist-info/")}
    assert packaged == {path.removeprefix("src/") for path in sources} | {f"dralloc/{RECORD}"}
    assert f"dralloc-{__version__}.dist-info/licenses/LICENSE" in names


def test_a_source_archive_has_what_a_wheel_is_built_from(dist: Path, sources: set[str]) -> None:
    with tarfile.open(only(dist, "*.tar.gz")) as archive:
        names = {name.removeprefix(f"dralloc-{__version__}/") for name in archive.getnames()}
    assert names == sources | AROUND_THE_SOURCE | {f"src/dralloc/{RECORD}"}


def test_a_wheel_from_the_source_archive_is_the_same_wheel(dist: Path, tmp_path: Path) -> None:
    """There is no clone around it that knows the commit, and the user's umask is another one."""
    script = f"umask 077; tar xzf {only(dist, '*.tar.gz')}; cd dralloc-*; exec {sys.executable} -m hatchling build -t wheel -d ../again"
    run(["sh", "-c", script], tmp_path, {**os.environ, "SOURCE_DATE_EPOCH": run(["git", "log", "-1", "--format=%ct"], ROOT).strip()})  # fmt: skip
    wheel = only(dist, "*.whl")
    assert (tmp_path / "again" / wheel.name).read_bytes() == wheel.read_bytes()


def test_two_builds_are_equal_and_have_the_checksums_that_are_listed(dist: Path, tmp_path: Path) -> None:
    again = build_dist(tmp_path / "again", "--platform")
    assert (again / "SHA256SUMS").read_text() == (dist / "SHA256SUMS").read_text()
    checked = run(["sha256sum", "--check", "SHA256SUMS"], again).splitlines()
    assert sorted(checked) == sorted(f"{path.name}: OK" for path in again.iterdir() if path.name != "SHA256SUMS")


# --- Installation -------------------------------------------------------------------------------------------------


PROFILES = "from dralloc.node.simulated.profiles import profile_names; print(*profile_names())"


@pytest.mark.parametrize("python", sorted(interpreters()))
def test_a_wheel_in_an_empty_environment_of_each_python(dist: Path, tmp_path: Path, python: str) -> None:
    environment = outside(tmp_path, **PREBUILT_ONLY)
    run([*UV, "venv", "--python", str(interpreters()[python]), "empty"], tmp_path, environment)
    run([*UV, "pip", "install", "--python", "empty", str(only(dist, "*.whl"))], tmp_path, environment)
    assert run(["empty/bin/dralloc", "--version"], tmp_path, environment) == version_line(dist)
    found = run(["empty/bin/dralloc", "validate", "-o", "json", str(ROOT / "examples" / "demo")], tmp_path, environment)
    assert json.loads(found)["errors"] == 0
    assert run(["empty/bin/python", "-c", PROFILES], tmp_path, environment).split() == ["cpu", "gpu", "mig", "nic", "tpu"]  # fmt: skip
    if python == THIS_PYTHON:
        check_the_page(tmp_path, environment)


def check_the_page(directory: Path, environment: dict[str, str]) -> None:
    """All files of the page are served, by a cluster with a profile of the package."""
    command = ["empty/bin/dralloc", "up", "--ephemeral", "--nodes", "mig=1", "--one-process", "--port", "0"]
    with child_process(command, cwd=directory, env=environment, stdout=subprocess.PIPE, text=True) as process:
        page = f"{ready(process).url}/ui/"
        for file in (each for each in PAGE.rglob("*") if each.suffix in CONTENT_TYPES):
            place = "" if file.name == FIRST else str(file.relative_to(PAGE))
            with urllib.request.urlopen(page + place) as answer:
                assert answer.read() == file.read_bytes(), file
        process.terminate()
        assert process.wait(60) == 0


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_pip(dist: Path, tmp_path: Path) -> None:
    """Slower than uv by far. In every run, `make install` uses it."""
    environment = outside(tmp_path, **PREBUILT_ONLY)
    run([sys.executable, "-m", "venv", "empty"], tmp_path, environment)
    run(["empty/bin/pip", "install", "--quiet", str(only(dist, "*.whl"))], tmp_path, environment)
    assert run(["empty/bin/dralloc", "--version"], tmp_path, environment) == version_line(dist)


def test_the_source_archive_in_an_empty_environment(dist: Path, tmp_path: Path) -> None:
    """Only our own package is built, which needs no compiler."""
    environment = outside(tmp_path)
    run([*UV, "venv", "empty"], tmp_path, environment)
    run([*UV, "pip", "install", "--python", "empty", str(only(dist, "*.tar.gz"))], tmp_path, environment)
    assert run(["empty/bin/dralloc", "--version"], tmp_path, environment) == version_line(dist)


def test_pipx(dist: Path, tmp_path: Path) -> None:
    environment = outside(
        tmp_path, **PREBUILT_ONLY, PIPX_HOME=str(tmp_path / "pipx"), PIPX_BIN_DIR=str(tmp_path / "bin")
    )
    run([sys.executable, "-m", "pipx", "install", str(only(dist, "*.whl"))], tmp_path, environment)
    assert sorted(path.name for path in (tmp_path / "bin").iterdir()) == [
        "dralloc",
        "kubectl-dra",
        "kubectl_complete-dra",
    ]
    assert run(["bin/dralloc", "--version"], tmp_path, environment) == version_line(dist)


def test_uvx(dist: Path, tmp_path: Path) -> None:
    environment = outside(tmp_path, **PREBUILT_ONLY)
    command = [*UV, "tool", "run", "--from", str(only(dist, "*.whl")), "dralloc", "--version"]
    assert run(command, tmp_path, environment) == version_line(dist)


# --- The commit ---------------------------------------------------------------------------------------------------


def git(directory: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=n", "-c", "user.email=e@example.com", "-c", "init.defaultBranch=main"]
    subprocess.run(["git", "-C", str(directory), *identity, *arguments], check=True, capture_output=True)


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    (tmp_path / "file").write_text("1")
    git(tmp_path, "init")
    git(tmp_path, "add", "file")
    git(tmp_path, "commit", "-m", "first")
    git(tmp_path, "tag", "v1.2.3")
    return tmp_path


def test_the_commit_of_a_clone_says_whether_files_were_changed(clone: Path) -> None:
    head = run(["git", "rev-parse", "--short=12", "HEAD"], clone).strip()
    assert commit_of_clone(clone) == head
    (clone / "file").write_text("2")
    assert commit_of_clone(clone) == f"{head}-dirty"


def test_a_repository_around_it_or_of_a_hook_is_another_project(
    clone: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    (clone / "vendored").mkdir()
    assert commit_of_clone(clone / "vendored") == ""
    monkeypatch.setenv("GIT_DIR", str(ROOT / ".git"))
    assert commit_of_clone(clone) == run(["git", "--git-dir", ".git", "rev-parse", "--short=12", "HEAD"], clone).strip()
    assert commit_of_clone(tmp_path_factory.mktemp("no-clone")) == ""


def test_without_git_the_commit_is_unknown(clone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    assert commit_of_clone(clone) == ""
