"""Visits a tree without recursion, so that the depth of an expression does not matter to the interpreter's stack."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from dralloc.cel.syntax import Expression


def walk(root: Expression, visit: Callable[[Expression], Iterator[Expression] | None]) -> None:
    """Calls `visit` for the root. A visitor that is a generator yields the children to visit before it continues.

    A node with several parents is visited once: macros use their target twice, and nested macros would otherwise double
    the work with each level.
    """
    first = visit(root)
    waiting = [] if first is None else [first]
    seen = {root.id}
    while waiting:
        child = next(waiting[-1], None)
        if child is None:
            waiting.pop()
            continue
        if child.id in seen:
            continue
        seen.add(child.id)
        children = visit(child)
        if children is not None:
            waiting.append(children)
