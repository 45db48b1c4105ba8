"""`kubectl dra`: the program of the wheel, and the archive that krew unpacks, called by real kubectls."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from dralloc import __version__
from scripts.build_dist import krew_manifest
from scripts.plugin_archive import PLATFORMS, PYTHONS
from tests.support.installation import PROGRAMS, build_dist, environment_of, only, run
from tests.support.source_tree import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.real]

MACHINES = {"x86_64": "amd64", "aarch64": "arm64", "arm64": "arm64"}
THIS_PLATFORM = f"{platform.system().lower()}-{MACHINES.get(platform.machine())}"
THIS_PYTHON = ".".join(platform.python_version_tuple()[:2])


def kubectls() -> set[str]:
    """The oldest supported version, and the one that is first on the path."""
    debian = ROOT / ".tools" / "kubectl-debian" / "usr" / "bin" / "kubectl"
    found = {*filter(None, [shutil.which("kubectl"), str(debian) if debian.exists() else None])}
    if not found:
        pytest.skip("needs kubectl: scripts/install-system-tools installs it as root on Debian")
    return found


def call(kubectl: str, arguments: str, home: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [kubectl, "dra", *arguments.split()],
        cwd=home,
        env=environment_of(home, COLUMNS="200", **variables),
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )


# --- The program --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        ("--version", 0, f"dralloc {__version__} (commit "),
        ("--kubeconfig .kube/config --context dralloc -nml get pods", 0, "train-0"),
        ("--context dralloc top devices --summary", 0, "gpu.example.com"),
        ("get pods --context nonsense", 2, "kubectl dra: kubeconfig .* has no context named 'nonsense'"),
        ("explain --help", 0, "Usage: kubectl dra explain .*kubectl dra explain pod ml/train-0"),
    ],
)
def test_kubectl_runs_the_plugin(home: Path, arguments: str, code: int, says: str) -> None:
    done = call(min(kubectls()), arguments, home)
    assert (done.returncode, bool(re.search(says.replace("(", r"\("), done.stdout + done.stderr, re.S))) == (code, True), done  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        ("--help", 0, "Usage: kubectl dra .*kubectl dra up\\s"),
        ("fit --help", 0, "Usage: kubectl dra fit .*see kubectl dra record"),
        ("explain", 2, "Usage: kubectl dra explain "),
        ("explain pod/x", 2, "Did you mean: kubectl dra explain pod x"),
        ("version", 2, "Did you mean: kubectl dra --version"),
        ("-n ml", 2, "No such option: -n"),
        ("-n", 2, "No such option: -n"),
        ("--namespace=ml top devices", 2, "No such option: --namespace"),
        ("--kubeconfig /nonexistent get pods", 2, "kubectl dra: kubeconfig /nonexistent does not exist"),
        ("--kubeconfig=/nonexistent -nml explain pod x", 2, "kubectl dra: kubeconfig /nonexistent does not exist"),
    ],
)
def test_texts_name_commands_as_the_user_calls_them(arguments: str, code: int, says: str) -> None:
    done = subprocess.run(
        [str(PROGRAMS / "kubectl-dra"), *arguments.split()],
        env={**os.environ, "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, bool(re.search(says, done.stdout + done.stderr, re.S))) == (code, True), done


# --- The archive --------------------------------------------------------------------------------------------------


def test_krew_s_archive(home: Path, tmp_path: Path) -> None:
    """One test, because it takes longest to build the archive."""
    if THIS_PLATFORM not in PLATFORMS:
        pytest.skip(f"no archive for {THIS_PLATFORM}")
    choice = ("--platform", THIS_PLATFORM, "--python", THIS_PYTHON, "--downloads", "https://downloads.example.com/v1/")
    dist = build_dist(tmp_path / "dist", *choice)
    check_files_of_the_build(dist)
    check_contents(only(dist, "kubectl-dra-*"))
    on_path = install_as_krew_does(dist, tmp_path / "krew")
    for kubectl in kubectls():
        check_that_it_runs(kubectl, on_path, home)
        check_that_it_names_the_python_that_it_needs(kubectl, on_path, tmp_path / kubectl.replace("/", "-"))


def check_files_of_the_build(dist: Path) -> None:
    manifest = yaml.safe_load((dist / "dra.yaml").read_text())
    check_manifest(manifest)
    (described,) = manifest["spec"]["platforms"]
    lines = (dist / "SHA256SUMS").read_text().splitlines()
    listed = {name: checksum for checksum, name in map(str.split, lines)}
    assert described["uri"].startswith("https://downloads.example.com/v1/kubectl-dra-")
    assert listed[Path(described["uri"]).name] == described["sha256"]
    assert set(listed) == {path.name for path in dist.iterdir()} - {"SHA256SUMS"}


def check_contents(packed: Path) -> None:
    with tarfile.open(packed) as archive:
        members = archive.getmembers()
    names = {member.name for member in members}
    packages = {"any", f"cpython-{THIS_PYTHON.replace('.', '')}"}
    assert {name.partition("/")[0] for name in names} == {"kubectl-dra", "start.py", "LICENSE", "packages"}
    assert {name.split("/")[1] for name in names if name.startswith("packages/")} == packages
    assert not [name for name in names if name.endswith((".pyc", "/RECORD", "direct_url.json"))]
    assert {(member.uid, member.gid, member.mode & 0o022) for member in members} == {(0, 0, 0)}


def install_as_krew_does(dist: Path, root: Path) -> Path:
    """The directory that krew puts on the path, after it has done what the manifest says: unpack, link."""
    (described,) = yaml.safe_load((dist / "dra.yaml").read_text())["spec"]["platforms"]
    store = root / "store" / "dra" / f"v{__version__}"
    with tarfile.open(dist / Path(described["uri"]).name) as archive:
        archive.extractall(store, filter="data")
    (root / "bin").mkdir()
    (root / "bin" / "kubectl-dra").symlink_to(Path("..", "store", "dra", f"v{__version__}", described["bin"]))
    return root / "bin"


def check_that_it_runs(kubectl: str, on_path: Path, home: Path) -> None:
    """With a Python of the path; settings for the user's own programs do not matter."""
    path = f"{on_path}{os.pathsep}{os.environ['PATH']}"
    variables = {"PATH": path, "PYTHONPATH": "/nonexistent", "PYTHONHOME": "/nonexistent"}
    version = call(kubectl, "--version", home, **variables)
    assert version.stdout.startswith(f"dralloc {__version__} (commit "), version
    assert "train-0" in call(kubectl, "get pods -n ml", home, **variables).stdout


def check_that_it_names_the_python_that_it_needs(kubectl: str, on_path: Path, programs: Path) -> None:
    programs.mkdir()
    for program in ("sh", "dirname", "readlink"):
        (programs / program).symlink_to(str(shutil.which(program)))
    done = call(kubectl, "--version", programs, PATH=f"{on_path}{os.pathsep}{programs}")
    assert done.returncode == 2, done
    assert f"install one of the versions {THIS_PYTHON} (as python3" in done.stderr


# --- The manifest -------------------------------------------------------------------------------------------------


def check_manifest(manifest: dict[str, Any]) -> None:
    """What krew requires of a manifest (its `pkg/index/validation`), and of names in its index."""
    assert manifest["apiVersion"] == "krew.googlecontainertools.github.com/v1alpha2"
    assert manifest["kind"] == "Plugin"
    assert re.fullmatch(r"[\w-]+", manifest["metadata"]["name"])
    spec = manifest["spec"]
    assert re.fullmatch(r"v\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?", spec["version"])
    assert 0 < len(spec["shortDescription"]) <= 50
    assert "\n" not in spec["shortDescription"]
    assert spec["platforms"]
    for each in spec["platforms"]:
        assert set(each["selector"]["matchLabels"]) == {"os", "arch"}
        assert re.fullmatch(r"https://\S+\.(tar\.gz|zip)", each["uri"])
        assert re.fullmatch(r"[0-9a-f]{64}", each["sha256"])
        assert each["bin"]
        assert not Path(each["bin"]).is_absolute()


def test_a_release_has_every_platform_once(tmp_path: Path) -> None:
    archive = tmp_path / "kubectl-dra.tar.gz"
    archive.touch()
    manifest = krew_manifest(__version__, dict.fromkeys(PLATFORMS, archive), "https://example.com")
    check_manifest(manifest)
    labels = [each["selector"]["matchLabels"] for each in manifest["spec"]["platforms"]]
    assert [f"{each['os']}-{each['arch']}" for each in labels] == list(PLATFORMS)
    for python in PYTHONS:
        assert run(["grep", f"python{python}", "release/kubectl-plugin/kubectl-dra"], ROOT)
