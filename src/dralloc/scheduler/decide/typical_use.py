"""What typical pods could still use of the devices of a node.

For the devices of each typical pod, `worth` is how much of the idle devices its copies could use, weighted by how frequent it is.
`starved` is how much of them cpu, memory and other resources of the node do not suffice for, weighted by the devices that the
pods ask for. Both are integers; amounts of devices are in thousandths, times `ONE`.

The number of copies is exact for one request without constraints, whatever capacities it asks for. Otherwise it is an upper
bound: several requests (a NIC beside a GPU) get as many copies as the scarcest of them; devices that must agree in an attribute are
counted for each value; devices that must differ take one of each value; partitions are counted as the smallest that matches,
by what is left of counters; of alternatives, the first that matches the node's devices counts.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Final, NamedTuple

from dralloc.devices.allocator.attribute_constraints import Constraint
from dralloc.devices.allocator.candidate_devices import DeviceCriteria
from dralloc.devices.allocator.requests import Alternative, Demand
from dralloc.scheduler.decide.local_devices import Amounts, LocalDevices, UnitLayout, copies
from dralloc.scheduler.decide.typical_pods import CountedPod

SHIFT: Final = 20
ONE: Final = 1 << SHIFT
# More than any node has left of a resource that a pod does not ask for.
PLENTY: Final = 1 << 80
NOTHING: Final[Mapping[str, int]] = {}


class _Request(NamedTuple):
    criteria: DeviceCriteria
    number: int
    takes_all: bool


class _Need(NamedTuple):
    """The devices of a typical pod, by one choice of alternatives."""

    requests: tuple[_Request, ...]
    constraint: Constraint | None = None

    @property
    def is_single(self) -> bool:
        return len(self.requests) == 1 and self.constraint is None and self.requests[0].number == 1


class _TypicalShape(NamedTuple):
    """`needs` are in the order of preference."""

    needs: tuple[_Need, ...]
    resources: Mapping[str, int]
    weight: int


class TypicalUse:
    """The typical pods, and what is known about them on each layout."""

    def __init__(self, pods: Iterable[CountedPod]) -> None:
        counted = [pod for pod in pods if pod.requirements.demand is not None]
        total = sum(pod.number for pod in counted)
        numbers: Counter[tuple[tuple[_Need, ...], tuple[tuple[str, int], ...]]] = Counter()
        for pod in counted:
            demand = pod.requirements.demand
            needs = _needs_of(demand) if demand is not None else ()
            numbers[needs, tuple(sorted(pod.requirements.node.resources.amounts.items()))] += pod.number
        self.shapes = tuple(
            _TypicalShape(needs, dict(resources), (number << SHIFT) // total)
            for (needs, resources), number in numbers.items()
            if needs
        )
        self._units = _resource_units(self.shapes)

    def worth(self, devices: LocalDevices) -> int:
        """How much of the idle devices typical pods could use."""
        known: int | None = devices.answers.get(self)
        if known is None:
            known = devices.answers[self] = self._on(devices.layout).worth(devices.left)
        return known

    def starved(self, devices: LocalDevices, free: Mapping[str, int], taken: Mapping[str, int] = NOTHING) -> int:
        """How much of the idle devices the node's other resources do not suffice for, without what is taken of them."""
        return self._on(devices.layout).starved(devices.idle, free, taken) if devices.idle else 0

    def _on(self, layout: UnitLayout) -> _LayoutUse:
        known: _LayoutUse | None = layout.answers.get(self)
        if known is None:
            known = layout.answers[self] = _LayoutUse(self.shapes, self._units, layout)
        return known


def _needs_of(demand: Demand) -> tuple[_Need, ...]:
    """The first alternatives of all requests, then the second ones, and so on."""
    depth = max((len(request.alternatives) for request in demand.requests), default=0)
    needs = [
        _need_of([request.alternatives[min(index, len(request.alternatives) - 1)] for request in demand.requests])
        for index in range(depth)
    ]
    return tuple(need for need in needs if need.requests)


def _need_of(alternatives: Sequence[Alternative]) -> _Need:
    counts: Counter[tuple[DeviceCriteria, bool]] = Counter()
    for each in alternatives:
        if each.fault is None and not each.is_admin:
            counts[each.criteria, each.takes_all] += 1 if each.is_aggregated or each.takes_all else each.count
    constraints = [constraint for each in alternatives for constraint in each.constraints]
    requests = tuple(_Request(criteria, count, takes_all) for (criteria, takes_all), count in counts.items())
    return _Need(requests, constraints[0] if constraints else None)


def _resource_units(shapes: Iterable[_TypicalShape]) -> Mapping[str, int]:
    """The unit in which each resource is counted: fine enough for the smallest typical request."""
    least: dict[str, int] = {}
    for shape in shapes:
        for name, nanos in shape.resources.items():
            if nanos > 0:
                least[name] = min(least.get(name, nanos), nanos)
    return {name: max(nanos >> 10, 1) for name, nanos in sorted(least.items())}


class _LayoutUse:
    """Typical pods on the nodes with one layout."""

    def __init__(self, shapes: Sequence[_TypicalShape], resource_units: Mapping[str, int], layout: UnitLayout) -> None:
        self._layout = layout
        matching = [(shape, need) for shape in shapes if (need := self._usable_need(shape)) is not None]
        weights: Counter[_Need] = Counter()
        for shape, need in matching:
            weights[need] += shape.weight
        # By unit: the single requests that match it, with what they take and their weighted size.
        self._singles: list[list[tuple[Amounts, int]]] = [[] for _ in layout.units]
        self._others: list[tuple[_Need, int]] = []
        for need, weight in weights.items():
            if not need.is_single:
                self._others.append((need, weight))
                continue
            for index, charge in enumerate(layout.charges(need.requests[0].criteria)):
                if charge is not None:
                    self._singles[index].append((charge, weight * layout.units[index].size(charge)))
        self._known: list[dict[Amounts, int]] = [{} for _ in layout.units]
        self._starvation = _Starvation([(shape, self._amount(need)) for shape, need in matching], resource_units)

    def _usable_need(self, shape: _TypicalShape) -> _Need | None:
        """The first choice of alternatives of which the node has devices."""
        for need in shape.needs:
            if all(any(self._layout.charges(request.criteria)) for request in need.requests):
                return need
        return None

    def _amount(self, need: _Need) -> int:
        """The thousandths of devices that a copy takes."""
        return sum(request.number * self._size(request) for request in need.requests)

    def _size(self, request: _Request) -> int:
        charges = self._layout.charges(request.criteria)
        sizes = [
            unit.size(charge) for unit, charge in zip(self._layout.units, charges, strict=True) if charge is not None
        ]
        return sum(sizes) if request.takes_all else sizes[0]

    def starved(self, idle: int, free: Mapping[str, int], taken: Mapping[str, int]) -> int:
        return self._starvation.of(idle, free, taken)

    def worth(self, left: tuple[Amounts, ...]) -> int:
        total = 0
        for index, amounts in enumerate(left):
            known = self._known[index].get(amounts)
            if known is None:
                known = sum(copies(amounts, charge) * weighted for charge, weighted in self._singles[index])
                self._known[index][amounts] = known
            total += known
        return total + sum(weight * self._used_by(need, left) for need, weight in self._others)

    def _used_by(self, need: _Need, left: tuple[Amounts, ...]) -> int:
        """How much of the devices copies of the need use, together."""
        constraint = need.constraint
        everything = range(len(left))
        if constraint is None or not constraint.wants_equal:
            return self._copies(need, left, everything) * self._amount(need)
        by_value: dict[object, list[int]] = {}
        for index in everything:
            for value in self._values(constraint, index):
                by_value.setdefault(value, []).append(index)
        return sum(self._copies(need, left, indexes) for indexes in by_value.values()) * self._amount(need)

    def _values(self, constraint: Constraint, index: int) -> Iterable[object]:
        unit = self._layout.units[index]
        if unit.is_card:
            return (index,)
        return constraint.known_values_at(unit.slices[0], unit.bits[0]) or ()

    def _copies(self, need: _Need, left: tuple[Amounts, ...], indexes: Iterable[int]) -> int:
        indexes = tuple(indexes)
        return min(self._copies_of(request, need.constraint, left, indexes) for request in need.requests)

    def _copies_of(
        self, request: _Request, constraint: Constraint | None, left: tuple[Amounts, ...], indexes: tuple[int, ...]
    ) -> int:
        charges = self._layout.charges(request.criteria)
        served = {index: copies(left[index], charge) for index in indexes if (charge := charges[index]) is not None}
        if request.takes_all:
            return min(served.values(), default=0)
        if constraint is not None and not constraint.wants_equal:
            by_value: Counter[object] = Counter()
            for index, number in served.items():
                for value in self._values(constraint, index):
                    by_value[value] += number
            return _copies_of_several(by_value.values(), request.number)
        return _copies_of_several(served.values(), request.number)


def _copies_of_several(served: Iterable[int], count: int) -> int:
    """How often `count` different devices can be had, if each can be had as often as it says."""
    numbers = sorted(served, reverse=True)
    if count == 1:
        return sum(numbers)
    # A copy uses a device once: of one that can serve more copies than there are, only that many count.
    least, most = 0, sum(numbers) // count
    while least < most:
        middle = (least + most + 1) // 2
        if sum(min(number, middle) for number in numbers) >= count * middle:
            least = middle
        else:
            most = middle - 1
    return least


class _Resource(NamedTuple):
    """A resource of typical pods: its unit, and by pod the amount of devices that one unit suffices for.

    `order` are the pods by that rate, with the sums of the weights, and of weight × rate, of those before each.
    """

    name: str
    unit: int
    rates: list[int]
    order: list[int]
    sorted_rates: list[int]
    weights: list[int]
    weighted: list[int]

    def lacking(self, wanted: int, left: int) -> int:
        """How many of the pods, in their order, cannot use the wanted devices."""
        return bisect_left(self.sorted_rates, -(-wanted // left)) if left else len(self.order)


# How many pods lack the resource, and how many units of it are left.
_Scarce = tuple[int, int, _Resource]


class _Starvation:
    """How much of idle devices the resources of a node do not suffice for: the mean over typical pods, by what they ask for.

    A pod that takes `amount` of devices for `nanos` of a resource can use amount ÷ nanos of them for each nano that is left.
    """

    def __init__(self, pods: Sequence[tuple[_TypicalShape, int]], units: Mapping[str, int]) -> None:
        rows = [(shape.weight * amount, shape.resources, amount) for shape, amount in pods if amount]
        self._total = sum(weight for weight, *_ in rows)
        self._weights = [weight for weight, *_ in rows]
        self._resources = [
            self._resource(
                name,
                unit,
                [
                    (amount << SHIFT) // max(nanos // unit, 1) if (nanos := resources.get(name, 0)) else PLENTY
                    for _, resources, amount in rows
                ],
            )
            for name, unit in units.items()
        ]

    def _resource(self, name: str, unit: int, rates: list[int]) -> _Resource:
        order = sorted(range(len(rates)), key=rates.__getitem__)
        weights = accumulate((self._weights[pod] for pod in order), initial=0)
        weighted = accumulate((self._weights[pod] * rates[pod] for pod in order), initial=0)
        return _Resource(name, unit, rates, order, [rates[pod] for pod in order], list(weights), list(weighted))

    def of(self, idle: int, free: Mapping[str, int], taken: Mapping[str, int]) -> int:
        wanted = idle << SHIFT
        # The resource that most pods lack is summed up at once; of the others, only pods that lack them count.
        most: _Scarce | None = None
        others: list[_Scarce] = []
        for resource in self._resources:
            name = resource.name
            nanos = free.get(name, 0) - taken.get(name, 0)
            left = nanos // resource.unit if nanos > 0 else 0
            number = resource.lacking(wanted, left)
            if not number:
                continue
            if most is None or number > most[0]:
                if most is not None:
                    others.append(most)
                most = number, left, resource
            else:
                others.append((number, left, resource))
        if most is None or not self._total:
            return 0
        number, left, resource = most
        starved = resource.weights[number] * wanted - resource.weighted[number] * left
        if others:
            starved += self._beyond(wanted, left, resource.rates, others)
        return starved // self._total

    def _beyond(self, wanted: int, left: int, rates: Sequence[int], others: Sequence[_Scarce]) -> int:
        """How much more is starved by the other resources."""
        weights = self._weights
        usable: dict[int, int] = {}
        for number, other_left, other in others:
            other_rates = other.rates
            for pod in other.order[:number]:
                after, before = other_left * other_rates[pod], left * rates[pod]
                if after < before and after < usable.get(pod, wanted):
                    usable[pod] = after
        return sum([weights[pod] * (min(wanted, left * rates[pod]) - after) for pod, after in usable.items()])
