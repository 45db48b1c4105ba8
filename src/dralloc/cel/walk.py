"""Visiting a tree without recursion: how deep an expression is must not matter to the interpreter's stack."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from dralloc.cel.syntax import Expression


def walk(root: Expression, visit: Callable[[Expression], Iterator[Expression] | None]) -> None:
    """Calls `visit` for the root. A visitor that is a generator names the children to be visited while it waits."""
    first = visit(root)
    waiting = [] if first is None else [first]
    while waiting:
        child = next(waiting[-1], None)
        if child is None:
            waiting.pop()
            continue
        children = visit(child)
        if children is not None:
            waiting.append(children)
