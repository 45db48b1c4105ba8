"""Restarts without warning: what was prepared is remembered, what was begun is finished or undone."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final

from dralloc.driver_kit.answer_rules import judge_same
from dralloc.driver_kit.check import Check
from dralloc.driver_kit.checks.prepare import judge, prepared
from dralloc.driver_kit.checks.unprepare import released
from dralloc.driver_kit.driver_under_test import LOOK_AGAIN_S, DriverUnderTest, name_of
from dralloc.driver_kit.findings import Finding, Violation
from dralloc.driver_kit.slice_rules import are_complete, pools_of


async def _prepared(subject: DriverUnderTest) -> Iterable[Finding]:
    claim = await subject.claim()
    before = await prepared(subject, claim)
    await subject.restart()
    after = await prepared(subject, claim)
    return [*judge(subject, claim, after), *judge_same(before, after, "before and after a restart")]


async def _middle(subject: DriverUnderTest) -> Iterable[Finding]:
    claim = await subject.claim()
    asking = asyncio.create_task(prepared(subject, claim))
    # Let the question leave before the driver ends; how far it gets is chance, and every case must be good.
    await asyncio.wait([asking], timeout=0.001)
    await subject.restart()
    await asyncio.gather(asking, return_exceptions=True)
    findings = [*judge(subject, claim, await prepared(subject, claim))]
    return [*findings, *await released(subject, name_of(claim), "unpreparing after a restart in the middle:")]


async def _gone(subject: DriverUnderTest) -> Iterable[Finding]:
    claim = await subject.claim()
    await prepared(subject, claim)
    await subject.claims.delete(claim)
    await subject.restart()
    return await released(subject, name_of(claim), "unpreparing after a restart and its deletion:")


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
    return [Violation("after a restart the published devices are not what they were")]


CHECKS: Final = (
    Check(
        id="restart.prepared",
        title="after a restart a prepared claim gets the same answer",
        why="running containers were given those devices; drivers are updated while pods run",
        run=_prepared,
    ),
    Check(
        id="restart.middle",
        title="a restart in the middle of a call does no harm",
        why="the node asks again, and later releases what was half done",
        run=_middle,
    ),
    Check(
        id="restart.gone",
        title="after a restart a claim that is deleted by now is released",
        why="the driver cannot read it any more; its devices would stay taken for ever",
        run=_gone,
    ),
    Check(
        id="restart.slices",
        title="after a restart the same devices are published",
        why="pods could not be scheduled, or would be scheduled to devices that are not there",
        run=_slices,
    ),
)
