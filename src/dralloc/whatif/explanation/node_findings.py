"""What is found on each of many nodes: that it fits, or why it does not; worked out once for nodes that are alike."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator

from dralloc.allocator.allocate import AllocationProblem, allocate
from dralloc.allocator.diagnosis.diagnoser import Diagnoser
from dralloc.allocator.diagnosis.reasons import Reason
from dralloc.allocator.node_equivalence import Likeness
from dralloc.allocator.outcome import Allocated
from dralloc.allocator.solver import DEFAULT_EFFORT, Effort
from dralloc.snapshot.node_selectors import Node

# What is allocated may be that of another node that is alike.
Finding = Allocated | Reason


def investigate(
    diagnoser: Diagnoser, nodes: Iterable[Node], effort: Effort = DEFAULT_EFFORT
) -> Iterator[tuple[Node, Finding]]:
    snapshot = diagnoser.survey.snapshot
    likeness = Likeness(diagnoser.demand, snapshot)
    known: dict[Hashable, Finding] = {}
    for node in nodes:
        if not diagnoser.demand.claims:
            # Who asks for no devices is not concerned by what is wrong with them.
            yield node, Allocated(())
            continue
        # Pools that a node does not see yet have a part in its reason.
        key = node.name if diagnoser.survey.unready_pools(node) else likeness.key(node)
        found = known.get(key)
        if found is None:
            outcome = allocate(AllocationProblem(diagnoser.demand, node, snapshot, effort))
            found = outcome if isinstance(outcome, Allocated) else diagnoser.reason(node, outcome)
            known[key] = found
        yield node, found
