"""Checks of NodeUnprepareResources: it succeeds repeatedly, and for claims that are deleted or unknown."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final
from uuid import uuid4

from dralloc.driver_kit.answer_rules import check_entries, check_success
from dralloc.driver_kit.caller import ClaimName
from dralloc.driver_kit.check import Check
from dralloc.driver_kit.checks.prepare import check_prepared, prepared
from dralloc.driver_kit.claim_maker import NAMESPACE
from dralloc.driver_kit.driver_under_test import DriverUnderTest, name_of
from dralloc.driver_kit.findings import Finding


async def released(subject: DriverUnderTest, claim: ClaimName, doing: str = "unpreparing") -> list[Finding]:
    """Unprepare one claim; what is wrong with the answer."""
    answered = await subject.caller.unprepare([claim], subject.service)
    return [*check_entries([claim], answered), *check_success(claim, answered, doing)]


async def _answer(subject: DriverUnderTest) -> Iterable[Finding]:
    claim = await subject.claim()
    await prepared(subject, claim)
    return await released(subject, name_of(claim))


async def _repeat(subject: DriverUnderTest) -> Iterable[Finding]:
    claim = await subject.claim()
    await prepared(subject, claim)
    first = await released(subject, name_of(claim))
    return [*first, *await released(subject, name_of(claim), "unpreparing a second time")]


async def _unknown(subject: DriverUnderTest) -> Iterable[Finding]:
    return await released(subject, ClaimName(NAMESPACE, subject.new_name(), str(uuid4())), "unpreparing the unknown")


async def _never_prepared(subject: DriverUnderTest) -> Iterable[Finding]:
    return await released(subject, name_of(await subject.claim()), "without preparation, unpreparing")


async def _gone(subject: DriverUnderTest) -> Iterable[Finding]:
    claim = await subject.claim()
    await prepared(subject, claim)
    await subject.claims.delete(claim)
    return await released(subject, name_of(claim), "after its deletion, unpreparing")


async def _batch(subject: DriverUnderTest) -> Iterable[Finding]:
    claims = [await subject.claim(), await subject.claim()]
    names = [*map(name_of, claims), ClaimName(NAMESPACE, subject.new_name(), str(uuid4()))]
    await subject.caller.prepare(names[:2], subject.service)
    answered = await subject.caller.unprepare(names, subject.service)
    findings = [*check_entries(names, answered)]
    for name in names:
        findings += check_success(name, answered, "unpreparing")
    return findings


async def _again(subject: DriverUnderTest) -> Iterable[Finding]:
    claim = await subject.claim()
    await prepared(subject, claim)
    await released(subject, name_of(claim))
    return check_prepared(subject, claim, await prepared(subject, claim))


CHECKS: Final = (
    Check(
        id="unprepare.answer",
        title="a prepared claim is released",
        why="a pod is not deleted before its claims are released",
        run=_answer,
    ),
    Check(
        id="unprepare.repeat",
        title="releasing a claim twice succeeds",
        why="a kubelet repeats the call after a lost answer; otherwise the pod stays Terminating",
        run=_repeat,
    ),
    Check(
        id="unprepare.unknown",
        title="releasing an unknown claim succeeds",
        why="a kubelet also releases claims whose preparation never reached the driver; otherwise the pod stays Terminating",
        run=_unknown,
    ),
    Check(
        id="unprepare.never-prepared",
        title="releasing a claim that was never prepared succeeds",
        why="a pod may be deleted before its claims are prepared; otherwise it stays Terminating",
        run=_never_prepared,
    ),
    Check(
        id="unprepare.gone",
        title="releasing a deleted claim succeeds",
        why="a claim may be force-deleted; otherwise the pod stays Terminating",
        run=_gone,
    ),
    Check(
        id="unprepare.batch",
        title="the answer has an entry for each claim of the call",
        why="a kubelet makes one call for all claims of a pod, and fails if an entry is missing",
        run=_batch,
    ),
    Check(
        id="unprepare.again",
        title="a released claim can be prepared again",
        why="a claim outlives its pods",
        run=_again,
    ),
)
