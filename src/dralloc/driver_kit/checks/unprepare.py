"""NodeUnprepareResources: always possible, however often, and whatever became of the claim."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final
from uuid import uuid4

from dralloc.driver_kit.answer_rules import judge_entries, judge_success
from dralloc.driver_kit.caller import ClaimName
from dralloc.driver_kit.check import Check
from dralloc.driver_kit.checks.prepare import judge, prepared
from dralloc.driver_kit.claim_maker import NAMESPACE
from dralloc.driver_kit.driver_under_test import DriverUnderTest, name_of
from dralloc.driver_kit.findings import Finding


async def released(subject: DriverUnderTest, claim: ClaimName, doing: str = "unpreparing") -> list[Finding]:
    """What is wrong with the answer when one claim is released."""
    answered = await subject.caller.unprepare([claim], subject.service)
    return [*judge_entries([claim], answered), *judge_success(claim, answered, doing)]


async def _answer(subject: DriverUnderTest) -> Iterable[Finding]:
    claim = await subject.claim()
    await prepared(subject, claim)
    return await released(subject, name_of(claim))


async def _repeat(subject: DriverUnderTest) -> Iterable[Finding]:
    claim = await subject.claim()
    await prepared(subject, claim)
    first = await released(subject, name_of(claim))
    return [*first, *await released(subject, name_of(claim), "unpreparing again")]


async def _unknown(subject: DriverUnderTest) -> Iterable[Finding]:
    return await released(subject, ClaimName(NAMESPACE, subject.new_name(), str(uuid4())), "unpreparing the unknown")


async def _never_prepared(subject: DriverUnderTest) -> Iterable[Finding]:
    return await released(subject, name_of(await subject.claim()), "unpreparing what was never prepared:")


async def _gone(subject: DriverUnderTest) -> Iterable[Finding]:
    claim = await subject.claim()
    await prepared(subject, claim)
    await subject.claims.delete(claim)
    return await released(subject, name_of(claim), "unpreparing after its deletion:")


async def _batch(subject: DriverUnderTest) -> Iterable[Finding]:
    claims = [await subject.claim(), await subject.claim()]
    names = [*map(name_of, claims), ClaimName(NAMESPACE, subject.new_name(), str(uuid4()))]
    await subject.caller.prepare(names[:2], subject.service)
    answered = await subject.caller.unprepare(names, subject.service)
    findings = [*judge_entries(names, answered)]
    for name in names:
        findings += judge_success(name, answered, "unpreparing")
    return findings


async def _again(subject: DriverUnderTest) -> Iterable[Finding]:
    claim = await subject.claim()
    await prepared(subject, claim)
    await released(subject, name_of(claim))
    return judge(subject, claim, await prepared(subject, claim))


CHECKS: Final = (
    Check(
        id="unprepare.answer",
        title="a prepared claim is released",
        why="a pod is not removed before its claims are released",
        run=_answer,
    ),
    Check(
        id="unprepare.repeat",
        title="releasing a claim twice succeeds",
        why="a node asks again after lost answers; a pod would never end",
        run=_repeat,
    ),
    Check(
        id="unprepare.unknown",
        title="releasing a claim that nobody knows succeeds",
        why="a node asks for claims whose preparation never reached the driver; a pod would never end",
        run=_unknown,
    ),
    Check(
        id="unprepare.never-prepared",
        title="releasing a claim that was never prepared succeeds",
        why="a pod may be deleted before its claims were prepared; it would never end",
        run=_never_prepared,
    ),
    Check(
        id="unprepare.gone",
        title="releasing a claim that is deleted succeeds",
        why="a claim may be deleted by force; a pod would never end",
        run=_gone,
    ),
    Check(
        id="unprepare.batch",
        title="several claims in one call are all answered",
        why="a node asks once for all claims of a pod, and fails where an entry is missing",
        run=_batch,
    ),
    Check(
        id="unprepare.again",
        title="a claim that was released can be prepared again",
        why="a claim outlives its pods",
        run=_again,
    ),
)
