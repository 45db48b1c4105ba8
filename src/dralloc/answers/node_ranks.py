"""The order of equally good nodes: the scheduler's, which depends on their names, also in a dump whose nodes are renamed."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Callable, Iterable, Mapping
from itertools import groupby
from typing import Final

from dralloc.kube.core_v1 import Node
from dralloc.node.simulated.profiles import profile_names
from dralloc.primitives.whole_numbers import whole_number
from dralloc.scheduler.settings import SchedulerSettings

# The rank of a renamed node.
RANK_ANNOTATION: Final = "dralloc.io/tie-break-rank"
_RANKS_MAX: Final = 2**32
_NEW_NODES: Final = 100


def rank_function(nodes: Iterable[Node]) -> Callable[[str], int]:
    known = {
        node.metadata.name: rank
        for node in nodes
        if (rank := whole_number(node.metadata.annotations.get(RANK_ANNOTATION, ""))) is not None
    }
    scheduler_rank = SchedulerSettings().rank
    return lambda name: known[name] if name in known else scheduler_rank(name)


def hidden_ranks(ranks: Mapping[str, int]) -> dict[str, int]:
    """Other ranks in the same order. A rank is a hash of the name, and a hash confirms a guess.

    The order relative to nodes that answers add, for shapes that come with dralloc, stays the same, too.
    """
    rank = SchedulerSettings().rank
    new = {rank(f"new-{profile}-{number}") for profile in profile_names() for number in range(_NEW_NODES)}
    bounds = sorted({0, *new, _RANKS_MAX})
    hidden: dict[int, int] = {}
    for gap, inside in groupby(sorted(set(ranks.values())), lambda each: bisect(bounds, each)):
        members, low, high = list(inside), bounds[gap - 1], bounds[gap]
        hidden |= {each: low + (high - low) * (place + 1) // (len(members) + 1) for place, each in enumerate(members)}
    return {name: hidden[each] for name, each in ranks.items()}
