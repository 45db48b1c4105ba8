"""Checks of ResourceSlices: complete and consistent pools, republished after a deletion, with growing generations."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final

from dralloc.api.resource_v1 import ResourceSlice
from dralloc.driver_kit.check import Check
from dralloc.driver_kit.driver_under_test import LOOK_AGAIN_S, DriverUnderTest
from dralloc.driver_kit.findings import Finding, Skip, Violation
from dralloc.driver_kit.slice_rules import are_complete, check_published, pools_of
from dralloc.primitives.errors import NotFound


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
    slices = [item for item in await subject.slices() if item.spec.node_name]
    if not slices:
        raise Skip("the driver publishes no slices for this node")
    before = _devices(slices)
    for item in slices:
        try:
            await subject.server.delete(ResourceSlice, item.metadata.name)
        except NotFound:
            continue
    deadline = asyncio.get_running_loop().time() + subject.patience.repair_s
    while asyncio.get_running_loop().time() < deadline:
        found = [item for item in await subject.slices() if item.spec.node_name]
        if are_complete(found) and _devices(found) == before:
            return []
        await asyncio.sleep(LOOK_AGAIN_S)
    return [Violation(f"deleted slices were not republished within {subject.patience.repair_s:.0f} s")]


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
        run=_published,
    ),
    Check(
        id="slices.repair",
        title="deleted slices are republished",
        why="a kubelet deletes the slices of its drivers when it starts, and those of a driver that was disconnected",
        run=_repair,
    ),
    Check(
        id="slices.history",
        title="generations only grow, and no mixture of two pool states looks complete",
        why="a scheduler would allocate devices from a pool state that never existed",
        run=_history,
    ),
)
