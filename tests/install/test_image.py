"""deploy/Containerfile is built without a daemon, and its image runs as a user who is not root."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.base_image import write_root
from tests.support.installation import build_dist, version_line
from tests.support.source_tree import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.real, pytest.mark.nightly, pytest.mark.timeout(900)]

# What the build reads of the project.
CONTEXT = ("requirements/runtime.txt", ".dockerignore", "deploy/Containerfile")


class Buildah:
    """The builder with a storage of its own. No container of it is more than a changed root directory."""

    def __init__(self, directory: Path) -> None:
        places = ("--root", str(directory / "images"), "--runroot", str(directory / "run"))
        self._command = ["buildah", "--storage-driver", "vfs", *places]

    def __call__(self, *arguments: str) -> str:
        environment = {**os.environ, "BUILDAH_ISOLATION": "chroot"}
        done = subprocess.run(
            [*self._command, *arguments], env=environment, capture_output=True, text=True, check=False, timeout=800
        )
        assert done.returncode == 0, f"buildah {' '.join(arguments)}\n{done.stdout}{done.stderr}"
        return done.stdout.strip()


@pytest.fixture
def buildah(tmp_path: Path) -> Iterator[Buildah]:
    if shutil.which("buildah") is None or os.getuid() != 0:
        pytest.skip("needs buildah (of Debian) and root")
    builder = Buildah(tmp_path / "buildah")
    yield builder
    builder("rm", "--all")


def base_image(buildah: Buildah, root: Path) -> str:
    """What takes the place of the base image, which a test cannot download."""
    write_root(root)
    container = buildah("from", "scratch")
    buildah("add", "--quiet", container, str(root), "/")
    return buildah("commit", "--quiet", "--rm", container)


def test_the_image_runs_without_root(buildah: Buildah, tmp_path: Path) -> None:
    context = tmp_path / "context"
    build_dist(context / "dist", "--platform")
    for file in CONTEXT:
        (context / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / file, context / file)
    (context / "not-for-images").touch()
    base = base_image(buildah, tmp_path / "root")
    image = buildah(
        *("build", "--quiet", "--pull-never", "--file", str(context / "deploy" / "Containerfile")),
        *("--build-arg", f"PYTHON={base}", *registry_settings(tmp_path), str(context)),
    )
    container = buildah("from", "--pull-never", image)
    told = buildah("run", container, "--", "dralloc", "--version")
    assert f"{told}\n" == version_line(context / "dist")
    identity = "import os, dralloc; print(os.getuid(), os.getgid(), os.access(dralloc.__file__, os.W_OK))"
    assert buildah("run", container, "--", "python", "-c", identity) == "65532 65532 False"
    described = "{{.OCIv1.Config.Entrypoint}} {{.OCIv1.Config.Cmd}} {{.OCIv1.Config.User}}"
    assert buildah("inspect", "--type", "image", "--format", described, image) == "[dralloc] [--help] 65532:65532"


def registry_settings(directory: Path) -> list[str]:
    """How this machine reaches the package registry, for the build alone."""
    settings = {
        name: value for name, value in os.environ.items() if name.startswith("PIP_") and name != "PIP_FIND_LINKS"
    }
    lines = [f"{name.removeprefix('PIP_').lower().replace('_', '-')} = {value}\n" for name, value in settings.items()]
    (directory / "pip.conf").write_text(f"[global]\nno-compile = true\n{''.join(lines)}")
    return ["--volume", f"{directory / 'pip.conf'}:/etc/pip.conf:ro"]
