"""Checks of ResourceSlices: complete and consistent pools, republished after a deletion, with growing generations."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

from dralloc.devices.published_slice import newest_generation
from dralloc.driver_kit.check import Check, Feature
from dralloc.driver_kit.driver_under_test import LOOK_AGAIN_S, DriverUnderTest
from dralloc.driver_kit.findings import Finding, NotApplicable, Remark, Violation
from dralloc.driver_kit.slice_rules import are_complete, check_published, pools_of
from dralloc.kube.meta_v1 import ObjectMeta
from dralloc.kube.resource_v1 import Device, ResourcePool, ResourceSlice, ResourceSliceSpec
from dralloc.primitives.errors import NotFound

OTHER_NODE: Final = "driver-test-other"
GENERATION_STEP: Final = 5
NOT_RESTORED: Final = "the devices of the driver are not published again"


async def _published(subject: DriverUnderTest) -> Iterable[Finding]:
    slices = await subject.slices()
    if not slices:
        elsewhere = sorted({item.spec.node_name or "" for item in await subject.slices_of_all_nodes()})
        hint = (
            f"; slices exist for node {', '.join(elsewhere)}: use --node if the driver runs there" if elsewhere else ""
        )
        return [Violation(f"no slices are published, so no device of the driver can be allocated on this node{hint}")]
    return check_published(slices, subject.node_name)


async def _repair(subject: DriverUnderTest) -> Iterable[Finding]:
    slices = await _own_slices(subject)
    before = _devices(slices)
    await _delete(subject, slices)
    deadline = asyncio.get_running_loop().time() + subject.patience.repair_s
    while asyncio.get_running_loop().time() < deadline:
        found = await _node_slices(subject)
        if are_complete(found) and _devices(found) == before:
            return []
        await asyncio.sleep(LOOK_AGAIN_S)
    return [Violation(f"deleted slices were not republished within {subject.patience.repair_s:.0f} s")]


async def _generation(subject: DriverUnderTest) -> Iterable[Finding]:
    """The pool as a later version of the driver left it: a higher generation, and a device less."""
    subject.require_restarter()
    slices = await _own_slices(subject)
    before = _devices(slices)
    seen = len(subject.history.violations)
    floor = newest_generation(slices) + GENERATION_STEP
    shortened = next((item.metadata.name for item in slices if item.spec.devices), "")
    for item in slices:
        fewer = {"devices": (item.spec.devices or ())[:-1]} if item.metadata.name == shortened else {}
        change = {"spec": {"pool": {"generation": floor}, **fewer}}
        await subject.server.patch(ResourceSlice, item.metadata.name, change)
    await subject.restart()
    deadline = asyncio.get_running_loop().time() + subject.patience.repair_s
    while asyncio.get_running_loop().time() < deadline:
        found = await _node_slices(subject)
        if are_complete(found) and _devices(found) == before:
            return subject.history.violations[seen:]
        await asyncio.sleep(LOOK_AGAIN_S)
    # Without them the driver can start anew, and later checks find devices.
    await _delete(subject, await _node_slices(subject))
    late = f"a pool was left with generation {floor}; {subject.patience.repair_s:.0f} s after a restart {NOT_RESTORED}"
    return [Violation(late), *subject.history.violations[seen:]]


async def _delete(subject: DriverUnderTest, slices: Iterable[ResourceSlice]) -> None:
    for item in slices:
        with suppress(NotFound):
            await subject.server.delete(ResourceSlice, item.metadata.name)


async def _own_slices(subject: DriverUnderTest) -> list[ResourceSlice]:
    if not (slices := await _node_slices(subject)):
        raise NotApplicable("the driver publishes no slices for this node")
    return slices


async def _node_slices(subject: DriverUnderTest) -> list[ResourceSlice]:
    """The slices that belong to this node alone."""
    return [item for item in await subject.slices() if item.spec.node_name]


async def _other_nodes(subject: DriverUnderTest) -> Iterable[Finding]:
    """A slice of the same driver on another node."""
    subject.require_restarter()
    pool = ResourcePool(name=OTHER_NODE, generation=1, resource_slice_count=1)
    spec = ResourceSliceSpec(driver=subject.driver, pool=pool, node_name=OTHER_NODE, devices=(Device(name="other"),))
    made = await subject.server.create(
        ResourceSlice(metadata=ObjectMeta(name=f"{subject.new_name()}-other"), spec=spec)
    )
    name = made.metadata.name
    try:
        await subject.restart()
        await asyncio.sleep(subject.patience.settle_s)
        found = [
            item
            for item in await subject.slices_of_all_nodes()
            if item.spec.node_name not in (None, "", subject.node_name)
        ]
    finally:
        with suppress(NotFound):
            await subject.server.delete(ResourceSlice, name)
    findings: list[Finding] = []
    if name not in {item.metadata.name for item in found}:
        findings.append(
            Violation(f"slice {name} of node {OTHER_NODE} was deleted by the driver on {subject.node_name}")
        )
    for item in found:
        if item.metadata.name == name and item.metadata.resource_version != made.metadata.resource_version:
            findings.append(
                Violation(f"slice {name} of node {OTHER_NODE} was changed by the driver on {subject.node_name}")
            )
        elif item.metadata.name != name and subject.is_alone:
            findings.append(
                Violation(
                    f"slice {item.metadata.name} is for node {item.spec.node_name}, where the driver does not run"
                )
            )
    findings += (
        Remark(
            f"pool {name} does not have the name of its node in it; drivers on two nodes would publish the same pool"
        )
        for name in sorted({item.spec.pool.name for item in await _own_slices(subject)})
        if subject.node_name not in name
    )
    return findings


def _devices(slices: Iterable[ResourceSlice]) -> dict[str, list[str]]:
    return {
        pool: [device.name for item in items for device in item.spec.devices or ()]
        for pool, items in pools_of(slices).items()
    }


async def _history(subject: DriverUnderTest) -> Iterable[Finding]:
    # By the time that a list returns, the watch has delivered earlier events.
    await subject.slices()
    return subject.history.violations


CHECKS: Final = (
    Check(
        id="slices.published",
        title="pools are complete and consistent",
        why="nothing is allocated from a pool with missing slices or duplicate devices",
        fix="publish all slices of a pool with one generation and the real number of slices, each device once, for the node that the driver runs on",
        run=_published,
    ),
    Check(
        id="slices.repair",
        title="deleted slices are republished",
        why="a kubelet deletes the slices of its drivers when it starts, and those of a driver that was disconnected",
        fix="watch your slices, and publish those that are missing again",
        run=_repair,
    ),
    Check(
        id="slices.generation",
        title="a pool that was left with a higher generation does not go back to a lower one",
        why="schedulers use the slices of the highest generation only: the devices of a driver that starts again with 1 are never seen",
        fix="read the existing slices of the pool before you publish; continue with their highest generation, or the next one if several slices change",
        run=_generation,
        feature=Feature.UPGRADE,
        known_fault="wrong generation on republish",
        injects="driver restarted",
    ),
    Check(
        id="slices.other-nodes",
        title="slices of other nodes are left alone",
        why="a driver that cleans up all slices of its name removes the devices of the whole cluster whenever one of its pods starts",
        fix="list and delete slices with the field selector spec.driver=…,spec.nodeName=…, and have the node's name in the names of pools",
        run=_other_nodes,
        known_fault="slices of other nodes",
    ),
    Check(
        id="slices.history",
        title="generations only grow, and no mixture of two pool states looks complete",
        why="a scheduler would allocate devices from a pool state that never existed",
        fix="read the existing slices first; change several slices only with a higher generation for all of them",
        run=_history,
    ),
)
