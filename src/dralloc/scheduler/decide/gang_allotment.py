"""The search for a gang on nodes that do not compete for devices: how many units of each kind go to which node.

For each class of nodes, the combinations of units that fit and cannot be enlarged are listed. A combination is chosen for one
node after the other; what is left is remembered, so that no state is explored twice. Two bounds end the search early:

- Each kind fits only so often on the nodes that are left.
- Prices: give each kind any price. If the cheapest `needed` members cost more than the nodes that are left can take at best, no
  choice is possible. The prices that prove the most are found by repeated adjustment; they also order the choices.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from dralloc.primitives.work_allowance import check_work, work_done
from dralloc.scheduler.decide.gang_reach import GangReach
from dralloc.scheduler.decide.gang_rooms import Counts, UnitRoom, UnitRooms

# How often prices are adjusted, and how finely.
ADJUSTMENTS_MAX: Final = 60
PRICE_SCALE: Final = 10_000
# How many of the best prices bound the search.
PRICES_MAX: Final = 6
# The steps of a search in one order, before another is tried.
TRY_STEPS: Final = 300
# Of two combinations, in units of `work_allowance`.
WORK_OF_COMPARISON: Final = 5
# A class with more combinations than that is searched without a list of them.
COMBINATIONS_MAX: Final = 400


class TooManyCombinations(Exception):
    """The members are too different for a list of combinations."""


@dataclass(frozen=True, slots=True)
class Shortfall:
    """Proof that the units cannot be placed. `most` of `wanted` members of the kind fit; of all kinds together if it is None."""

    kind: int | None
    most: int
    wanted: int


Prices = tuple[int, ...]
Allotment = tuple[tuple[UnitRoom, Counts], ...]


class GangAllotment:
    """Places `needed` members; `available` units of each kind exist."""

    def __init__(self, rooms: UnitRooms, nodes: Sequence[UnitRoom], available: Counts, needed: int) -> None:
        self._rooms = rooms
        self._available = available
        self._needed = needed
        self._sizes = tuple(kind.size for kind in rooms.kinds)
        self._spare = sum(map(int.__mul__, available, self._sizes)) - needed
        by_class: dict[object, list[UnitRoom]] = {}
        for room in nodes:
            by_class.setdefault(room.key, []).append(room)
        self._classes = list(by_class.values())
        # The combinations of each class in the order of their value.
        self._by_value: dict[int, list[Counts]] = {}

    def search(self) -> Allotment | Shortfall:
        """A choice for every node that gets units, or why there is none."""
        if (shortfall := self._count()) is not None:
            return shortfall
        self._list_combinations()
        combinations = [self._combinations[index] for index in self._order]
        reach = GangReach(self._available, combinations, self._sizes, self._needed)
        if reach.is_fast:
            return self._by_counts(reach)
        found = self._find_prices()
        if isinstance(found, Shortfall):
            return found
        return self._try_orders(found, reach)

    def _by_counts(self, reach: GangReach) -> Allotment | Shortfall:
        self._rooms.steps.take(len(self._order))
        found = reach.search()
        if isinstance(found, int):
            return Shortfall(None, found, self._needed)
        return self._allotment([*enumerate(found)])

    # --- What fits --------------------------------------------------------------------------------------------------

    def _count(self) -> Shortfall | None:
        """How often each kind fits alone; the proof if that is too seldom."""
        self._caps = [self._cap_of(rooms[0]) for rooms in self._classes]
        most = 0
        for kind, wanted in enumerate(self._available):
            fit = sum(caps[kind] * len(rooms) for caps, rooms in zip(self._caps, self._classes, strict=True))
            size = self._sizes[kind]
            if fit < wanted and (wanted - fit) * size > self._spare:
                return Shortfall(kind, fit * size, wanted * size)
            most += min(fit, wanted) * size
        return Shortfall(None, most, self._needed) if most < self._needed else None

    def _cap_of(self, room: UnitRoom) -> Counts:
        return tuple(self._most(room, self._none, kind, self._available[kind]) for kind in range(len(self._available)))

    @property
    def _none(self) -> Counts:
        return (0,) * len(self._available)

    def _most(self, room: UnitRoom, counts: Counts, kind: int, cap: int) -> int:
        """How many units of the kind fit beside the others, at most `cap`. `counts` has none of the kind."""
        cap = self._rooms.room_left(room, counts, kind, cap)
        if not cap or self._rooms.fits(room, _with(counts, kind, cap)):
            return cap
        cap, fitting, step = cap - 1, 0, 1
        while fitting < cap:
            tried = min(fitting + step, cap)
            if self._rooms.fits(room, _with(counts, kind, tried)):
                fitting, step = tried, step * 2
            elif step > 1:
                cap, step = tried - 1, 1
            else:
                break
        return fitting

    def _list_combinations(self) -> None:
        self._combinations = [
            self._maximal(rooms[0], caps) for rooms, caps in zip(self._classes, self._caps, strict=True)
        ]
        used = [index for index, found in enumerate(self._combinations) if any(map(any, found))]
        # The nodes with the fewest choices come first.
        used.sort(key=lambda index: len(self._combinations[index]))
        self._classes = [self._classes[index] for index in used]
        self._combinations = [self._combinations[index] for index in used]
        self._caps = [self._caps[index] for index in used]
        self._order = [index for index, rooms in enumerate(self._classes) for _ in rooms]

    def _maximal(self, room: UnitRoom, caps: Counts) -> list[Counts]:
        found: list[Counts] = []
        for counts in self._extensions(room, caps, self._none, 0):
            check_work()
            work_done(len(counts) + WORK_OF_COMPARISON * len(found))
            if not any(all(map(int.__le__, counts, known)) for known in found):
                found = [known for known in found if not all(map(int.__le__, known, counts))]
                found.append(counts)
                if len(found) > COMBINATIONS_MAX:
                    raise TooManyCombinations
        return found

    def _extensions(self, room: UnitRoom, caps: Counts, counts: Counts, kind: int) -> Iterator[Counts]:
        while kind < len(caps) and not caps[kind]:
            kind += 1
        if kind == len(caps):
            yield counts
            return
        most = self._most(room, counts, kind, caps[kind])
        rest = any(caps[kind + 1 :])
        for count in range(most, -1, -1):
            yield from self._extensions(room, caps, _with(counts, kind, count), kind + 1)
            if not rest:
                break

    # --- Prices -----------------------------------------------------------------------------------------------------

    def _find_prices(self) -> list[Prices] | Shortfall:
        """Prices for which the nodes can take the least, in relation to what the members cost; the best first."""
        totals = [
            sum(caps[kind] * len(rooms) for caps, rooms in zip(self._caps, self._classes, strict=True))
            for kind in range(len(self._available))
        ]
        weights = [wanted / total if total else 1.0 for wanted, total in zip(self._available, totals, strict=True)]
        even: Prices = tuple(PRICE_SCALE * size for size in self._sizes)
        tried: dict[Prices, float] = {}
        # What units take of devices and of each resource are good prices to begin with.
        for prices in self._rooms.needs_of_units():
            takes, _ = self._most_valuable(prices)
            if self._cheapest(prices, self._available, self._needed) > takes:
                return self._proof(prices, takes)
        for number in range(ADJUSTMENTS_MAX):
            prices = even if not number else _scaled(weights)
            cost = self._cheapest(prices, self._available, self._needed)
            takes, taken = self._most_valuable(prices)
            if cost > takes:
                return self._proof(prices, takes)
            tried[prices] = (takes - cost) / (sum(prices) or 1)
            if takes == cost and number > ADJUSTMENTS_MAX // 2:
                break
            gap = [wanted - got for wanted, got in zip(self._available, taken, strict=True)]
            norm = sum(map(abs, gap)) or 1
            step = 0.5 / (1 + number / 6)
            peak = max(weights) or 1.0
            weights = [max(weight + step * peak * each / norm, 0.0) for weight, each in zip(weights, gap, strict=True)]
            if not any(weights):
                break
        return sorted(tried, key=tried.__getitem__)[:PRICES_MAX]

    def _proof(self, prices: Prices, takes: int) -> Shortfall:
        """How many members fit at most by these prices, the cheapest first."""
        most = 0
        for price, count, size in sorted(zip(prices, self._available, self._sizes, strict=True)):
            fit = count if not price else min(count, takes // price)
            takes -= fit * price
            most += fit * size
        return Shortfall(None, min(most, self._needed - 1), self._needed)

    def _most_valuable(self, prices: Prices) -> tuple[int, list[int]]:
        """What all nodes can take at best, and which units these are."""
        value, taken = 0, [0] * len(prices)
        for rooms, combinations in zip(self._classes, self._combinations, strict=True):
            best = max(combinations, key=lambda counts: _cost(prices, counts))
            value += _cost(prices, best) * len(rooms)
            for kind, count in enumerate(best):
                taken[kind] += count * len(rooms)
        return value, taken

    def _cheapest(self, prices: Prices, available: Sequence[int], needed: int) -> int:
        """The least that `needed` members cost."""
        cost = sum(map(int.__mul__, prices, available))
        spare = sum(map(int.__mul__, available, self._sizes)) - needed
        if not spare:
            return cost
        for price, count, size in sorted(zip(prices, available, self._sizes, strict=True), reverse=True):
            left_out = min(count, spare // size)
            cost -= price * left_out
            spare -= left_out * size
        return cost

    # --- The search -------------------------------------------------------------------------------------------------

    def _try_orders(self, best: Sequence[Prices], reach: GangReach) -> Allotment | Shortfall:
        """Searches with several orders of nodes and choices for a while: a hard search is often easy in another order.

        What is still hard is answered by sets of counts, if they are small enough.
        """
        for number in range(len(best) * 2):
            prices = best[number // 2]
            found = self._choose([prices, *(each for each in best if each is not prices)], TRY_STEPS)
            if found is not None:
                return found
            self._reverse()
        if reach.is_possible:
            # An even number of tries has put the nodes back in order.
            return self._by_counts(reach)
        found = self._choose(best, None)
        assert found is not None, "the search has no limit of its own"
        return found

    def _reverse(self) -> None:
        """Takes the nodes in the opposite order."""
        self._classes.reverse()
        self._combinations.reverse()
        self._caps.reverse()
        self._order = [index for index, rooms in enumerate(self._classes) for _ in rooms]

    def _choose(self, best: Sequence[Prices], steps_max: int | None) -> Allotment | Shortfall | None:
        """None if that takes more than `steps_max` steps."""
        prices, tried = best[0], 0
        self._by_value.clear()
        ends = [(each, self._bounds(each)) for each in best]
        dead: set[tuple[int, int, Counts]] = set()
        choices = [self._options(0, 0, self._available, prices)]
        states: list[tuple[int, Counts]] = [(0, self._available)]
        chosen: list[tuple[int, Counts]] = []
        while choices:
            self._rooms.steps.take()
            tried += 1
            if steps_max is not None and tried > steps_max:
                return None
            position, available = len(choices) - 1, states[-1][1]
            option = next(choices[-1], None)
            if option is None:
                dead.add((position, states[-1][0], available))
                choices.pop()
                states.pop()
                if chosen:
                    chosen.pop()
                continue
            index, counts = option
            left = tuple(map(int.__sub__, available, counts))
            if self._missing(left) <= 0:
                return self._allotment([*chosen, option])
            following = position + 1
            if following == len(self._order):
                continue
            first = index if self._order[following] == self._order[position] else 0
            if (following, first, left) in dead or not self._may_succeed(following, left, ends):
                continue
            chosen.append(option)
            choices.append(self._options(following, first, left, prices))
            states.append((first, left))
        return Shortfall(None, self._needed - 1, self._needed)

    def _missing(self, left: Counts) -> int:
        """How many members need nodes yet."""
        return sum(map(int.__mul__, left, self._sizes)) - self._spare

    def _bounds(self, prices: Prices) -> list[tuple[int, Counts]]:
        """For each position: what the nodes from there on can take at best, and how many units of each kind."""
        ends: list[tuple[int, Counts]] = [(0, self._none)]
        for index in reversed(self._order):
            value, caps = ends[-1]
            best = max(_cost(prices, counts) for counts in self._combinations[index])
            ends.append((value + best, tuple(map(int.__add__, caps, self._caps[index]))))
        return ends[::-1]

    def _may_succeed(
        self, position: int, left: Counts, bounds: Sequence[tuple[Prices, Sequence[tuple[int, Counts]]]]
    ) -> bool:
        caps = bounds[0][1][position][1]
        missing = self._missing(left)
        if sum(min(count, cap) * size for count, cap, size in zip(left, caps, self._sizes, strict=True)) < missing:
            return False
        return all(self._cheapest(prices, left, missing) <= ends[position][0] for prices, ends in bounds)

    def _options(self, position: int, first: int, available: Counts, prices: Prices) -> Iterator[tuple[int, Counts]]:
        """The combinations for the node at the position, the most valuable first. Equal nodes get them in one order."""
        combinations = self._ranked(self._order[position], prices)
        seen: set[Counts] = set()
        for index in range(first, len(combinations)):
            counts = tuple(map(min, combinations[index], available))
            # A choice that another one contains is of no use.
            if counts not in seen and not any(all(map(int.__le__, counts, known)) for known in seen):
                seen.add(counts)
                yield index, counts

    def _ranked(self, index: int, prices: Prices) -> list[Counts]:
        ranked = self._by_value.get(index)
        if ranked is None:
            found = sorted(self._combinations[index], key=lambda counts: (-_cost(prices, counts), counts))
            ranked = self._by_value[index] = found
        return ranked

    def _allotment(self, chosen: Sequence[tuple[int, Counts]]) -> Allotment:
        rooms = [room for same in self._classes for room in same]
        return tuple((room, counts) for room, (_, counts) in zip(rooms, chosen, strict=False) if any(counts))


def _with(counts: Counts, kind: int, count: int) -> Counts:
    return (*counts[:kind], count, *counts[kind + 1 :])


def _cost(prices: Sequence[int], counts: Counts) -> int:
    return sum(map(int.__mul__, prices, counts))


def _scaled(weights: Sequence[float]) -> Prices:
    peak = max(weights)
    return tuple(int(weight / peak * PRICE_SCALE) for weight in weights)
