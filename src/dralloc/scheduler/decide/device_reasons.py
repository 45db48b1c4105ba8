"""Why the devices of nodes do not serve a demand, for all pods with this demand. A node is diagnosed again when its devices change."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from dralloc.devices.allocator.diagnosis.diagnoser import Diagnoser
from dralloc.devices.allocator.diagnosis.reasons import Reason, ReasonCause
from dralloc.devices.allocator.outcome import Impossible
from dralloc.devices.slices import bits_of
from dralloc.primitives.work_allowance import is_work_left
from dralloc.scheduler.contract import ClusterView
from dralloc.scheduler.decide.device_judge import DeviceJudge
from dralloc.scheduler.decide.node_rooms import NodeRooms
from dralloc.scheduler.state.change_log import ChangeReader

# How many diagnoses of devices are made at once. They take longer than a verdict, and other pods wait meanwhile.
DIAGNOSED_MAX: Final = 500
UNDIAGNOSED: Final = Reason(cause=ReasonCause.NODE, subject="cannot allocate all claims")
_IMPOSSIBLE: Final = Impossible()


class DeviceReasons:
    def __init__(self, devices: DeviceJudge, rooms: NodeRooms, view: ClusterView) -> None:
        self._devices = devices
        self._rooms = rooms
        self._view = view
        self._reader = ChangeReader(view.changes)
        self._restart()

    def _restart(self) -> None:
        # The nodes whose reason is known, with the identity of the reason; and the nodes by reason.
        self._explained = 0
        self._places: dict[int, int] = {}
        self._members: dict[int, tuple[Reason, int]] = {}

    def of(self, nodes: int) -> Iterator[tuple[Reason, int]]:
        """The reasons of these nodes, whose devices do not serve the demand, each with its nodes."""
        self._catch_up()
        self._explain(nodes & ~self._explained)
        for reason, members in self._members.values():
            if members & nodes & self._explained:
                yield reason, members & nodes & self._explained
        if nodes & ~self._explained:
            yield UNDIAGNOSED, nodes & ~self._explained

    def _catch_up(self) -> None:
        first = self._reader.advance()
        if first is None:
            self._restart()
            return
        stale = {*self._view.changes.changed.since(first), *self._view.changes.taken.since(first)}
        self._explained &= ~sum(1 << self._rooms.numbers[name] for name in stale)

    def _explain(self, nodes: int) -> None:
        devices, snapshot = self._devices, self._view.snapshot
        diagnoser, left = None, DIAGNOSED_MAX
        for number in bits_of(nodes):
            place = self._view.nodes[self._rooms.names[number]].offer.place
            key = devices.reason_key(place, snapshot)
            reason = devices.known_reason(key)
            if reason is None:
                left -= 1
                if left < 0 or not is_work_left():
                    return
                diagnoser = diagnoser or Diagnoser(devices.demand, snapshot)
                found = replace(diagnoser.reason(place, _IMPOSSIBLE), example="", also="")
                reason = devices.keep_reason(key, found)
            self._put(number, reason)

    def _put(self, number: int, reason: Reason) -> None:
        bit, before = 1 << number, self._places.get(number)
        self._explained |= bit
        if before == id(reason):
            return
        if before is not None:
            known, members = self._members[before]
            self._members[before] = known, members & ~bit
            if not members & ~bit:
                del self._members[before]
        _, members = self._members.get(id(reason), (reason, 0))
        self._members[id(reason)] = reason, members | bit
        self._places[number] = id(reason)
