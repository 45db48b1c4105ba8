"""Checks across a crash of the driver: prepared claims are remembered, interrupted calls can be repeated."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final

from dralloc.driver_kit.answer_rules import check_same
from dralloc.driver_kit.check import Check, Feature
from dralloc.driver_kit.checks.prepare import check_prepared, prepared
from dralloc.driver_kit.checks.unprepare import released
from dralloc.driver_kit.driver_under_test import LOOK_AGAIN_S, DriverUnderTest, name_of
from dralloc.driver_kit.findings import Finding, Violation
from dralloc.driver_kit.slice_rules import are_complete, pools_of


async def _prepared(subject: DriverUnderTest) -> Iterable[Finding]:
    claim = await subject.claim()
    before = await prepared(subject, claim)
    await subject.restart()
    after = await prepared(subject, claim)
    return [*check_prepared(subject, claim, after), *check_same(before, after, "prepared before and after a restart")]


async def _middle(subject: DriverUnderTest) -> Iterable[Finding]:
    claim = await subject.claim()
    asking = asyncio.create_task(prepared(subject, claim))
    # Let the call leave before the driver is killed. How far it gets is random, and every case must be handled.
    await asyncio.wait([asking], timeout=0.001)
    await subject.restart()
    await asyncio.gather(asking, return_exceptions=True)
    findings = [*check_prepared(subject, claim, await prepared(subject, claim))]
    return [*findings, *await released(subject, name_of(claim), "after a restart during a call, unpreparing")]


async def _gone(subject: DriverUnderTest) -> Iterable[Finding]:
    claim = await subject.claim()
    await prepared(subject, claim)
    await subject.claims.delete(claim)
    await subject.restart()
    return await released(subject, name_of(claim), "after its deletion and a restart, unpreparing")


async def _slices(subject: DriverUnderTest) -> Iterable[Finding]:
    before = {
        pool: [device for item in items for device in item.spec.devices or ()]
        for pool, items in pools_of(await subject.slices()).items()
    }
    await subject.restart()
    deadline = asyncio.get_running_loop().time() + subject.patience.start_s
    while asyncio.get_running_loop().time() < deadline:
        slices = await subject.slices()
        after = {
            pool: [device for item in items for device in item.spec.devices or ()]
            for pool, items in pools_of(slices).items()
        }
        if are_complete(slices) and after == before:
            return []
        await asyncio.sleep(LOOK_AGAIN_S)
    return [Violation("the published devices are not the same after a restart")]


CHECKS: Final = (
    Check(
        id="restart.prepared",
        title="a prepared claim gets the same answer after a restart",
        why="running containers keep their devices while drivers are updated",
        fix="write the answer to a file before you give it, and read it at the start",
        run=_prepared,
        feature=Feature.UPGRADE,
        injects="driver dead and restarted",
    ),
    Check(
        id="restart.middle",
        title="a claim can be prepared and unprepared after a restart during its preparation",
        why="a kubelet repeats the interrupted call, and later releases the claim",
        fix="record a claim before you touch the device; a record that is not finished means: prepare again, or undo it when the claim is released",
        run=_middle,
        feature=Feature.UPGRADE,
        injects="driver killed during a call",
    ),
    Check(
        id="restart.gone",
        title="a claim that was deleted meanwhile is released after a restart",
        why="the driver can no longer read the claim; its devices would stay prepared forever",
        fix="release by the checkpoint alone, which must survive the restart",
        run=_gone,
        feature=Feature.UPGRADE,
        injects="driver dead while a claim is deleted",
    ),
    Check(
        id="restart.slices",
        title="the same devices are published after a restart",
        why="pods could not be scheduled, or would be scheduled to devices that do not exist",
        fix="name devices after what identifies them (an index, a PCI address), not after the order in which they were found",
        run=_slices,
        feature=Feature.UPGRADE,
    ),
)
