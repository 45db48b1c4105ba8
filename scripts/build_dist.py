"""Builds what a release consists of into a directory: wheel, source archive, kubectl plugins, krew manifest, checksums.

`make dist` calls it, and so do the release workflow and the tests of installation. Two builds of a commit are equal byte
by byte: times are those of the commit.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from scripts.plugin_archive import PLATFORMS, PYTHONS, PluginArchive

ROOT: Final = Path(__file__).parents[1]
CHECKSUMS: Final = "SHA256SUMS"
MANIFEST: Final = "dra.yaml"


def main() -> None:
    arguments = _arguments()
    directory: Path = arguments.directory.resolve()
    if arguments.only_checksums:
        write_checksums(directory)
        return
    directory.mkdir(parents=True, exist_ok=True)
    for earlier in files_of_release(directory):
        earlier.unlink()
    os.environ["SOURCE_DATE_EPOCH"] = epoch = _commit_time()
    wheel = build_wheel_and_source(directory)
    archives = {
        platform: PluginArchive(platform, tuple(arguments.python), int(epoch)).build(wheel, directory)
        for platform in arguments.platform
    }
    if archives:
        manifest = krew_manifest(wheel.name.split("-")[1], archives, arguments.downloads)
        (directory / MANIFEST).write_text(yaml.safe_dump(manifest, sort_keys=False, width=120))
    write_checksums(directory)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m scripts.build_dist", description=__doc__)
    parser.add_argument(
        "--directory", type=Path, default=ROOT / "dist", help="where to write; removes an earlier build"
    )
    parser.add_argument(
        "--platform", nargs="*", choices=PLATFORMS, default=list(PLATFORMS), help="of the kubectl plugin"
    )
    parser.add_argument(
        "--python", nargs="+", choices=PYTHONS, default=list(PYTHONS), help="that the plugin works with"
    )
    parser.add_argument(
        "--downloads",
        default="https://example.com/dralloc",
        help="the address that users download the files from; in the krew manifest",
    )
    parser.add_argument("--only-checksums", action="store_true", help="of the files that are there; build nothing")
    return parser.parse_args()


def _commit_time() -> str:
    """The time of the commit in seconds; the one that is set, or of an archive without history, stays."""
    if known := os.environ.get("SOURCE_DATE_EPOCH"):
        return known
    command = ["git", "-C", str(ROOT), "log", "-1", "--format=%ct"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def build_wheel_and_source(directory: Path) -> Path:
    """Builds both with hatchling; returns the wheel."""
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-d", str(directory)], cwd=ROOT, check=True)
    (wheel,) = directory.glob("dralloc-*.whl")
    return wheel


def files_of_release(directory: Path) -> list[Path]:
    """The files of a release in the directory, which may have others."""
    names = ("dralloc-*", "kubectl-dra-*", MANIFEST, CHECKSUMS)
    return sorted(path for name in names for path in directory.glob(name) if path.is_file())


def krew_manifest(version: str, archives: Mapping[str, Path], downloads: str) -> dict[str, Any]:
    """The manifest with what `make dist` adds: the version, and each archive with its checksum."""
    manifest: dict[str, Any] = yaml.safe_load((ROOT / "release" / "kubectl-plugin" / MANIFEST).read_text())
    manifest["spec"]["version"] = f"v{version}"
    manifest["spec"]["platforms"] = [
        {
            "selector": {"matchLabels": dict(zip(("os", "arch"), platform.split("-"), strict=True))},
            "uri": f"{downloads.rstrip('/')}/{archive.name}",
            "sha256": _sha256(archive),
            "bin": "kubectl-dra",
        }
        for platform, archive in archives.items()
    ]
    return manifest


def write_checksums(directory: Path) -> None:
    """Writes the checksums of all files, in the form that `sha256sum --check` reads."""
    lines = [f"{_sha256(path)}  {path.name}\n" for path in files_of_release(directory) if path.name != CHECKSUMS]
    (directory / CHECKSUMS).write_text("".join(lines))


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


if __name__ == "__main__":
    main()
