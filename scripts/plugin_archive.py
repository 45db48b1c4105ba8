"""The archive of `kubectl dra` for one platform: dralloc with all packages that it needs, for every supported Python.

krew unpacks an archive and links to an executable in it; it installs nothing. So everything but Python itself is
inside: packages without compiled code once, those with compiled code for each version of Python. Nothing of another
platform is run, so one machine builds all archives.
"""

from __future__ import annotations

import gzip
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
PYTHONS: Final = ("3.11", "3.12", "3.13", "3.14")
# krew's name of a platform, and uv's. Others lack prebuilt packages.
PLATFORMS: Final = {
    "linux-amd64": "x86_64-unknown-linux-gnu",
    "linux-arm64": "aarch64-unknown-linux-gnu",
    "darwin-arm64": "aarch64-apple-darwin",
}
FILES: Final = (*(ROOT / "release" / "kubectl-plugin" / name for name in ("kubectl-dra", "start.py")), ROOT / "LICENSE")
# What only an installation needs, or differs from build to build.
OMITTED: Final = ("bin", ".lock", "direct_url.json", "uv_cache.json", "REQUESTED", "INSTALLER", "RECORD")


@dataclass(frozen=True, slots=True)
class PluginArchive:
    platform: str
    pythons: tuple[str, ...]
    epoch: int

    def build(self, wheel: Path, directory: Path) -> Path:
        """Writes the archive with this wheel of dralloc into the directory."""
        version = wheel.name.split("-")[1]
        archive = directory / f"kubectl-dra-{version}-{self.platform}.tar.gz"
        with tempfile.TemporaryDirectory() as temporary:
            tree = Path(temporary, "tree")
            tree.mkdir()
            for file in FILES:
                shutil.copy(file, tree / file.name)
            for python in self.pythons:
                installed = Path(temporary, python)
                self._install(python, wheel, installed)
                _distribute(installed, tree / "packages", f"cpython-{python.replace('.', '')}")
            self._write(tree, archive)
        return archive

    def _install(self, python: str, wheel: Path, target: Path) -> None:
        common = ("--python-version", python, "--python-platform", PLATFORMS[self.platform], "--target", str(target))
        locked = ("--require-hashes", "--requirement", str(ROOT / "requirements" / "runtime.txt"))
        for packages in (locked, (str(wheel),)):
            command = ("uv", "pip", "install", "--quiet", "--python", sys.executable, *common, *packages)
            subprocess.run(
                [sys.executable, "-m", *command, "--no-deps", "--only-binary", ":all:", "--link-mode", "copy"],
                check=True,
            )

    def _write(self, tree: Path, archive: Path) -> None:
        """Packs the tree in the order of names, without owners, with the time of the commit."""

        def normalized(member: tarfile.TarInfo) -> tarfile.TarInfo:
            member.uid = member.gid = 0
            member.uname = member.gname = ""
            member.mtime = self.epoch
            member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
            return member

        with (
            archive.open("wb") as file,
            gzip.GzipFile("", "wb", compresslevel=6, fileobj=file, mtime=self.epoch) as packed,
            tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT) as writer,
        ):
            for path in sorted(tree.rglob("*")):
                writer.add(path, str(path.relative_to(tree)), recursive=False, filter=normalized)


def _distribute(installed: Path, packages: Path, tag: str) -> None:
    """Moves each distribution to the packages of all versions of Python, or to those of this one."""
    for metadata in installed.glob("*.dist-info"):
        place = packages / (tag if _is_for_one_python(metadata) else "any")
        for file in _files_of(installed, metadata):
            moved = place / file.relative_to(installed)
            moved.parent.mkdir(parents=True, exist_ok=True)
            # Another version of Python may have brought it already.
            file.replace(moved)
    # Tells the launcher that this version is supported, even if no package had compiled code.
    (packages / tag).mkdir(parents=True, exist_ok=True)


def _is_for_one_python(metadata: Path) -> bool:
    tags = [line.split()[1] for line in (metadata / "WHEEL").read_text().splitlines() if line.startswith("Tag:")]
    return not any(tag.split("-")[1] in ("none", "abi3") for tag in tags)


def _files_of(installed: Path, metadata: Path) -> Iterator[Path]:
    for line in (metadata / "RECORD").read_text().splitlines():
        relative = Path(line.rsplit(",", 2)[0].strip('"'))
        if not {*relative.parts} & {*OMITTED, ".."} and (installed / relative).is_file():
            yield installed / relative
