"""The search: depth first, in Kubernetes' order, until the first complete solution.

Requests are served one after the other; each takes its devices in the node's total order, and a prioritized list tries
its alternatives as listed, each with everything that comes after it. The choices that are open are frames on an explicit
stack: its depth is the number of devices asked for, which a pod decides, so Python's own stack is not used for it.

A `Pruning` is asked about every state before it is explored. Without it this is the plain search that defines the answer;
with it the answer is the same and dead ends are left early (see `pruning`).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from enum import Enum
from typing import NamedTuple, Protocol

from dralloc.allocator.device_picker import Taking
from dralloc.allocator.ledger import Ledger
from dralloc.allocator.outcome import RESULTS_MAX
from dralloc.allocator.requests import Alternative, Demand
from dralloc.allocator.supply import Place, Supply
from dralloc.snapshot.cluster import Strip


class Verdict(Enum):
    SOLVED = "solved"
    DEAD = "dead"
    # The claim would get more results than it may hold, whichever devices it takes: only another alternative can help.
    # One of the claim's own always does, because claims that ask for too much even at their least are refused before.
    OVER_LIMIT = "over limit"
    OUT_OF_STEPS = "out of steps"


class Cursor(NamedTuple):
    """Where a search stands: which request, the alternative chosen for it, and which of its devices comes next."""

    request: int
    alternative: Alternative | None = None
    slot: int = 0
    # Devices of one request are taken in ascending order: only those after this one come into question.
    after: Place | None = None


class Pruning(Protocol):
    """What may be left out: states that hold no solution, and where the plain search would meet no fault either."""

    def key(self, cursor: Cursor) -> Hashable:
        """Equal for two states only where exploring them ends the same way."""

    def recall(self, key: Hashable) -> Verdict | None:
        """How a state with this key ended."""

    def learn(self, key: Hashable, verdict: Verdict) -> None: ...

    def is_hopeless(self, cursor: Cursor) -> bool:
        """Whether it can be shown, without exploring it, that the state holds no solution."""

    def likeness(self, cursor: Cursor, place: Place) -> Hashable:
        """Equal for two devices only where, if the first leads nowhere, neither does the second."""


class Frame:
    """An open choice, of an alternative or of a device, in the state that the ledger had at the mark."""

    __slots__ = ("cursor", "key", "limited", "mark", "options", "seen", "tried")

    def __init__(self, cursor: Cursor, mark: int, options: Iterator[Alternative | Place], key: Hashable) -> None:
        self.cursor = cursor
        self.mark = mark
        self.options = options
        self.key = key
        self.tried = 0
        # How many of the tried options were over the limit.
        self.limited = 0
        # What the devices tried so far were like.
        self.seen: set[Hashable] = set()


class Search:
    def __init__(self, demand: Demand, supply: Supply, steps_max: int) -> None:
        self.ledger = Ledger()
        self.steps = 0
        self._steps_max = steps_max
        self._requests = demand.requests
        self._supply = supply
        self._taking = Taking(supply, self.ledger)
        self._frames: list[Frame] = []
        self._pruning: Pruning | None = None
        self._end = len(demand.requests)

    def run(self, pruning: Pruning | None = None) -> Verdict:
        """Leaves the first solution in the ledger. Raises SearchAborted where the search meets a fatal error."""
        return self.run_part(0, len(self._requests), pruning)

    def run_part(self, start: int, end: int, pruning: Pruning | None) -> Verdict:
        """Serves only the requests from the start up to the end."""
        self._pruning = pruning
        self._end = end
        frames = self._frames
        verdict = self._open(Cursor(start))
        while verdict is None or verdict is Verdict.DEAD or verdict is Verdict.OVER_LIMIT:
            if not frames:
                return Verdict.DEAD
            if self.steps > self._steps_max:
                return Verdict.OUT_OF_STEPS
            verdict = self._advance(frames[-1], verdict)
        return verdict

    def _advance(self, frame: Frame, verdict: Verdict | None) -> Verdict | None:
        """Tries the next option of the topmost frame, whose last one ended with the verdict."""
        chooses_device = frame.cursor.alternative is not None
        if verdict is Verdict.OVER_LIMIT:
            # Other devices cannot help, other alternatives can.
            if chooses_device:
                return self._close(frame, verdict)
            frame.limited += 1
        self.ledger.rollback(frame.mark)
        option = next(frame.options, None)
        if option is None:
            is_over = frame.limited == frame.tried > 0
            return self._close(frame, Verdict.OVER_LIMIT if is_over else Verdict.DEAD)
        frame.tried += 1
        self.steps += 1
        return self._choose(frame, option)

    def _close(self, frame: Frame, verdict: Verdict) -> Verdict:
        self._frames.pop()
        if self._pruning is not None:
            self._pruning.learn(frame.key, verdict)
        return verdict

    def _choose(self, frame: Frame, option: Alternative | Place) -> Verdict | None:
        cursor = frame.cursor
        if isinstance(option, Alternative):
            self.ledger.put(self.ledger.chosen, cursor.request, option)
            return self._open(Cursor(cursor.request, option))
        if self._pruning is not None:
            likeness = self._pruning.likeness(cursor, option)
            if likeness in frame.seen:
                return Verdict.DEAD
            frame.seen.add(likeness)
        assert cursor.alternative is not None, "a place is an option only where an alternative is chosen"
        if not self._taking.take(cursor.alternative, option):
            return Verdict.DEAD
        return self._open(Cursor(cursor.request, cursor.alternative, cursor.slot + 1, option))

    def _open(self, cursor: Cursor) -> Verdict | None:
        """Puts the choice that is due at the cursor on the stack, or says how the search ends there."""
        while True:
            if cursor.request == self._end:
                return Verdict.SOLVED
            request = self._requests[cursor.request]
            alternative = cursor.alternative
            if alternative is None:
                if request.is_list:
                    return self._push(cursor, iter(request.alternatives))
                alternative = request.alternatives[0]
                cursor = Cursor(cursor.request, alternative)
            wanted = self._supply.wanted(alternative)
            if alternative.takes_all and wanted == 0:
                return Verdict.DEAD
            if cursor.slot < wanted:
                break
            cursor = Cursor(cursor.request + 1)
        if self.ledger.recorded.get(request.claim, 0) + wanted - cursor.slot > RESULTS_MAX:
            return Verdict.OVER_LIMIT
        return self._push(cursor, self._places(alternative, cursor))

    def _push(self, cursor: Cursor, options: Iterator[Alternative | Place]) -> Verdict | None:
        key: Hashable = None
        if self._pruning is not None:
            key = self._pruning.key(cursor)
            verdict = self._pruning.recall(key)
            if verdict is None and self._pruning.is_hopeless(cursor):
                verdict = Verdict.DEAD
                self._pruning.learn(key, verdict)
            if verdict is not None:
                return verdict
        self._frames.append(Frame(cursor, self.ledger.mark(), options, key))
        return None

    # --- Devices ----------------------------------------------------------------------------------------------

    def _places(self, alternative: Alternative, cursor: Cursor) -> Iterator[Place]:
        """The devices to try, in the total order. Raises the fault of a device when the search gets to it."""
        if alternative.takes_all:
            place = self._supply.everything_for(alternative)[cursor.slot]
            stock = self._supply.stock(alternative, place.strip)
            if (stock.usable & ~self._taken(alternative, place.strip)) >> place.bit & 1:
                yield place
            return
        after = cursor.after
        strips = self._supply.strips
        for number in range(after.strip.number if after is not None else 0, len(strips)):
            strip = strips[number]
            stock = self._supply.stock(alternative, strip)
            mask = (stock.usable | stock.faulty) & ~self._taken(alternative, strip)
            if after is not None and after.strip is strip:
                mask &= -2 << after.bit
            while mask:
                lowest = mask & -mask
                mask ^= lowest
                bit = lowest.bit_length() - 1
                if stock.faulty & lowest:
                    raise self._supply.fault(alternative, Place(strip, bit))
                if not (stock.shared & lowest and self._supply.is_crowded(stock, strip, bit)):
                    yield Place(strip, bit)

    def _taken(self, alternative: Alternative, strip: Strip) -> int:
        """Devices that earlier picks keep from this one. Admin access is kept off by picks of its own claim alone."""
        if alternative.is_admin:
            return self.ledger.taken_by_claim.get((alternative.claim, strip.number), 0)
        return self.ledger.taken.get(strip.number, 0)
