"""The page's files for the API server: `ServerSettings(..., pages=device_page())`.

The page consists of plain modules that browsers run without a build step. It reads everything it shows by list and
watch from the server that served it.
"""

from __future__ import annotations

from importlib import resources
from importlib.resources.abc import Traversable
from typing import Final

from dralloc.server.http.static_pages import StaticFile, StaticPages

HOME: Final = "/ui/"
FIRST: Final = "index.html"

CONTENT_TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


def device_page() -> StaticPages:
    """Returns all files below `static`, read once."""
    files = _files(resources.files("dralloc.web") / "static")
    files[""] = files.pop(FIRST)
    return StaticPages(HOME, files)


def _files(folder: Traversable, place: str = "") -> dict[str, StaticFile]:
    found: dict[str, StaticFile] = {}
    for entry in folder.iterdir():
        if entry.is_dir():
            found |= _files(entry, f"{place}{entry.name}/")
        elif content_type := CONTENT_TYPES.get(f".{entry.name.rpartition('.')[2]}"):
            found[place + entry.name] = StaticFile(entry.read_bytes(), content_type)
    return found
