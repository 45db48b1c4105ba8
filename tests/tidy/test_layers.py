"""Imports point only downwards and the pure packages do no I/O, as the layer table in ARCHITECTURE.md says."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import combinations, pairwise

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
    return Architecture(levels, frozenset(arrows), frozenset(sideways), frozenset(re.findall(r"`([\w/]+)`", pure[1])))


PACKAGES = frozenset({package_of(path) or path.stem for path in modules().values()} - {"__init__", "__main__"})


def test_the_layer_table_has_every_package_once() -> None:
    assert set(architecture().levels) == PACKAGES


def test_the_package_table_has_every_package() -> None:
    described = re.findall(r"^\| `(\w+)/` \|", (ROOT / "ARCHITECTURE.md").read_text(), re.M)
    assert PACKAGES - {"atomic_files", "system_clock"} <= set(described)


def test_every_arrow_of_the_layer_table_is_used() -> None:
    used = {
        (package_of(path), name.split(".")[1])
        for path in modules().values()
        for name, _ in imports_of(tree_of(path))
        if name.startswith("dralloc.")
    }
    assert architecture().arrows <= used


def test_imports_point_downwards() -> None:
    faults = [
        f"{path.relative_to(SOURCE)}:{line}: {package} (layer {architecture().levels[package]}) imports {imported}"
        for path in modules().values()
        if (package := package_of(path)) is not None
        for name, line in imports_of(tree_of(path))
        if name.startswith("dralloc.") and (imported := name.split(".")[1]) != package
        if not architecture().allows(package, imported)
    ]
    assert not faults


def test_pure_packages_do_no_io() -> None:
    faults = [
        f"{path.relative_to(SOURCE)}:{fault}"
        for path in modules().values()
        if str(path.relative_to(SOURCE)).startswith(tuple(f"{package}/" for package in architecture().pure))
        for fault in impurities(tree_of(path))
    ]
    assert not faults


def impurities(tree: ast.Module) -> Iterator[str]:
    for name, line in imports_of(tree):
        if name == "dralloc.system_clock":
            yield f"{line}: the time comes in as an argument"
        if name == "dralloc.atomic_files":
            yield f"{line}: writes files"
        if name.split(".")[0] in IMPURE_MODULES:
            yield f"{line}: imports {name}"
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            called = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
            if called in IMPURE_CALLS:
                yield f"{node.lineno}: calls {called}()"


def test_unreadable_json_has_one_list_of_exceptions() -> None:
    """msgspec has three of them, and a handler that lacks one lets bytes from outside end a request or a process."""
    faults = [
        f"{path.relative_to(SOURCE)}:{handler.lineno}"
        for path in modules().values()
        for handler in ast.walk(tree_of(path))
        if isinstance(handler, ast.ExceptHandler) and handler.type is not None
        for named in ast.walk(handler.type)
        if isinstance(named, ast.Attribute) and named.attr in ("DecodeError", "MsgspecError")
    ]
    assert not faults, "catch UNREADABLE of dralloc.primitives.decoders"


def test_every_module_has_a_docstring() -> None:
    faults = [path.relative_to(SOURCE) for path in modules().values() if not ast.get_docstring(tree_of(path))]
    assert not faults, "a module docstring says what the module is for"
