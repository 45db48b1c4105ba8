"""Caches of texts are bounded in bytes, because clients choose the texts."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.support.source_tree import SOURCE, modules, tree_of

TEXTS = {"str", "bytes"}


def counted_caches_of_texts(tree: ast.Module) -> Iterator[int]:
    """The lines of module-level functions of one text that `lru_cache` remembers, and of functions that it is called with."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            annotations = [parameter.annotation for parameter in node.args.args]
            is_of_text = len(annotations) == 1 and ast.unparse(annotations[0] or ast.Constant(None)) in TEXTS
            if is_of_text and any("lru_cache" in ast.unparse(decorator) for decorator in node.decorator_list):
                yield node.lineno
        elif isinstance(node, ast.Assign | ast.AnnAssign) and node.value and "lru_cache(" in ast.unparse(node.value):
            yield node.lineno


def test_what_is_remembered_of_a_text_is_bounded_in_bytes() -> None:
    faults = [
        f"{path.relative_to(SOURCE)}:{line}"
        for path in modules().values()
        for line in counted_caches_of_texts(tree_of(path))
    ]
    assert not faults, "use dralloc.primitives.text_cache: `lru_cache` keeps a thousand texts of megabytes"
