"""Checks of devices that consume shared counters: partitions of one card."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import combinations
from typing import Final

from msgspec.structs import replace

from dralloc.driver_kit.answer_rules import check_same
from dralloc.driver_kit.check import Check, Feature
from dralloc.driver_kit.checks.prepare import check_prepared, prepared
from dralloc.driver_kit.checks.unprepare import released
from dralloc.driver_kit.driver_under_test import DriverUnderTest, name_of
from dralloc.driver_kit.findings import Finding, NotApplicable, Violation
from dralloc.driver_kit.slice_rules import pools_of
from dralloc.kube.resource_v1 import CounterSet, Device, ResourceClaim, ResourceSlice
from dralloc.primitives.quantity import Quantity


async def _pools(subject: DriverUnderTest) -> dict[str, list[ResourceSlice]]:
    pools = pools_of(await subject.slices())
    if not any(device.consumes_counters for items in pools.values() for device in _devices(items)):
        raise NotApplicable("the driver publishes no devices that consume counters")
    return pools


def _devices(slices: Iterable[ResourceSlice]) -> Iterator[Device]:
    return (device for item in slices for device in item.spec.devices or ())


def _sets(slices: Iterable[ResourceSlice]) -> dict[str, CounterSet]:
    return {each.name: each for item in slices for each in item.spec.shared_counters or ()}


async def _counters(subject: DriverUnderTest) -> Iterable[Finding]:
    findings: list[Finding] = []
    for name, slices in (await _pools(subject)).items():
        sets = _sets(slices)
        for device in _devices(slices):
            findings += (
                Violation(f"pool {name}: device {device.name} can never be allocated: {text}")
                for text in _lacks(device, sets)
            )
    return findings


def _lacks(device: Device, sets: dict[str, CounterSet]) -> Iterator[str]:
    for drawn in device.consumes_counters:
        counters = sets[drawn.counter_set].counters if drawn.counter_set in sets else {}
        for counter, wanted in drawn.counters.items():
            if counter not in counters:
                yield f"there is no counter {drawn.counter_set}/{counter}"
            elif wanted.value > counters[counter].value:
                yield f"it consumes {wanted.value} of {drawn.counter_set}/{counter}, which has {counters[counter].value}"


async def _neighbours(subject: DriverUnderTest) -> Iterable[Finding]:
    """Two partitions of one card, prepared at the same time; then one of them is released."""
    gone, stays = await _claims_of_neighbours(subject)
    answers = [await prepared(subject, claim) for claim in (gone, stays)]
    findings = [*check_prepared(subject, gone, answers[0]), *check_prepared(subject, stays, answers[1])]
    findings += await released(subject, name_of(gone))
    after = await prepared(subject, stays)
    return [*findings, *check_same(answers[1], after, "before and after another partition of the card was released")]


async def _claims_of_neighbours(subject: DriverUnderTest) -> tuple[ResourceClaim, ResourceClaim]:
    for pool, slices in (await _pools(subject)).items():
        sets = _sets(slices)
        partitions = [
            device for device in _devices(slices) if device.consumes_counters and not device.allow_multiple_allocations
        ]
        for pair in combinations(partitions, 2):
            if _share_a_set(pair) and _fit_together(pair, sets):
                first, second = [await _claim_of(subject, pool, device.name) for device in pair]
                return first, second
    raise NotApplicable("no two devices of the driver that consume counters of one set fit beside each other")


def _share_a_set(pair: tuple[Device, Device]) -> bool:
    first, second = ({drawn.counter_set for drawn in device.consumes_counters} for device in pair)
    return bool(first & second)


def _fit_together(pair: tuple[Device, Device], sets: dict[str, CounterSet]) -> bool:
    wanted: dict[tuple[str, str], list[Quantity]] = {}
    for device in pair:
        for drawn in device.consumes_counters:
            for counter, amount in drawn.counters.items():
                wanted.setdefault((drawn.counter_set, counter), []).append(amount.value)
    return all(
        name in sets
        and counter in sets[name].counters
        and sum(each.value for each in amounts) <= sets[name].counters[counter].value.value
        for (name, counter), amounts in wanted.items()
    )


async def _claim_of(subject: DriverUnderTest, pool: str, device: str) -> ResourceClaim:
    """A claim with this device, as a scheduler could have allocated it."""
    claim = await subject.unallocated_claim()
    found = await subject.claims.find(claim)
    result = replace(found.devices.results[0], pool=pool, device=device, share_id=None, consumed_capacity={})
    return await subject.claims.write_allocation(
        claim, replace(found, devices=replace(found.devices, results=(result,)))
    )


CHECKS: Final = (
    Check(
        id="partitions.counters",
        title="every partition fits into its counter sets",
        why="a device that consumes a counter that does not exist, or more than it has, is never allocated",
        fix="publish the counter sets of a card in the same pool as its partitions, with the whole amounts of the card",
        run=_counters,
        feature=Feature.PARTITIONS,
    ),
    Check(
        id="partitions.neighbours",
        title="partitions of one card are prepared and released independently",
        why="releasing one partition takes the device away from the pod on the other",
        fix="keep the state of each partition apart, and reset the card only when its last partition is released",
        run=_neighbours,
        feature=Feature.PARTITIONS,
    ),
)
