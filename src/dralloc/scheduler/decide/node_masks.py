"""Which nodes fit, as masks (`node_rooms`).

A node that gets a pod changes few answers: those for amounts between what it had and what it has left. They are corrected when
the node changes, for all pods that request the same amount. What a pod costs then does not grow with the kinds of pods times nodes:
the nodes that fit are the common bits of a few masks, and nodes that do not fit are looked at when their reasons are asked for.
"""

from __future__ import annotations

from weakref import WeakValueDictionary

from dralloc.devices.slices import bits_of
from dralloc.scheduler.contract import ClusterView
from dralloc.scheduler.decide.device_judge import DeviceJudge
from dralloc.scheduler.decide.device_reasons import DeviceReasons
from dralloc.scheduler.decide.node_fit import NodeMisfit
from dralloc.scheduler.decide.node_groups import AlikeNodes, Member
from dralloc.scheduler.decide.node_rooms import NodeRooms
from dralloc.scheduler.decide.node_scores import RawScores
from dralloc.scheduler.decide.offer_verdicts import OfferJudge, OfferVerdict
from dralloc.scheduler.decide.pod_requirements import HeldClaim, PodRequirements
from dralloc.scheduler.state.change_log import ChangeReader
from dralloc.scheduler.state.node_state import NodeState
from dralloc.scheduler.state.pod_resources import PodResources


class AdmittedNodes:
    """The nodes that pods may use which require the same of nodes, resources and devices aside."""

    def __init__(self, offers: OfferJudge, rooms: NodeRooms, view: ClusterView) -> None:
        self._offers = offers
        self._rooms = rooms
        self._view = view
        self._reader = ChangeReader(view.changes)
        self._restart()

    def _restart(self) -> None:
        # By node; and by what is said of it, the nodes.
        self._verdicts: dict[int, OfferVerdict] = {}
        self.misfits: dict[NodeMisfit, int] = {}
        self.away: dict[HeldClaim, int] = {}
        # The nodes by their scores, and all of them.
        self.by_raw: dict[RawScores, int] = {}
        self.mask = 0
        for name in self._view.nodes:
            self._update(name)

    def catch_up(self) -> None:
        first = self._reader.advance()
        if first is None:
            self._restart()
            return
        for name in self._view.changes.changed.since(first):
            self._update(name)

    def _update(self, name: str) -> None:
        node, number = self._view.nodes.get(name), self._rooms.numbers[name]
        before = self._verdicts.get(number)
        after = self._offers.on(node.offer) if node is not None else None
        if before is after:
            return
        if before is not None:
            del self._verdicts[number]
            self._move(before, 1 << number)
        if after is not None:
            self._verdicts[number] = after
            self._move(after, 1 << number)

    def _move(self, verdict: OfferVerdict, bit: int) -> None:
        """Adds the node to the masks, or takes it from them."""
        if verdict.misfit is not None:
            self.misfits[verdict.misfit] = self.misfits.get(verdict.misfit, 0) ^ bit
        elif verdict.away is not None:
            self.away[verdict.away] = self.away.get(verdict.away, 0) ^ bit
        else:
            self.mask ^= bit
            self.by_raw[verdict.raw] = self.by_raw.get(verdict.raw, 0) ^ bit


class ServedNodes:
    """The nodes whose devices serve one demand, as far as they were asked for."""

    def __init__(self, devices: DeviceJudge, rooms: NodeRooms, view: ClusterView) -> None:
        self._devices = devices
        self._rooms = rooms
        self._view = view
        # False once a node was asked for whose devices must be searched, or are not its own.
        self.is_exact = True
        self._reader = ChangeReader(view.changes)
        self._known = 0
        self.mask = 0
        self.reasons = DeviceReasons(devices, rooms, view)

    @property
    def refused(self) -> int:
        """The nodes whose devices do not serve the demand."""
        return self._known & ~self.mask

    def catch_up(self) -> None:
        first = self._reader.advance()
        if first is None:
            self._known = self.mask = 0
            return
        for name in self._view.changes.changed.since(first):
            self._forget(self._rooms.numbers[name])
        for name in self._view.changes.taken.since(first):
            # What is taken serves no other claim.
            number = self._rooms.numbers[name]
            if self._devices.demand.wants_used_devices:
                self._forget(number)
            elif self.mask >> number & 1 and not self._is_served(self._view.nodes[name]):
                self.mask ^= 1 << number

    def _forget(self, number: int) -> None:
        self._known &= ~(1 << number)
        self.mask &= ~(1 << number)

    def has(self, node: NodeState, number: int) -> bool:
        if not self._known >> number & 1:
            self._ask(node, number)
        return bool(self.mask >> number & 1)

    def first_of(self, group: AlikeNodes, among: int) -> Member | None:
        """The best node of the mask `among` whose devices serve the demand."""
        first = group.first_in(among & ~self.refused)
        if first is None or self.has(self._view.nodes[first.name], first.number):
            return first
        # The devices of the others are alike.
        self._known |= group.mask
        return None

    def _ask(self, node: NodeState, number: int) -> None:
        if self._devices.shared_pools(node.offer.place, self._view.snapshot):
            self.is_exact = False
        bit = 1 << number
        self._known |= bit
        self.mask = self.mask | bit if self._is_served(node) else self.mask & ~bit

    def _is_served(self, node: NodeState) -> bool:
        is_served = self._devices.is_served(node.offer.place, self._view.snapshot)
        if is_served is None:
            self.is_exact = False
        return bool(is_served)


class FitMask:
    """The nodes that fit pods with the same requirements, as far as they were asked for."""

    def __init__(
        self, resources: PodResources, admitted: AdmittedNodes, served: ServedNodes | None, rooms: NodeRooms
    ) -> None:
        self.amounts = resources.amounts
        self.admitted = admitted
        self.served = served
        self.rooms = rooms
        # The nodes that have room and that the pods may use.
        self._open = 0

    @property
    def is_exact(self) -> bool:
        """False if masks cannot tell which nodes fit."""
        return self.served is None or self.served.is_exact

    def catch_up(self) -> None:
        self.rooms.catch_up()
        self.admitted.catch_up()
        if self.served is not None:
            self.served.catch_up()
        self._open = self.rooms.mask(self.amounts) & self.admitted.mask

    def bit(self, name: str) -> int:
        return 1 << self.rooms.numbers[name]

    def names(self, mask: int) -> list[str]:
        return [self.rooms.names[number] for number in bits_of(mask)]

    def left(self) -> int:
        """The nodes that fit, of those whose devices were asked for."""
        return self._open if self.served is None else self._open & self.served.mask

    def is_hopeless(self) -> bool:
        """True if no node fits, whether it was asked for or not."""
        return not self._open or (self.served is not None and not self._open & ~self.served.refused)

    def first_of(self, group: AlikeNodes, among: int) -> Member | None:
        """The best node of the mask `among` that fits."""
        among &= self._open
        return self.served.first_of(group, among) if self.served is not None else group.first_in(among)

    def has(self, node: NodeState) -> bool:
        number = self.rooms.numbers[node.name]
        return bool(self._open >> number & 1) and (self.served is None or self.served.has(node, number))


class FitMasks:
    """The masks of one view, and the judges of offers, shared by pods that require the same of nodes, resources aside."""

    def __init__(self, view: ClusterView) -> None:
        self._view = view
        self._rooms: NodeRooms | None = None
        # These live as long as a table uses them.
        self._offers: WeakValueDictionary[bytes, OfferJudge] = WeakValueDictionary()
        self._admitted: WeakValueDictionary[OfferJudge, AdmittedNodes] = WeakValueDictionary()
        self._served: WeakValueDictionary[DeviceJudge, ServedNodes] = WeakValueDictionary()

    def offers(self, requirements: PodRequirements) -> OfferJudge:
        key = requirements.offer_key()
        known = self._offers.get(key)
        if known is None:
            known = self._offers[key] = OfferJudge(requirements)
        return known

    def of(self, requirements: PodRequirements, devices: DeviceJudge | None) -> FitMask | None:
        """None for pods whose nodes no mask can tell, and for those that name the few nodes they can run on."""
        resources = requirements.node.resources
        if resources.ports or requirements.only_nodes() is not None:
            return None
        if self._rooms is None:
            self._rooms = NodeRooms(self._view)
        self._rooms.catch_up()
        served = self._served_by(devices, self._rooms) if devices is not None else None
        return FitMask(resources, self._admitted_by(self.offers(requirements), self._rooms), served, self._rooms)

    def _admitted_by(self, offers: OfferJudge, rooms: NodeRooms) -> AdmittedNodes:
        known = self._admitted.get(offers)
        if known is None:
            known = self._admitted[offers] = AdmittedNodes(offers, rooms, self._view)
        return known

    def _served_by(self, devices: DeviceJudge, rooms: NodeRooms) -> ServedNodes:
        known = self._served.get(devices)
        if known is None:
            known = self._served[devices] = ServedNodes(devices, rooms, self._view)
        return known
