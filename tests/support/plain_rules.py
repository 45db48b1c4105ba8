"""The second part of the plain allocator: the rules for one device. A state is a value; taking a device returns a new one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from math import inf
from typing import Any

from msgspec import convert, structs

from dralloc.cel.derived_attribute import compile_derived
from dralloc.cel.device import DeviceView
from dralloc.cel.errors import CelError
from dralloc.cel.program import compile_selector
from dralloc.devices.allocator.consumable_capacity import CapacityError
from dralloc.devices.node_selectors import NodeSelectorError
from dralloc.devices.taints import repels
from dralloc.kube.resource_v1 import (
    AGGREGATED_CAPACITY,
    ALL,
    FIRST_FIT,
    MOST_AVAILABLE,
    Device,
    DeviceAttribute,
    DeviceConstraint,
    DeviceSubRequest,
    ExactDeviceRequest,
    ResourceSlice,
)
from dralloc.primitives.quantity import Quantity
from tests.support import plain_pools, plain_shares
from tests.support.plain_shares import PlainShare

Candidate = tuple[plain_pools.PlainPool, ResourceSlice, Device]
DeviceKey = tuple[str, str, str]
# The attributes of one device that a constraint compares.
Compared = tuple[DeviceAttribute | None, ...]


@dataclass(frozen=True)
class Way:
    """One alternative of a request."""

    claim: int
    name: str
    stated: ExactDeviceRequest | DeviceSubRequest
    constraints: tuple[DeviceConstraint, ...]

    @property
    def is_admin(self) -> bool:
        return isinstance(self.stated, ExactDeviceRequest) and bool(self.stated.admin_access)

    @property
    def limits(self) -> Mapping[str, Quantity]:
        return self.stated.capacity.limits if self.stated.capacity is not None else {}

    @property
    def asked(self) -> Mapping[str, Quantity]:
        """The requests, and the limits of what is not requested."""
        return {**self.limits, **(self.stated.capacity.requests if self.stated.capacity is not None else {})}

    @property
    def is_aggregated(self) -> bool:
        return self.stated.allocation_mode == AGGREGATED_CAPACITY

    @property
    def takes_all(self) -> bool:
        return self.stated.allocation_mode == ALL


@dataclass(frozen=True)
class Given:
    """A device allocated to a request; `consumed` is set for a share."""

    request: str
    device: DeviceKey
    consumed: tuple[tuple[str, str], ...] | None
    limits: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class State:
    # Devices taken as a whole, with the claim of this pod that took them.
    takers: tuple[tuple[DeviceKey, int], ...] = ()
    given: tuple[tuple[int, Given], ...] = ()
    # What each share takes of its device, and what is drawn from counters.
    shares: Mapping[DeviceKey, tuple[PlainShare, ...]] = field(default_factory=dict)
    drawn: Mapping[tuple[plain_pools.PoolKey, tuple[str, str]], int] = field(default_factory=dict)
    # By claim and constraint, the attributes of the devices taken so far.
    seen: Mapping[tuple[int, int], tuple[Compared, ...]] = field(default_factory=dict)
    # The devices taken so far, once for each time. Admin access does not count.
    taken: tuple[DeviceKey, ...] = ()


class PlainRules:
    def __init__(self, world: plain_pools.World, pools: plain_pools.PlainPools) -> None:
        self._world = world
        self._pools = pools
        self._everything: dict[tuple[int, str], list[Candidate]] = {}
        # The results of allocated claims, by device.
        self.held: dict[DeviceKey, list[Any]] = {}
        for result in plain_pools.held_devices(world):
            self.held.setdefault((result.driver, result.pool, result.device), []).append(result)
        self._selected: dict[tuple[int, str, DeviceKey], bool] = {}
        # All devices in the order of the search.
        self.candidates = [(pool, each, device) for pool in pools.ordered for each, device in pool.devices]
        self.requests = [
            list(self._ways(index, request))
            for index, claim in enumerate(world.claims)
            for request in claim.spec.devices.requests or ()
        ]

    def _ways(self, claim: int, request: Any) -> Iterator[Way]:
        constraints = self._world.claims[claim].spec.devices.constraints
        for stated in request.first_available or (request.exactly,):
            name = f"{request.name}/{stated.name}" if request.first_available else request.name
            covering = tuple(
                found for found in constraints if not found.requests or {request.name, name} & set(found.requests)
            )
            yield Way(claim, name, stated, covering)

    def size(self, way: Way) -> int:
        if way.stated.device_class_name not in self._world.classes:
            raise plain_pools.PlainFatal(self.claim_name(way.claim), way.name)
        if way.is_aggregated:
            return 1
        if not way.takes_all:
            return way.stated.count
        if (way.claim, way.name) not in self._everything:
            self._everything[way.claim, way.name] = list(self._find_everything(way))
        return len(self._everything[way.claim, way.name])

    def everything(self, way: Way) -> list[Candidate]:
        self.size(way)
        return self._everything[way.claim, way.name]

    def _find_everything(self, way: Way) -> Iterator[Candidate]:
        for pool in self._pools.ordered:
            if pool.is_incomplete or pool.is_invalid:
                raise plain_pools.PlainFatal(self.claim_name(way.claim), way.name)
            for each, device in pool.devices:
                if self._is_selected(way, each, device) and not isinstance(self._charge(way, each, device), str):
                    yield pool, each, device

    def claim_name(self, claim: int) -> str:
        metadata = self._world.claims[claim].metadata
        return f"{metadata.namespace}/{metadata.name}"

    def may_try(self, way: Way, candidate: Candidate, state: State) -> bool:
        """True if the search tries to take the device."""
        pool, each, device = candidate
        if self._is_in_use(way, pool, device, state) or not self._is_allocated_enough(way, candidate, state):
            return False
        if not self._is_selected(way, each, device):
            return False
        return not isinstance(self._charge(way, each, device), str)

    def _is_in_use(self, way: Way, pool: plain_pools.PlainPool, device: Device, state: State) -> bool:
        key = (*pool.key, device.name)
        if way.is_admin:
            return (key, way.claim) in state.takers
        return any(taken == key for taken, _ in state.takers) or any(
            result.share_id is None or not self._world.features.consumable_capacity for result in self.held.get(key, ())
        )

    def _is_selected(self, way: Way, each: ResourceSlice, device: Device) -> bool:
        key = (way.claim, way.name, (each.spec.driver, each.spec.pool.name, device.name))
        if key not in self._selected:
            self._selected[key] = self._select(way, each, device)
        return self._selected[key]

    def _select(self, way: Way, each: ResourceSlice, device: Device) -> bool:
        if device.binding_conditions and not self._world.features.binding_conditions:
            return False
        selectors = (*self._world.classes[way.stated.device_class_name].spec.selectors, *way.stated.selectors)
        at = (self.claim_name(way.claim), way.name, f"{each.spec.driver}/{each.spec.pool.name}/{device.name}")
        try:
            view = _view(each, device)
            if not all(
                compile_selector(selector.cel.expression).matches(view) for selector in selectors if selector.cel
            ):
                return False
            return not each.spec.per_device_node_selection or plain_pools.is_placed(device, self._world.node)
        except (CelError, NodeSelectorError):
            raise plain_pools.PlainFatal(*at) from None

    def _charge(self, way: Way, each: ResourceSlice, device: Device) -> dict[str, Quantity] | str:
        """What an unused device would give, without strategies, or why it cannot."""
        if not self._world.features.consumable_capacity or plain_shares.missing_gate(device, self._world.features):
            return {}
        if way.is_aggregated:
            return self._base_charge(way, each, device)
        try:
            return plain_shares.charge(
                device, way.asked, way.limits, fractional_ranges=self._world.features.fractional_ranges
            )
        except CapacityError:
            at = f"{each.spec.driver}/{each.spec.pool.name}/{device.name}"
            raise plain_pools.PlainFatal(self.claim_name(way.claim), way.name, at) from None

    def ordered(self, way: Way, state: State) -> list[Candidate]:
        """All devices in the order that the request prefers; those that cannot be evaluated come last."""
        preference = way.stated.device_preference
        if preference is None:
            preference = self._world.classes[way.stated.device_class_name].spec.device_preference
        if preference in (None, FIRST_FIT):
            return self.candidates
        is_most = preference == MOST_AVAILABLE

        def rank(candidate: Candidate) -> tuple[bool, float | Fraction, int]:
            available = self._available(way, candidate, state)
            count = self._allocations(candidate, state)
            if available is None:
                return True, 0, 0
            return (False, -available, count) if is_most else (False, available, -count)

        return sorted(self.candidates, key=rank)

    def _available(self, way: Way, candidate: Candidate, state: State) -> float | Fraction | None:
        """How often the device has what the request asks for, or what it takes if it asks for nothing; None if that cannot be
        evaluated."""
        pool, each, device = candidate
        try:
            self._is_selected(way, each, device)
            charge = self._charge(way, each, device)
        except plain_pools.PlainFatal:
            return None
        units = {name: amount.nanos for name, amount in way.asked.items() if amount.nanos}
        if not units and not isinstance(charge, str):
            units = {name: amount.nanos for name, amount in charge.items() if amount.nanos}
        key = (*pool.key, device.name)
        left = [
            Fraction(device.capacity[name].value.nanos - self._used(key, name, state), unit)
            for name, unit in units.items()
            if name in device.capacity
        ]
        return min(left, default=inf)

    def _allocations(self, candidate: Candidate, state: State) -> int:
        pool, _, device = candidate
        key = (*pool.key, device.name)
        return len(self.held.get(key, ())) + state.taken.count(key)

    def _is_allocated_enough(self, way: Way, candidate: Candidate, state: State) -> bool:
        limits = way.stated.allocations
        if limits is None:
            return True
        count = self._allocations(candidate, state)
        return (limits.min or 0) <= count and (limits.max is None or count <= limits.max)

    # --- Aggregated capacity ----------------------------------------------------------------------------------------

    def totals(self, way: Way) -> Mapping[str, int]:
        assert way.stated.capacity is not None
        return {name: total.nanos for name, total in way.stated.capacity.requests.items()}

    def _base_charge(self, way: Way, each: ResourceSlice, device: Device) -> dict[str, Quantity] | str:
        """What is taken of the capacities that are not summed."""
        if not way.asked.keys() <= device.capacity.keys():
            return "a capacity is missing"
        others = {name: capacity for name, capacity in device.capacity.items() if name not in way.asked}
        try:
            taken = plain_shares.charge(
                structs.replace(device, capacity=others),
                {},
                {},
                fractional_ranges=self._world.features.fractional_ranges,
            )
        except CapacityError:
            at = f"{each.spec.driver}/{each.spec.pool.name}/{device.name}"
            raise plain_pools.PlainFatal(self.claim_name(way.claim), way.name, at) from None
        return taken if isinstance(taken, str) else {**dict.fromkeys(device.capacity, Quantity.ZERO), **taken}

    def givers(self, way: Way, state: State) -> list[Candidate]:
        """The devices that may give something. Raises the first error, in the total order, of any device that is not in use."""
        found = {}
        for candidate in self.candidates:
            pool, each, device = candidate
            if self.may_try(way, candidate, state) and self._is_permitted(way, each, device):
                for constraint in way.constraints:
                    for name in _names(constraint):
                        self._compared(way, name, each, device)
                found[*pool.key, device.name] = candidate
        return [each for each in self.ordered(way, state) if (*each[0].key, each[2].name) in found]

    def _is_permitted(self, way: Way, each: ResourceSlice, device: Device) -> bool:
        features = self._world.features
        has_counters = bool(device.consumes_counters) and not features.partitionable_devices
        return not (has_counters or plain_shares.missing_gate(device, features) or self._is_repelled(way, each, device))

    def give(
        self, way: Way, candidate: Candidate, missing: Mapping[str, int], state: State
    ) -> tuple[State, Mapping[str, int]] | None:
        """The state after the device gave what it can of what is missing, and the amounts."""
        pool, _, device = candidate
        key = (*pool.key, device.name)
        is_share = bool(device.allow_multiple_allocations) and self._world.features.consumable_capacity
        if not is_share:
            values = {name: device.capacity[name].value.nanos for name in missing}
            taken = self.take(way, candidate, state) if _is_useful(values, missing) else None
            return None if taken is None else (taken, values)
        asked: dict[str, Quantity] = {}
        amounts: dict[str, int] = {}
        for name, lacking in missing.items():
            free = device.capacity[name].value.nanos - self._used(key, name, state)
            possible = sorted(
                (amount, ask) for ask, amount in self._possible_amounts(device, name).items() if amount <= free
            )
            if not possible:
                return None
            amounts[name], asked[name] = next((each for each in possible if each[0] >= lacking), possible[-1])
            if plain_shares.consumes_nothing(device, name):
                amounts[name] = device.capacity[name].value.nanos
        if not _is_useful(amounts, missing):
            return None
        taken = self.take(way, candidate, state, asked)
        if taken is None:
            return None
        share = taken.shares[key][-1]
        return taken, {name: max(amount, share[name].nanos) for name, amount in amounts.items()}

    def _possible_amounts(self, device: Device, name: str) -> dict[Quantity, int]:
        """What a request consumes of the capacity, by the whole number that it asks for."""
        found: dict[Quantity, int] = {}
        alone = structs.replace(device, capacity={name: device.capacity[name]})
        for number in range(device.capacity[name].value.nanos // 10**9 + 1):
            asked = {name: Quantity.parse(str(number))}
            charge = plain_shares.charge(alone, asked, {}, fractional_ranges=self._world.features.fractional_ranges)
            if isinstance(charge, dict):
                found[asked[name]] = charge[name].nanos
        return found

    def take(
        self, way: Way, candidate: Candidate, state: State, asked: Mapping[str, Quantity] | None = None
    ) -> State | None:
        """The state with the device taken. `asked` is what it gives of an aggregated capacity."""
        pool, each, device = candidate
        key = (*pool.key, device.name)
        if self._is_in_use(way, pool, device, state) or not self._is_allocated_enough(way, candidate, state):
            return None
        is_share = bool(device.allow_multiple_allocations) and self._world.features.consumable_capacity
        drawn = self._draw(pool, device, is_share, state)
        if drawn is None or self._is_repelled(way, each, device):
            return None
        if plain_shares.missing_gate(device, self._world.features):
            return None
        seen = self._satisfy(way, each, device, state)
        charge = self._charge(way, each, device)
        assert isinstance(charge, dict)
        living = (*self._living_shares(key), *state.shares.get(key, ()))
        if is_share:
            if asked is not None:
                charged = plain_shares.charge(
                    device, asked, {}, fractional_ranges=self._world.features.fractional_ranges
                )
                assert isinstance(charged, dict)
                charge = charged
            share = plain_shares.share(device, way.asked, charge, living)
        else:
            share = charge if plain_shares.fits(device, charge, living) else None
        if seen is None or share is None:
            return None
        consumed = None
        takers, shares = (*state.takers, (key, way.claim)), state.shares
        if is_share:
            takers = state.takers
            shares = {**state.shares, key: (*state.shares.get(key, ()), share)}
            consumed = tuple(sorted((name, str(amount)) for name, amount in share.items()))
        limits = tuple(
            sorted(
                (name, str(max(limit, share.get(name, limit) if is_share else limit)))
                for name, limit in way.limits.items()
            )
        )
        given = (*state.given, (way.claim, Given(way.name, key, consumed, limits)))
        taken_devices = state.taken if way.is_admin else (*state.taken, key)
        return replace(state, takers=takers, given=given, shares=shares, drawn=drawn, seen=seen, taken=taken_devices)

    def _draw(
        self, pool: plain_pools.PlainPool, device: Device, is_share: bool, state: State
    ) -> Mapping[Any, int] | None:
        if not device.consumes_counters:
            return state.drawn
        if not self._world.features.partitionable_devices:
            return None
        key = (*pool.key, device.name)
        if is_share and (key in state.shares or any(result.share_id for result in self.held.get(key, ()))):
            return state.drawn
        drawn = dict(state.drawn)
        for counter, amount in plain_pools.draws_of(device):
            drawn[pool.key, counter] = drawn.get((pool.key, counter), 0) + amount
        is_enough = all(drawn.get((pool.key, counter), 0) <= left for counter, left in pool.counters.items())
        return drawn if is_enough else None

    def _is_repelled(self, way: Way, each: ResourceSlice, device: Device) -> bool:
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

    def _satisfy(self, way: Way, each: ResourceSlice, device: Device, state: State) -> Mapping[Any, Any] | None:
        seen = dict(state.seen)
        constraints = self._world.claims[way.claim].spec.devices.constraints
        for number, constraint in enumerate(constraints):
            if constraint not in way.constraints:
                continue
            compared = tuple(self._compared(way, name, each, device) for name in _names(constraint))
            before = seen.get((way.claim, number), ())
            if None in compared or not _agrees(constraint, before, compared):
                if way.takes_all:
                    at = f"{each.spec.driver}/{each.spec.pool.name}/{device.name}"
                    raise plain_pools.PlainFatal(self.claim_name(way.claim), way.name, at)
                return None
            seen[way.claim, number] = (*before, compared)
        return seen

    def _compared(self, way: Way, name: str, each: ResourceSlice, device: Device) -> DeviceAttribute | None:
        for derived in way.stated.derived_attributes:
            if derived.name == name:
                try:
                    member, value = compile_derived(derived.expression).evaluate(_view(each, device))
                except CelError:
                    at = f"{each.spec.driver}/{each.spec.pool.name}/{device.name}"
                    raise plain_pools.PlainFatal(self.claim_name(way.claim), way.name, at) from None
                return convert({member: value}, DeviceAttribute)
        return _attribute(name, each.spec.driver, device)

    def _living_shares(self, key: DeviceKey) -> Iterator[PlainShare]:
        return (result.consumed_capacity for result in self.held.get(key, ()) if result.share_id)

    def _used(self, key: DeviceKey, name: str, state: State) -> int:
        living = (*self._living_shares(key), *state.shares.get(key, ()))
        return sum(share[name].nanos for share in living if name in share)


def _view(each: ResourceSlice, device: Device) -> DeviceView:
    return DeviceView.build(
        each.spec.driver,
        device.attributes,
        {name: capacity.value for name, capacity in device.capacity.items()},
        device.allow_multiple_allocations,
    )


def _is_useful(amounts: Mapping[str, int], missing: Mapping[str, int]) -> bool:
    return any(amounts[name] and missing[name] for name in missing)


def _names(constraint: DeviceConstraint) -> tuple[str, ...]:
    return constraint.distinct_attributes or (constraint.match_attribute or constraint.distinct_attribute or "",)


def _attribute(name: str, driver: str, device: Device) -> DeviceAttribute | None:
    domain, _, identifier = name.partition("/")
    found = device.attributes.get(name)
    return found if found is not None or domain != driver else device.attributes.get(identifier)


def _agrees(constraint: DeviceConstraint, before: tuple[Compared, ...], compared: Compared) -> bool:
    if constraint.distinct_attributes:
        return all(map(_is_scalar, compared)) and all(
            any(one != other for one, other in zip(compared, taken, strict=True)) for taken in before
        )
    if not before:
        return True
    if constraint.match_attribute is not None:
        return _is_scalar(compared[0]) and compared == before[0]
    return _is_scalar(compared[0]) and compared not in before


def _is_scalar(attribute: DeviceAttribute | None) -> bool:
    return attribute is not None and any(
        value is not None for value in (attribute.string, attribute.int, attribute.bool, attribute.version)
    )
