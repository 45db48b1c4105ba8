"""Every module of `src/dralloc` is reached from an entry point or from a documented module: none exists for tests alone."""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path

from dralloc.cli.command_table import COMMANDS
from tests.support.source_tree import ROOT, import_graph, module_names_in, modules, tree_of

PROGRAMS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"].values()
ENTRY_POINTS = frozenset(
    {"dralloc", "dralloc.__main__", "dralloc.driver", "dralloc.pytest_plugin"}
    | {entry.partition(":")[0] for entry in PROGRAMS}
)


def documented() -> frozenset[str]:
    """Modules that the pages for users name, and those that the example drivers import."""
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")]
    programs = (ROOT / "examples").rglob("*.py")
    return frozenset().union(*(module_names_in(path.read_text()) for path in (*pages, *programs)))


def named_in_strings(path: Path) -> frozenset[str]:
    """Modules that are loaded by name: string constants that hold nothing but a dotted name."""
    constants = (node.value for node in ast.walk(tree_of(path)) if isinstance(node, ast.Constant))
    return frozenset(value for value in constants if isinstance(value, str) and value in modules())


def reached_from(roots: frozenset[str]) -> frozenset[str]:
    reached: set[str] = set()
    waiting = list(roots)
    while waiting:
        name = waiting.pop()
        if name in reached:
            continue
        reached.add(name)
        waiting += import_graph()[name] | named_in_strings(modules()[name])
        if package := name.rpartition(".")[0]:
            waiting.append(package)
    return frozenset(reached)


def test_every_module_is_reached_by_users() -> None:
    commands = {f"dralloc.cli.{entry.module}" for entry in COMMANDS.values()}
    unreached = set(modules()) - reached_from(ENTRY_POINTS | commands | documented())
    assert not unreached, "move what only tests use to tests/support, and delete the rest"
