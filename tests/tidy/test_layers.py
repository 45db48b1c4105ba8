"""Imports point only downwards and the pure packages do no I/O, as the layer table in ARCHITECTURE.md says."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from itertools import combinations, pairwise
from pathlib import Path

import pytest

from tests.support.source_tree import ROOT, SOURCE, imports_of, modules, package_of, tree_of

# Clock, randomness, logging and everything that leaves the process. Locks are allowed: a cache that threads share is still a value.
IMPURE_MODULES = frozenset(
    [
        "asyncio",
        "http",
        "io",
        "logging",
        "multiprocessing",
        "os",
        "pathlib",
        "random",
        "secrets",
        "shutil",
        "signal",
        "socket",
        "ssl",
        "subprocess",
        "sys",
        "tempfile",
        "time",
        "urllib",
        "uuid",
        "aiohttp",
        "grpc",
        "sqlite3",
        "uvicorn",
        "rich",
        "typer",
    ]
)
IMPURE_CALLS = frozenset({"open", "print", "input", "now", "utcnow", "today"})


@dataclass(frozen=True, slots=True)
class Architecture:
    """The layer table: the level of each package, what an arrow allows within a layer, and the pure packages."""

    levels: Mapping[str, int]
    arrows: frozenset[tuple[str, str]]
    sideways: frozenset[tuple[str, str]]
    pure: frozenset[str]

    def allows(self, importer: str, imported: str) -> bool:
        return self.levels[imported] < self.levels[importer] or (importer, imported) in self.sideways


@cache
def architecture() -> Architecture:
    """Reads rows such as "| 2 | `store` · `allocator` → `snapshot` | … |"; an arrow also leads to what follows it."""
    text = (ROOT / "ARCHITECTURE.md").read_text()
    levels: dict[str, int] = {}
    arrows: set[tuple[str, str]] = set()
    sideways: set[tuple[str, str]] = set()
    for level, row in re.findall(r"^\| (\d) \| ([^|]+) \|", text, re.M):
        for group in row.split("·"):
            chain = re.findall(r"`(\w+)`", group)
            levels |= dict.fromkeys(chain, int(level))
            arrows |= set(pairwise(chain))
            sideways |= set(combinations(chain, 2))
    pure = re.search(r"^Pure packages \(.*?\): (.*)\.$", text, re.M)
    assert levels, "ARCHITECTURE.md has no layer table"
    assert pure, "ARCHITECTURE.md does not list the pure packages"
    return Architecture(levels, frozenset(arrows), frozenset(sideways), frozenset(re.findall(r"`(\w+)`", pure[1])))


PACKAGES = frozenset({package_of(path) or path.stem for path in modules().values()} - {"__init__", "__main__"})


def test_the_layer_table_has_every_package_once() -> None:
    assert set(architecture().levels) == PACKAGES


def test_the_package_table_has_every_package() -> None:
    described = re.findall(r"^\| `(\w+)/` \|", (ROOT / "ARCHITECTURE.md").read_text(), re.M)
    assert PACKAGES - {"system_clock"} <= set(described)


def test_every_arrow_of_the_layer_table_is_used() -> None:
    used = {
        (package_of(path), name.split(".")[1])
        for path in modules().values()
        for name, _ in imports_of(tree_of(path))
        if name.startswith("dralloc.")
    }
    assert architecture().arrows <= used


@pytest.mark.parametrize("path", modules().values(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_point_downwards(path: Path) -> None:
    package = package_of(path)
    if package is None:
        return
    for name, line in imports_of(tree_of(path)):
        root, *rest = name.split(".")
        if root != "dralloc" or not rest or rest[0] == package:
            continue
        assert architecture().allows(package, rest[0]), (
            f"{path.relative_to(SOURCE)}:{line}: {package} (layer {architecture().levels[package]}) imports {rest[0]}"
        )


@pytest.mark.parametrize(
    "path",
    [path for path in modules().values() if package_of(path) in architecture().pure],
    ids=lambda path: str(path.relative_to(SOURCE)),
)
def test_pure_packages_do_no_io(path: Path) -> None:
    tree = tree_of(path)
    for name, line in imports_of(tree):
        assert name != "dralloc.system_clock", f"{path.relative_to(SOURCE)}:{line}: the time comes in as an argument"
        assert name.split(".")[0] not in IMPURE_MODULES, f"{path.relative_to(SOURCE)}:{line}: imports {name}"
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            called = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
            assert called not in IMPURE_CALLS, f"{path.relative_to(SOURCE)}:{node.lineno}: calls {called}()"


@pytest.mark.parametrize("path", modules().values(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_every_module_has_a_docstring(path: Path) -> None:
    assert ast.get_docstring(tree_of(path)), "a module docstring says what the module is for"
