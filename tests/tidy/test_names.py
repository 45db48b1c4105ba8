"""Names of modules and classes: modules are nouns, and a public class name means one thing in the whole project."""

from __future__ import annotations

import ast
from collections import defaultdict

from tests.support.source_tree import SOURCE, modules, tree_of

# Wire types of an API version have the names that Kubernetes gives them in every version.
VERSIONS = frozenset({"api/resource_v1.py", "api/v1beta1.py", "api/v1beta2.py"})


def test_public_class_names_are_unique() -> None:
    places: dict[str, set[str]] = defaultdict(set)
    for path in modules().values():
        for node in tree_of(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].add(str(path.relative_to(SOURCE)))
    twice = {name: sorted(where) for name, where in places.items() if len(where) > 1 and not where <= VERSIONS}
    assert not twice, "rename the class of the upper layer, or make it private to its module"


def test_modules_are_named_with_nouns() -> None:
    faults = [path.relative_to(SOURCE) for path in modules().values() if path.stem.endswith("ing")]
    assert not faults, "a module is named for what it is (garbage_collector), not for what it does (collecting)"
