"""Modules do not import each other in a circle, late imports and those for type checkers included."""

from __future__ import annotations

from graphlib import CycleError, TopologicalSorter

from tests.support.source_tree import import_graph

# Modules that are still part of a cycle. The list only shrinks.
KNOWN = frozenset(
    {
        "checking",
        "cluster_reading",
        "driver",
        "errors",
        "get",
        "getting",
        "interface",
        "judging",
        "plugin",
        "preparing",
        "running",
        "services",
        "slice_rules",
        "subject",
        "vanished",
        "workloads",
        "world",
    }
)


def test_imports_form_no_cycle() -> None:
    known = {name for name in import_graph() if name.rpartition(".")[2] in KNOWN}
    graph = {name: imported - known for name, imported in import_graph().items() if name not in known}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        raise AssertionError("import cycle: " + " -> ".join(reversed(error.args[1]))) from None
