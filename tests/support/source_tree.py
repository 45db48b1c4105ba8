"""The modules of `src/dralloc` as the tidy tests see them: names, syntax trees and imports. Nothing is imported."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
SOURCE: Final = ROOT / "src" / "dralloc"


@cache
def modules() -> Mapping[str, Path]:
    """Every module by its dotted name, without generated code."""
    paths = (path for path in sorted(SOURCE.rglob("*.py")) if "generated" not in path.parts)
    return {_module_name(path): path for path in paths}


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def package_of(path: Path) -> str | None:
    """The package directly below `dralloc`; None for its top-level modules."""
    parts = path.relative_to(SOURCE).parts
    return parts[0] if len(parts) > 1 else None


def imports_of(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Modules that are imported anywhere in the tree, late imports included, with their lines."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: imports are absolute"
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                yield (name if name in modules() else str(node.module)), node.lineno


@cache
def import_graph() -> Mapping[str, frozenset[str]]:
    """For every module the modules of ours that it imports itself."""
    return {
        name: frozenset(imported for imported, _ in imports_of(tree_of(path)) if imported in modules()) - {name}
        for name, path in modules().items()
    }


def module_names_in(text: str) -> frozenset[str]:
    """Modules of ours whose dotted names appear in a text."""
    found = set()
    for name in re.findall(r"\bdralloc(?:\.\w+)*", text):
        while name not in modules() and "." in name:
            name = name.rpartition(".")[0]
        found.add(name)
    return frozenset(found)


def _module_name(path: Path) -> str:
    return ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts).removesuffix(".__init__")
