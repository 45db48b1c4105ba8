"""CDI files as a container runtime finds them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml


def cdi_names(directories: tuple[Path, ...]) -> set[str]:
    """Every device that CDI files in these directories have, by its full name."""
    return {name for directory in directories for path in _files(directory) for name in _names(_read(path))}


def _files(directory: Path) -> Iterator[Path]:
    if directory.is_dir():
        yield from (path for path in sorted(directory.iterdir()) if path.suffix in (".json", ".yaml"))


def _read(path: Path) -> Any:
    try:
        return yaml.safe_load(path.read_text())
    except (OSError, yaml.YAMLError, UnicodeDecodeError):
        return None


def _names(document: Any) -> Iterator[str]:
    if not isinstance(document, dict):
        return
    for device in document.get("devices") or ():
        if isinstance(device, dict):
            yield f"{document.get('kind')}={device.get('name')}"
