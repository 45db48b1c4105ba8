"""Claims on the best of several nodes: where the most preferred alternatives fit, on the first of those."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass

from dralloc.allocator.allocate import AllocationProblem, allocate, score_max
from dralloc.allocator.node_equivalence import Likeness
from dralloc.allocator.outcome import Allocated, BudgetExhausted, Fatal, Impossible
from dralloc.allocator.requests import Demand
from dralloc.snapshot.cluster import Snapshot
from dralloc.snapshot.node_selectors import Node


@dataclass(frozen=True, slots=True)
class Placed:
    node: Node
    allocated: Allocated


@dataclass(frozen=True, slots=True)
class Unplaced:
    """No node does, as far as was found out."""


class Refuted:
    """Nodes that claims which ask for the same do not fit on. While devices are only taken, they never will."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.kinds: set[Hashable] = set()


def place(demand: Demand, nodes: Iterable[Node], snapshot: Snapshot, refuted: Refuted) -> Placed | Unplaced | Fatal:
    """The best node and what the claims get there; an error ends the search for all nodes, as in Kubernetes.

    Nodes that are refuted are passed over, and those that are found not to do are added.
    """
    best: Placed | None = None
    most = score_max(demand)
    likeness = Likeness(demand, snapshot)
    for node in nodes:
        if node.name in refuted.names:
            continue
        kind = likeness.key(node)
        if kind in refuted.kinds:
            refuted.names.add(node.name)
            continue
        match allocate(AllocationProblem(demand, node, snapshot)):
            case Fatal() as fatal:
                return fatal
            case Impossible():
                refuted.names.add(node.name)
                refuted.kinds.add(kind)
            case Allocated() as allocated:
                if best is None or allocated.score > best.allocated.score:
                    best = Placed(node, allocated)
                if allocated.score == most:
                    break
            case BudgetExhausted():
                pass
    return best or Unplaced()
