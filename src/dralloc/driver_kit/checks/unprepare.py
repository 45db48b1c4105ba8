"""Checks of NodeUnprepareResources: it succeeds repeatedly, and for claims that are deleted or unknown."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final
from uuid import uuid4

from dralloc.driver_kit.answer_rules import check_entries, check_same, check_success
from dralloc.driver_kit.caller import ClaimName
from dralloc.driver_kit.check import Check
from dralloc.driver_kit.checks.prepare import check_prepared, prepared
from dralloc.driver_kit.claim_maker import NAMESPACE
from dralloc.driver_kit.driver_under_test import DriverUnderTest, name_of
from dralloc.driver_kit.findings import Finding, Violation
from dralloc.kube.resource_v1 import ResourceClaim

FINALIZER: Final = "driver-test.dralloc.io/keep"


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


async def _terminating(subject: DriverUnderTest) -> Iterable[Finding]:
    """A claim that was deleted, and that a finalizer keeps while its pod ends."""
    claim = await subject.claim()
    before = await prepared(subject, claim)
    current = await subject.server.get(ResourceClaim, claim.metadata.name, namespace=claim.metadata.namespace)
    await _set_finalizers(subject, claim, [*current.metadata.finalizers, FINALIZER])
    await subject.claims.delete(claim)
    try:
        after = await prepared(subject, claim)
        findings = [
            *check_success(name_of(claim), after, "while it is being deleted, preparing again"),
            *check_same(before, after, "before and after the claim was deleted, with a finalizer"),
            *await released(subject, name_of(claim), "while it is being deleted, unpreparing"),
        ]
        found = await subject.server.get(ResourceClaim, claim.metadata.name, namespace=claim.metadata.namespace)
        added = sorted(set(found.metadata.finalizers) - {*claim.metadata.finalizers, FINALIZER})
        findings += (Violation(f"finalizer {name} of the driver keeps the released claim") for name in added)
    finally:
        await _set_finalizers(subject, claim, [])
    return findings


async def _set_finalizers(subject: DriverUnderTest, claim: ResourceClaim, finalizers: list[str]) -> None:
    name, namespace = claim.metadata.name, claim.metadata.namespace
    await subject.server.patch(ResourceClaim, name, {"metadata": {"finalizers": finalizers}}, namespace=namespace)


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
        fix="undo what the checkpoint says, remove the record, and answer with an entry without an error",
        run=_answer,
    ),
    Check(
        id="unprepare.repeat",
        title="releasing a claim twice succeeds",
        why="a kubelet repeats the call after a lost answer; otherwise the pod stays Terminating",
        fix="succeed if there is nothing to release",
        run=_repeat,
    ),
    Check(
        id="unprepare.unknown",
        title="releasing an unknown claim succeeds",
        why="a kubelet also releases claims whose preparation never reached the driver; otherwise the pod stays Terminating",
        fix="succeed if the checkpoint does not know the UID",
        run=_unknown,
    ),
    Check(
        id="unprepare.never-prepared",
        title="releasing a claim that was never prepared succeeds",
        why="a pod may be deleted before its claims are prepared; otherwise it stays Terminating",
        fix="succeed if the checkpoint does not know the UID, and do not require that the claim can be read",
        run=_never_prepared,
    ),
    Check(
        id="unprepare.gone",
        title="releasing a deleted claim succeeds",
        why="a claim may be force-deleted; otherwise the pod stays Terminating",
        fix="do not read the claim from the API server; store in the checkpoint what you need to release it",
        run=_gone,
    ),
    Check(
        id="unprepare.terminating",
        title="a claim that is being deleted is released, and keeps no finalizer of the driver",
        why="the claim is deleted only after its pod has ended; a driver that refuses it, or holds it with a finalizer, leaves a claim and a pod that never go away",
        fix="ignore deletionTimestamp and finalizers in both calls, and do not add finalizers to claims: the kubelet's release is the place to clean up",
        run=_terminating,
        known_fault="zombie claims with finalizers",
    ),
    Check(
        id="unprepare.batch",
        title="the answer has an entry for each claim of the call",
        why="a kubelet makes one call for all claims of a pod, and fails if an entry is missing",
        fix="collect an entry for each claim, also for those that you do not know",
        run=_batch,
    ),
    Check(
        id="unprepare.again",
        title="a released claim can be prepared again",
        why="a claim outlives its pods",
        fix="forget a claim when it is released, so that the next preparation starts anew",
        run=_again,
    ),
)
