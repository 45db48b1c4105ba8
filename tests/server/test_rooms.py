"""The rooms of the API server: which may import which, and that one writer writes to the store."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import dralloc.server

ROOT = Path(dralloc.server.__file__).parent
# A room imports from itself and from those before it. Modules outside of a room come last.
ROOMS = ("store", "access", "identity", "http", "documents", "describe", "read", "write", "background")
# What changes the store, by the names of `dralloc.server.store.interface.Store`.
STORE_WRITES = {"create", "update", "delete"}


def modules() -> Iterator[tuple[str, Path]]:
    for path in sorted(ROOT.rglob("*.py")):
        yield str(path.relative_to(ROOT)), path


def imported_rooms(path: Path) -> set[str]:
    names = {node.module or "" for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ImportFrom)}
    inside = (name.split(".") for name in names if name.startswith("dralloc.server."))
    return {parts[2] for parts in inside}


def test_rooms_import_only_rooms_before_them() -> None:
    wrong = {
        f"{name} imports {room}"
        for name, path in modules()
        if (own := name.split("/")[0]) in ROOMS
        for room in imported_rooms(path) - set(ROOMS[: ROOMS.index(own) + 1])
    }
    assert not wrong


def store_writes(path: Path) -> Iterator[str]:
    """Calls of a write method on something that is named as a store."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in STORE_WRITES:
            owner = node.func.value
            name = owner.attr if isinstance(owner, ast.Attribute) else owner.id if isinstance(owner, ast.Name) else ""
            if name.strip("_") == "store":
                yield f"{path.name}:{node.lineno}"


def test_only_the_writer_writes_to_the_store() -> None:
    writing = {name for name, path in modules() if list(store_writes(path))}
    assert writing == {"write/writer.py"}
