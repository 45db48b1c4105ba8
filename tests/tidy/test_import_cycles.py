"""There are no import cycles, late imports and those for type checkers included."""

from __future__ import annotations

from graphlib import CycleError, TopologicalSorter

from tests.support.source_tree import import_graph


def test_imports_form_no_cycle() -> None:
    try:
        TopologicalSorter(import_graph()).prepare()
    except CycleError as error:
        raise AssertionError("import cycle: " + " -> ".join(reversed(error.args[1]))) from None
