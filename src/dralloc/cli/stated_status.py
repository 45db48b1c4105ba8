"""What a server did not take of the status in a manifest.

As in Kubernetes, a new node keeps it, because a node describes itself: that is how a manifest says what a simulated node has. Everything else of a
status is written by the components of a cluster, so a server ignores it in what users send, and says nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, Final

from dralloc.primitives.quantity import Quantity

# What users state of a node; the rest is the node's own report.
_AMOUNTS: Final = ("capacity", "allocatable")


def node_differences(stated: Any, stored: Any) -> Iterator[str]:
    """The amounts of a node that are not those of its manifest."""
    for member in _AMOUNTS:
        had = _members(_members(stored).get(member))
        for name, amount in _members(_members(stated).get(member)).items():
            if not _is_same_amount(amount, had.get(name)):
                yield f"status.{member}.{name} is {had.get(name, 'not there')}, and not {amount}"


def is_left_out(stated: Any, stored: Any) -> bool:
    """True if the server has something else than the manifest states. A manifest without a status states nothing."""
    pending = [(_members(stated), stored)]
    while pending:
        one, other = pending.pop()
        if isinstance(one, dict) and (isinstance(other, dict) or not one):
            pending.extend((value, _members(other).get(name)) for name, value in one.items())
        elif one != other:
            return True
    return False


def sentence(kinds: Iterable[str]) -> str:
    """Of which kinds, and of how many objects, the status was left out; empty for none."""
    counted = ", ".join(f"{kind} ({count})" if count > 1 else kind for kind, count in Counter(kinds).items())
    return f"the status of {counted} was not applied: components write it, not manifests" if counted else ""


def _members(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _is_same_amount(one: Any, other: Any) -> bool:
    try:
        return Quantity.parse(str(one)) == Quantity.parse(str(other))
    except ValueError:
        return bool(one == other)
