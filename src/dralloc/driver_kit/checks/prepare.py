"""Checks of NodePrepareResources: the allocated devices, the same answer every time, errors for single claims."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Final
from uuid import uuid4

from msgspec.structs import replace

from dralloc.api.resource_v1 import DeviceRequestAllocationResult, ResourceClaim
from dralloc.driver_kit.answer_rules import check_devices, check_entries, check_same, check_success
from dralloc.driver_kit.caller import AnsweredClaim, ClaimName, RpcFailed
from dralloc.driver_kit.check import Check
from dralloc.driver_kit.claim_maker import NAMESPACE, exactly
from dralloc.driver_kit.driver_under_test import DriverUnderTest, name_of
from dralloc.driver_kit.findings import Finding, Remark, Skip, Violation
from dralloc.kubelet.cdi_registry import CdiRegistry
from dralloc.rpc.plugin_services import DRA_V1

CONCURRENT: Final = 4
# The caller cancels: while the driver works, and before it has received the call.
SHORT_TIMEOUTS_S: Final = (0.002, 0.01, 0.05)
FOREIGN_DRIVER: Final = "other.driver-test.example.com"


async def prepared(subject: DriverUnderTest, claim: ResourceClaim) -> Mapping[str, AnsweredClaim]:
    """The answer for one claim, in the version that a kubelet would call."""
    return await subject.caller.prepare([name_of(claim)], subject.service)


def check_prepared(
    subject: DriverUnderTest, claim: ResourceClaim, answered: Mapping[str, AnsweredClaim]
) -> Iterator[Finding]:
    """What is wrong with the answer for a claim that can be prepared."""
    name = name_of(claim)
    yield from check_success(name, answered, "preparing")
    entry = answered.get(name.uid)
    if entry is not None and not entry.error:
        yield from check_devices(claim, entry, subject.driver, with_shares=subject.service is DRA_V1)


async def _answer(subject: DriverUnderTest) -> Iterable[Finding]:
    claim = await subject.claim()
    answered = await prepared(subject, claim)
    return [*check_entries([name_of(claim)], answered), *check_prepared(subject, claim, answered)]


async def _cdi(subject: DriverUnderTest) -> Iterable[Finding]:
    if not subject.cdi_dirs:
        raise Skip("the CDI directory of the driver is not known; use --cdi-dir")
    claim = await subject.claim()
    answered = await prepared(subject, claim)
    named = {name for entry in answered.values() for device in entry.devices for name in device.cdi_device_ids}
    missing = named - CdiRegistry(subject.cdi_dirs).names()
    return [Violation(f"no CDI file describes {name}, so no container can start with it") for name in sorted(missing)]


async def _repeat(subject: DriverUnderTest) -> Iterable[Finding]:
    claim = await subject.claim()
    first, second = await prepared(subject, claim), await prepared(subject, claim)
    return [
        *check_success(name_of(claim), second, "preparing a second time"),
        *check_same(first, second, "two calls in sequence"),
    ]


async def _concurrent(subject: DriverUnderTest) -> Iterable[Finding]:
    claim = await subject.claim()
    answers = await asyncio.gather(*(prepared(subject, claim) for _ in range(CONCURRENT)))
    findings = [*check_prepared(subject, claim, answers[0])]
    for answer in answers[1:]:
        findings += check_success(name_of(claim), answer, "preparing concurrently")
        findings += check_same(answers[0], answer, "concurrent calls")
    return findings


async def _impatient(subject: DriverUnderTest) -> Iterable[Finding]:
    claim = await subject.claim()
    for timeout_s in SHORT_TIMEOUTS_S:
        with suppress(RpcFailed):
            await subject.caller.prepare([name_of(claim)], subject.service, timeout_s=timeout_s)
    return check_prepared(subject, claim, await prepared(subject, claim))


async def _versions(subject: DriverUnderTest) -> Iterable[Finding]:
    if len(subject.services) < 2:
        raise Skip("the driver serves one version only")
    claim = await subject.claim()
    answers = [await subject.caller.prepare([name_of(claim)], service) for service in subject.services]
    findings: list[Finding] = []
    for service, answer in zip(subject.services, answers, strict=True):
        findings += check_success(name_of(claim), answer, f"preparing with {service.advertised}")
    findings += check_same(answers[0], answers[1], "calls in both versions", with_shares=False)
    return findings


async def _alternative(subject: DriverUnderTest) -> Iterable[Finding]:
    claim = await subject.claim(subject.alternatives())
    return check_prepared(subject, claim, await prepared(subject, claim))


async def _shares(subject: DriverUnderTest) -> Iterable[Finding]:
    claims = [await subject.claim(), await subject.claim()]
    shared = [_shares_of(claim) for claim in claims]
    if not all(shared):
        raise Skip("the driver has no devices that allow multiple allocations")
    findings: list[Finding] = []
    answers = [await prepared(subject, claim) for claim in claims]
    for claim, answer in zip(claims, answers, strict=True):
        findings += check_prepared(subject, claim, answer)
    # Releasing one share must not affect the other.
    gone, stays = claims
    findings += check_success(
        name_of(gone), await subject.caller.unprepare([name_of(gone)], subject.service), "unpreparing"
    )
    findings += check_same(answers[1], await prepared(subject, stays), "before and after another share was released")
    return findings


def _shares_of(claim: ResourceClaim) -> list[str]:
    assert claim.status.allocation is not None, "it was allocated"
    return [result.share_id for result in claim.status.allocation.devices.results if result.share_id is not None]


async def _batch(subject: DriverUnderTest) -> Iterable[Finding]:
    claims = [await subject.claim(), await subject.claim()]
    names = [name_of(claim) for claim in claims]
    answered = await subject.caller.prepare(names, subject.service)
    findings = [*check_entries(names, answered)]
    for claim in claims:
        findings += check_prepared(subject, claim, answered)
    return findings


async def _foreign(subject: DriverUnderTest) -> Iterable[Finding]:
    """A claim with devices of two drivers; each driver prepares its own."""
    maker = subject.claims
    requests = subject.requests()
    mixed = await subject.unallocated_claim([*requests, exactly("foreign", maker.class_name)])
    own = await subject.claim(requests)
    assert own.status.allocation is not None, "it was allocated"
    found = own.status.allocation
    await maker.delete(own)
    foreign = DeviceRequestAllocationResult(request="foreign", driver=FOREIGN_DRIVER, pool="pool", device="device")
    devices = replace(found.devices, results=(*found.devices.results, foreign))
    claim = await maker.write_allocation(mixed, replace(found, devices=devices))
    return check_prepared(subject, claim, await prepared(subject, claim))


# --- Claims that cannot be prepared -------------------------------------------------------------------------------


async def _refused(subject: DriverUnderTest, claim: ClaimName, what: str) -> list[Finding]:
    """The driver must answer with an error, for this claim or for the whole call."""
    try:
        answered = await subject.caller.prepare([claim], subject.service)
    except RpcFailed as error:
        if error.code in ("DEADLINE_EXCEEDED", "UNAVAILABLE"):
            return [Violation(f"the driver did not answer the call for {what}: {error}")]
        return []
    findings = [*check_entries([claim], answered)]
    entry = answered.get(claim.uid)
    if entry is not None and not entry.error:
        findings.append(Violation(f"the driver reports success for {what}"))
    return findings


async def _unknown(subject: DriverUnderTest) -> Iterable[Finding]:
    unknown = ClaimName(NAMESPACE, subject.new_name(), str(uuid4()))
    return await _refused(subject, unknown, "a claim that does not exist")


async def _replaced(subject: DriverUnderTest) -> Iterable[Finding]:
    claim = name_of(await subject.claim())
    other = ClaimName(claim.namespace, claim.name, str(uuid4()))
    return await _refused(subject, other, "a claim that was deleted and created again with the same name")


async def _unallocated(subject: DriverUnderTest) -> Iterable[Finding]:
    return await _refused(subject, name_of(await subject.unallocated_claim()), "a claim that is not allocated")


async def _partial(subject: DriverUnderTest) -> Iterable[Finding]:
    good = await subject.claim()
    bad = ClaimName(NAMESPACE, subject.new_name(), str(uuid4()))
    findings: list[Finding] = []
    try:
        answered = await subject.caller.prepare([bad, name_of(good)], subject.service)
    except RpcFailed as error:
        findings.append(
            Remark(f"a claim that cannot be prepared fails the whole call, including the pod's other claims: {error}")
        )
    else:
        findings += check_entries([bad, name_of(good)], answered)
        findings += check_prepared(subject, good, answered)
        entry = answered.get(bad.uid)
        if entry is not None and not entry.error:
            findings.append(Violation("the driver reports success for a claim that does not exist"))
    findings += check_prepared(subject, good, await prepared(subject, good))
    return findings


CHECKS: Final = (
    Check(
        id="prepare.answer",
        title="a claim is prepared with its allocated devices",
        why="a kubelet refuses answers for other claims; containers get exactly the devices of the answer",
        run=_answer,
    ),
    Check(
        id="prepare.cdi",
        title="the CDI devices of the answer exist in CDI files",
        why="a container runtime does not start a container whose CDI device it cannot find",
        run=_cdi,
    ),
    Check(
        id="prepare.repeat",
        title="a claim that is already prepared gets the same answer",
        why="a kubelet repeats the call after a lost answer and after its own restart",
        run=_repeat,
    ),
    Check(
        id="prepare.concurrent",
        title="concurrent calls get the same answer",
        why="a kubelet repeats a timed-out call while the driver may still be working on it",
        run=_concurrent,
    ),
    Check(
        id="prepare.impatient",
        title="a claim can be prepared after a cancelled call",
        why="a kubelet cancels the call after 45 seconds and repeats it",
        run=_impatient,
    ),
    Check(
        id="prepare.versions",
        title="both versions give the same answer",
        why="after an update, a kubelet may call another version of the same driver",
        run=_versions,
    ),
    Check(
        id="prepare.alternative",
        title="the answer names the main request of a device that was allocated for a subrequest",
        why="containers refer to the main request, and would get no device (KEP-4816)",
        run=_alternative,
    ),
    Check(
        id="prepare.shares",
        title="two claims share a device, each with its own share ID",
        why="shares cannot be distinguished otherwise (KEP-5075)",
        run=_shares,
    ),
    Check(
        id="prepare.batch",
        title="the answer has an entry for each claim of the call",
        why="a kubelet makes one call for all claims of a pod, and fails if an entry is missing",
        run=_batch,
    ),
    Check(
        id="prepare.foreign",
        title="devices of other drivers are ignored",
        why="a claim may have devices of several drivers; each driver prepares its own",
        run=_foreign,
    ),
    Check(
        id="prepare.unknown",
        title="a claim that does not exist is refused",
        why="a pod would start without its devices",
        run=_unknown,
    ),
    Check(
        id="prepare.replaced",
        title="a claim with another UID is refused",
        why="a pod would get the devices of another claim",
        run=_replaced,
    ),
    Check(
        id="prepare.unallocated",
        title="a claim without allocation is refused",
        why="a pod would start without its devices",
        run=_unallocated,
    ),
    Check(
        id="prepare.partial",
        title="a claim that cannot be prepared does not fail the others",
        why="one bad claim would block the other claims of its pod forever",
        run=_partial,
    ),
)
