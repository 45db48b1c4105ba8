"""The rules of allocation as plainly as they can be written: what the allocator is tested against.

No masks, no memory, no undo: every step of the search gets a state of its own, and every check is made on the objects of
the API. It shares with the allocator the leaves that tables of cases pin (charges, tolerations, selectors) and nothing else.
It takes exponential time, so it is for small problems.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from dralloc.allocator.capacity import CapacityError, Charge, charge_for
from dralloc.allocator.taints import repels
from dralloc.api.resource_v1 import (
    ALL,
    Device,
    DeviceAttribute,
    DeviceConstraint,
    DeviceSubRequest,
    ExactDeviceRequest,
    ResourceSlice,
)
from dralloc.cel.device import DeviceView
from dralloc.cel.errors import CelError
from dralloc.cel.program import compile_selector
from dralloc.snapshot.node_selectors import NodeSelectorError
from dralloc.testing.plain_pools import (
    PlainFatal,
    PlainPool,
    PlainPools,
    PoolKey,
    World,
    draws_of,
    held_devices,
    is_placed,
)

RESULTS_MAX = 32


@dataclass(frozen=True)
class Given:
    """A device given to a request; `consumed` where it is a share."""

    request: str
    device: tuple[str, str, str]
    consumed: tuple[tuple[str, str], ...] | None


@dataclass(frozen=True)
class PlainOutcome:
    """`given` has one tuple for each claim; None where there is no solution."""

    given: tuple[tuple[Given, ...], ...] | None = None
    has_invalid_pool: bool = False
    # Claim, request and device at fault, as far as they are known.
    fatal: tuple[str | None, str | None, str | None] | None = None
    is_out_of_steps: bool = False


class _OverLimit(Exception):
    """Only another alternative can help."""


class _OutOfSteps(Exception):
    pass


def allocate_plainly(world: World, steps_max: int = 10_000) -> PlainOutcome:
    try:
        pools = PlainPools(world)
        given = _PlainSearch(world, pools, steps_max).run()
    except PlainFatal as fatal:
        return PlainOutcome(fatal=fatal.at)
    except _OutOfSteps:
        return PlainOutcome(is_out_of_steps=True)
    return PlainOutcome(given, has_invalid_pool=given is None and any(pool.is_invalid for pool in pools.ordered))


# --- Search -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Way:
    """One way to serve a request."""

    claim: int
    name: str
    stated: ExactDeviceRequest | DeviceSubRequest
    constraints: tuple[DeviceConstraint, ...]

    @property
    def is_admin(self) -> bool:
        return isinstance(self.stated, ExactDeviceRequest) and bool(self.stated.admin_access)


Candidate = tuple[PlainPool, ResourceSlice, Device]
DeviceKey = tuple[str, str, str]


@dataclass(frozen=True)
class _State:
    # Who took a device whole, of this pod's claims.
    takers: tuple[tuple[DeviceKey, int], ...] = ()
    given: tuple[tuple[int, Given], ...] = ()
    # What was taken of shared devices, and of counters.
    shares: Mapping[DeviceKey, Mapping[str, int]] = field(default_factory=dict)
    drawn: Mapping[tuple[PoolKey, tuple[str, str]], int] = field(default_factory=dict)
    # For each claim and constraint the attributes of the devices taken so far.
    seen: Mapping[tuple[int, int], tuple[DeviceAttribute, ...]] = field(default_factory=dict)


class _PlainSearch:
    def __init__(self, world: World, pools: PlainPools, steps_max: int) -> None:
        self._world = world
        self._pools = pools
        self._steps = steps_max
        self._everything: dict[tuple[int, str], list[Candidate]] = {}
        self._candidates = [(pool, each, device) for pool in pools.ordered for each, device in pool.devices]
        self._requests = [
            list(self._ways(index, request))
            for index, claim in enumerate(world.claims)
            for request in claim.spec.devices.requests or ()
        ]

    def _ways(self, claim: int, request: Any) -> Iterator[_Way]:
        constraints = self._world.claims[claim].spec.devices.constraints
        for stated in request.first_available or (request.exactly,):
            name = f"{request.name}/{stated.name}" if request.first_available else request.name
            covering = tuple(
                found for found in constraints if not found.requests or {request.name, name} & set(found.requests)
            )
            yield _Way(claim, name, stated, covering)

    def run(self) -> tuple[tuple[Given, ...], ...] | None:
        self._validate()
        solution = self._serve(0, _State())
        if solution is None:
            return None
        return tuple(
            tuple(given for claim, given in solution.given if claim == index)
            for index in range(len(self._world.claims))
        )

    def _validate(self) -> None:
        for claim in range(len(self._world.claims)):
            least = 0
            for ways in self._requests:
                if ways[0].claim == claim:
                    least += min([self._size(way) for way in ways])
            if least > RESULTS_MAX:
                raise PlainFatal(self._claim_name(claim))

    def _size(self, way: _Way) -> int:
        if way.stated.device_class_name not in self._world.classes:
            raise PlainFatal(self._claim_name(way.claim), way.name)
        if way.stated.allocation_mode != ALL:
            return way.stated.count
        if (way.claim, way.name) not in self._everything:
            self._everything[way.claim, way.name] = list(self._find_everything(way))
        return len(self._everything[way.claim, way.name])

    def _find_everything(self, way: _Way) -> Iterator[Candidate]:
        for pool in self._pools.ordered:
            if pool.is_incomplete or pool.is_invalid:
                raise PlainFatal(self._claim_name(way.claim), way.name)
            for each, device in pool.devices:
                if self._is_selected(way, each, device) and not isinstance(self._charge(way, each, device), str):
                    yield pool, each, device

    def _claim_name(self, claim: int) -> str:
        metadata = self._world.claims[claim].metadata
        return f"{metadata.namespace}/{metadata.name}"

    def _serve(self, index: int, state: _State) -> _State | None:
        self._step()
        if index == len(self._requests):
            return state
        ways = self._requests[index]
        if len(ways) == 1 and "/" not in ways[0].name:
            return self._fill(index, ways[0], 0, 0, state)
        limited = 0
        for way in ways:
            try:
                if (solution := self._fill(index, way, 0, 0, state)) is not None:
                    return solution
            except _OverLimit:
                limited += 1
        if limited == len(ways):
            raise _OverLimit
        return None

    def _fill(self, index: int, way: _Way, slot: int, start: int, state: _State) -> _State | None:
        """Serves the rest of the request, from a slot on, and everything after it."""
        self._step()
        size = self._size(way)
        takes_all = way.stated.allocation_mode == ALL
        if takes_all and size == 0:
            return None
        if slot == size:
            try:
                return self._serve(index + 1, state)
            except _OverLimit:
                is_last = index + 1 == len(self._requests) or self._requests[index + 1][0].claim != way.claim
                if is_last:
                    return None
                raise
        if sum(claim == way.claim for claim, _ in state.given) + size - slot > RESULTS_MAX:
            raise _OverLimit
        if takes_all:
            taken = self._take(way, self._everything[way.claim, way.name][slot], state)
            return taken and self._fill(index, way, slot + 1, 0, taken)
        for at in range(start, len(self._candidates)):
            pool, each, device = self._candidates[at]
            if self._is_in_use(way, pool, device, state) or not self._is_selected(way, each, device):
                continue
            if isinstance(self._charge(way, each, device), str):
                continue
            taken = self._take(way, self._candidates[at], state)
            solution = taken and self._fill(index, way, slot + 1, at + 1, taken)
            if solution is not None:
                return solution
        return None

    def _step(self) -> None:
        self._steps -= 1
        if self._steps < 0:
            raise _OutOfSteps

    # --- One device -----------------------------------------------------------------------------------------------

    def _is_in_use(self, way: _Way, pool: PlainPool, device: Device, state: _State) -> bool:
        key = (*pool.key, device.name)
        if way.is_admin:
            return (key, way.claim) in state.takers
        return any(taken == key for taken, _ in state.takers) or any(
            (result.driver, result.pool, result.device) == key
            and (result.share_id is None or not self._world.features.consumable_capacity)
            for result in held_devices(self._world)
        )

    def _is_selected(self, way: _Way, each: ResourceSlice, device: Device) -> bool:
        if device.binding_conditions and not self._world.features.binding_conditions:
            return False
        selectors = (*self._world.classes[way.stated.device_class_name].spec.selectors, *way.stated.selectors)
        at = (self._claim_name(way.claim), way.name, f"{each.spec.driver}/{each.spec.pool.name}/{device.name}")
        try:
            view = DeviceView.build(
                each.spec.driver,
                device.attributes,
                {name: capacity.value for name, capacity in device.capacity.items()},
                device.allow_multiple_allocations,
            )
            if not all(
                compile_selector(selector.cel.expression).matches(view) for selector in selectors if selector.cel
            ):
                return False
            return not each.spec.per_device_node_selection or is_placed(device, self._world.node)
        except (CelError, NodeSelectorError):
            raise PlainFatal(*at) from None

    def _charge(self, way: _Way, each: ResourceSlice, device: Device) -> Charge | str:
        if not self._world.features.consumable_capacity:
            return Charge((), ())
        asked = way.stated.capacity.requests if way.stated.capacity is not None else {}
        try:
            return charge_for(device.capacity, asked, fractional_ranges=self._world.features.fractional_ranges)
        except CapacityError:
            at = f"{each.spec.driver}/{each.spec.pool.name}/{device.name}"
            raise PlainFatal(self._claim_name(way.claim), way.name, at) from None

    def _take(self, way: _Way, candidate: Candidate, state: _State) -> _State | None:
        pool, each, device = candidate
        key = (*pool.key, device.name)
        if self._is_in_use(way, pool, device, state):
            return None
        is_share = bool(device.allow_multiple_allocations) and self._world.features.consumable_capacity
        drawn = self._draw(pool, device, is_share, state)
        if drawn is None or self._is_repelled(way, each, device):
            return None
        seen = self._satisfy(way, each, device, state)
        charge = self._charge(way, each, device)
        assert isinstance(charge, Charge)
        taken = {name: amount.nanos for name, amount in zip(device.capacity, charge.amounts, strict=False)}
        if seen is None or not self._fits(key, device, taken, state):
            return None
        consumed = None
        takers, shares = (*state.takers, (key, way.claim)), state.shares
        if is_share:
            before = state.shares.get(key, {})
            takers = state.takers
            shares = {**state.shares, key: {name: before.get(name, 0) + amount for name, amount in taken.items()}}
            consumed = tuple(
                sorted((name, str(amount)) for name, amount in zip(device.capacity, charge.amounts, strict=True))
            )
        given = (*state.given, (way.claim, Given(way.name, key, consumed)))
        return replace(state, takers=takers, given=given, shares=shares, drawn=drawn, seen=seen)

    def _draw(self, pool: PlainPool, device: Device, is_share: bool, state: _State) -> Mapping[Any, int] | None:
        if not device.consumes_counters:
            return state.drawn
        if not self._world.features.partitionable_devices:
            return None
        key = (*pool.key, device.name)
        if is_share and (
            key in state.shares
            or any(
                result.share_id
                for result in held_devices(self._world)
                if (result.driver, result.pool, result.device) == key
            )
        ):
            return state.drawn
        drawn = dict(state.drawn)
        for counter, amount in draws_of(device):
            drawn[pool.key, counter] = drawn.get((pool.key, counter), 0) + amount
        is_enough = all(drawn.get((pool.key, counter), 0) <= left for counter, left in pool.counters.items())
        return drawn if is_enough else None

    def _is_repelled(self, way: _Way, each: ResourceSlice, device: Device) -> bool:
        if not self._world.features.device_taints:
            return False
        from_rules = [
            rule.spec.taint
            for rule in self._world.rules
            if self._world.features.taint_rules
            and (selector := rule.spec.device_selector) is not None
            and selector.driver in (None, each.spec.driver)
            and selector.pool in (None, each.spec.pool.name)
            and selector.device in (None, device.name)
        ]
        return any(repels(taint, way.stated.tolerations) for taint in (*device.taints, *from_rules))

    def _satisfy(self, way: _Way, each: ResourceSlice, device: Device, state: _State) -> Mapping[Any, Any] | None:
        seen = dict(state.seen)
        constraints = self._world.claims[way.claim].spec.devices.constraints
        for number, constraint in enumerate(constraints):
            if constraint not in way.constraints:
                continue
            attribute = _attribute(constraint, each.spec.driver, device)
            before = seen.get((way.claim, number), ())
            if attribute is None or not _agrees(constraint, before, attribute):
                if way.stated.allocation_mode == ALL:
                    at = f"{each.spec.driver}/{each.spec.pool.name}/{device.name}"
                    raise PlainFatal(self._claim_name(way.claim), way.name, at)
                return None
            seen[way.claim, number] = (*before, attribute)
        return seen

    def _fits(self, key: DeviceKey, device: Device, taken: Mapping[str, int], state: _State) -> bool:
        for name, amount in taken.items():
            used = state.shares.get(key, {}).get(name, 0) + sum(
                result.consumed_capacity[name].nanos
                for result in held_devices(self._world)
                if (result.driver, result.pool, result.device) == key
                and result.share_id
                and name in result.consumed_capacity
            )
            if used + amount > device.capacity[name].value.nanos:
                return False
        return True


def _attribute(constraint: DeviceConstraint, driver: str, device: Device) -> DeviceAttribute | None:
    name = constraint.match_attribute or constraint.distinct_attribute or ""
    domain, _, identifier = name.partition("/")
    found = device.attributes.get(name)
    return found if found is not None or domain != driver else device.attributes.get(identifier)


def _agrees(constraint: DeviceConstraint, before: tuple[DeviceAttribute, ...], attribute: DeviceAttribute) -> bool:
    if not before:
        return True
    is_scalar = any(value is not None for value in (attribute.string, attribute.int, attribute.bool, attribute.version))
    if constraint.match_attribute is not None:
        return is_scalar and attribute == before[0]
    return is_scalar and attribute not in before
