"""On how many nodes of a large cluster a pod is judged."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final


def enough_nodes(nodes: int) -> int:
    """The number of nodes that fit on which a pod is compared, as in Kubernetes."""
    if nodes < 100:
        return nodes
    percentage = max(50 - nodes // 125, 5)
    return max(nodes * percentage // 100, 100)


@dataclass(frozen=True, slots=True)
class SearchEffort:
    """How many nodes are judged beyond what a pod needs.

    After a change of a pool that at most `few_max` nodes see, all of them are judged again at once. A pod is compared on
    `enough` of all nodes; each pod judges `extra` more, so that all nodes are judged in the end.
    """

    few_max: int = 64
    enough: Callable[[int], int] = enough_nodes
    extra: int = 1


DEFAULT_EFFORT: Final = SearchEffort()
