"""The files of a new driver: a program that works, its tests, manifests and a workflow, made from the templates in `skeleton`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Final

from dralloc.kube.validation.formats import validate_driver_name
from dralloc.primitives.field_errors import FieldPath

SUFFIX: Final = ".template"
# Names that begin with a dot are easily lost in packages.
PLACES: Final = {"workflows/driver.yml": ".github/workflows/driver.yml", "gitignore": ".gitignore"}


class BadSkeleton(ValueError):
    """The driver cannot be made; the message says what to change."""


def skeleton_files(driver: str) -> Mapping[str, str]:
    """The contents of the files by their path; raises `BadSkeleton` if the driver cannot have this name."""
    # The API accepts upper case letters, but objects that are named after the driver do not.
    if any(validate_driver_name(driver, FieldPath.of("name"))) or driver != driver.lower():
        raise BadSkeleton(
            f"{driver!r} cannot be the name of a driver: use at most 63 lower case letters, digits, '-' and '.', "
            "such as card.example.com"
        )
    if "." not in driver:
        raise BadSkeleton(
            f"{driver!r} has no domain, so another driver may have the same name; use {driver}.example.com with a domain of yours"
        )
    words = {"@DRIVER@": driver, "@PROJECT@": project_name(driver)}
    root = resources.files("dralloc.driver_kit") / "skeleton"
    return {PLACES.get(path, path): _filled(text, words) for path, text in _templates(root, "").items()}


def project_name(driver: str) -> str:
    """A name for packages, commands and objects: the first part of the driver's name."""
    # Short enough for a label with the ending.
    first = driver.partition(".")[0][:50].rstrip("-")
    return first if first.endswith("driver") else f"{first}-driver"


def write_skeleton(directory: Path, files: Mapping[str, str]) -> None:
    """Write the files into a new or empty directory; raises `BadSkeleton` if there is something already."""
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise BadSkeleton(f"{directory} exists and is not an empty directory; choose another one with --directory")
    for path, text in files.items():
        target = directory / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)


def _templates(place: Traversable, prefix: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for entry in sorted(place.iterdir(), key=lambda each: each.name):
        if entry.is_dir():
            found |= _templates(entry, f"{prefix}{entry.name}/")
        elif entry.name.endswith(SUFFIX):
            found[f"{prefix}{entry.name.removesuffix(SUFFIX)}"] = entry.read_text("utf-8")
    return found


def _filled(text: str, words: Mapping[str, str]) -> str:
    return re.sub("|".join(words), lambda found: words[found[0]], text)
