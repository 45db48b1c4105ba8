"""Whether a node's devices can serve the claims of a pod.

Searching for devices is by far the most expensive part of a verdict, and its result depends only on the demand and on the devices
that the node sees. It is cached under exactly that (`DeviceIdentity.key`): nodes which reach the same devices share one search,
and so do pods whose claims ask alike, whatever else they request of a node. Most demands are a single request, and need no search
at all until a node is chosen.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final, NamedTuple

from dralloc.devices.allocator.allocate import AllocationProblem, allocate
from dralloc.devices.allocator.diagnosis.reasons import Reason
from dralloc.devices.allocator.node_equivalence import DeviceIdentity
from dralloc.devices.allocator.outcome import Allocated, Outcome
from dralloc.devices.allocator.requests import Demand
from dralloc.devices.allocator.single_request import SingleRequest
from dralloc.devices.identity import PoolId
from dralloc.devices.node_selectors import NodeFacts
from dralloc.devices.snapshot import Snapshot

OUTCOMES_MAX: Final = 4096


class SearchedNode(NamedTuple):
    """The node on which a search was made. Other nodes with the same devices have the same outcome."""

    node: str
    outcome: Outcome


class DeviceJudge:
    """Searches for one demand."""

    def __init__(self, demand: Demand) -> None:
        self.demand = demand
        self._identity = DeviceIdentity(demand)
        self.key = self._identity.key
        self.visible = self._identity.visible
        self._single = SingleRequest.of(demand)
        self._outcomes: dict[Hashable, SearchedNode] = {}
        # Why devices cannot serve the demand, as far as it was asked for.
        self._reasons: dict[Hashable, Reason] = {}
        self._distinct_reasons: dict[Reason, Reason] = {}

    def is_served(self, node: NodeFacts, snapshot: Snapshot) -> bool | None:
        """True if the node's devices can serve the demand; None if that takes a search."""
        return self._single.is_served(node, snapshot) if self._single is not None else None

    def reason_key(self, node: NodeFacts, snapshot: Snapshot) -> Hashable:
        """Equal for nodes whose devices cannot serve the demand for the same reason."""
        shortage = self._single.shortage_key(node, snapshot) if self._single is not None else None
        return self.key(node, snapshot) if shortage is None else shortage

    def shared_pools(self, node: NodeFacts, snapshot: Snapshot) -> tuple[PoolId, ...]:
        """The pools that may serve the demand and that other nodes may see, too."""
        shared = self._single.shared_pools(node, snapshot) if self._single is not None else None
        if shared is not None:
            return shared
        return tuple(pool_id for pool_id in self.visible(node, snapshot).pools if not snapshot.only_node(pool_id))

    def known_reason(self, key: Hashable) -> Reason | None:
        return self._reasons.get(key)

    def keep_reason(self, key: Hashable, reason: Reason) -> Reason:
        """Keeps the reason of nodes with the key. Equal reasons are one object."""
        if len(self._reasons) >= OUTCOMES_MAX:
            self._reasons.clear()
            self._distinct_reasons.clear()
        kept = self._reasons[key] = self._distinct_reasons.setdefault(reason, reason)
        return kept

    def known(self, key: Hashable) -> SearchedNode | None:
        """The outcome of an earlier search on the devices with the key."""
        return self._outcomes.get(key)

    def search(self, key: Hashable, node: NodeFacts, snapshot: Snapshot) -> SearchedNode:
        known = self._outcomes.get(key)
        if known is None:
            if len(self._outcomes) >= OUTCOMES_MAX:
                self._outcomes.clear()
            known = self._outcomes[key] = SearchedNode(node.name, self._search(node, snapshot))
        return known

    def allocated(self, node: NodeFacts, snapshot: Snapshot) -> Allocated:
        """What the claims get on a node whose devices are known to serve them."""
        outcome = self._search(node, snapshot)
        assert isinstance(outcome, Allocated), f"{node.name} has the devices key of a node that fits"
        return outcome

    def _search(self, node: NodeFacts, snapshot: Snapshot) -> Outcome:
        return allocate(AllocationProblem(self.demand, node, snapshot))
