"""Names of modules and classes: modules are nouns, and a public class name means one thing in its package."""

from __future__ import annotations

import ast
from collections import Counter

from tests.support.source_tree import SOURCE, modules, package_of, tree_of

# Wire types of an API version have the names that Kubernetes gives them in every version.
VERSIONS = frozenset({"resource_v1", "v1beta1", "v1beta2"})


def test_public_class_names_are_unique_in_their_package() -> None:
    names = Counter(
        (package_of(path), node.name)
        for path in modules().values()
        if path.stem not in VERSIONS
        for node in tree_of(path).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    twice = sorted(f"{package}: {name}" for (package, name), count in names.items() if count > 1)
    assert not twice, "rename one of them, or make it private to its module"


def test_modules_are_named_with_nouns() -> None:
    faults = [path.relative_to(SOURCE) for path in modules().values() if path.stem.endswith("ing")]
    assert not faults, "a module is named for what it is (garbage_collector), not for what it does (collecting)"
