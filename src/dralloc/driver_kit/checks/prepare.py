"""Checks of NodePrepareResources: the allocated devices, the same answer every time, errors for single claims."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Final
from uuid import uuid4

from msgspec.structs import replace

from dralloc.driver_kit.answer_rules import check_devices, check_entries, check_same, check_success
from dralloc.driver_kit.caller import AnsweredClaim, ClaimName, RpcFailed
from dralloc.driver_kit.check import Check, Feature
from dralloc.driver_kit.claim_maker import NAMESPACE, exactly
from dralloc.driver_kit.driver_under_test import DriverUnderTest, name_of
from dralloc.driver_kit.findings import Finding, NotApplicable, NotTested, Remark, Violation
from dralloc.kube.resource_v1 import DeviceRequestAllocationResult, ResourceClaim
from dralloc.rpc.plugin_services import DRA_V1

CONCURRENT: Final = 4
# The caller cancels: while the driver works, and before it has received the call.
SHORT_TIMEOUTS_S: Final = (0.002, 0.01, 0.05)
FOREIGN_DRIVER: Final = "other.driver-test.example.com"
MISSING_DEVICE: Final = "driver-test-missing"


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
    if not subject.traces.cdi_dirs:
        raise NotTested("the CDI directory of the driver is not known; use --cdi-dir")
    claim = await subject.claim()
    missing = missing_cdi_names(subject, await prepared(subject, claim))
    return [Violation(f"no CDI file describes {name}, so no container can start with it") for name in missing]


def missing_cdi_names(subject: DriverUnderTest, answered: Mapping[str, AnsweredClaim]) -> list[str]:
    """The CDI devices of the answer that a container runtime would not find; none if the directories are not known."""
    named = {name for entry in answered.values() for device in entry.devices for name in device.cdi_device_ids}
    return sorted(named - subject.traces.cdi_names()) if subject.traces.cdi_dirs else []


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
        raise NotApplicable("the driver serves one version only")
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
        raise NotApplicable("the driver has no devices that allow multiple allocations")
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


async def _two_shares(subject: DriverUnderTest) -> Iterable[Finding]:
    """One claim with two shares of one device."""
    requests = [exactly(name, subject.claims.class_name) for name in ("first", "second")]
    claim = await subject.claim(requests)
    assert claim.status.allocation is not None, "it was allocated"
    if len({(result.pool, result.device) for result in claim.status.allocation.devices.results}) > 1:
        raise NotApplicable("no device of the driver was allocated twice to one claim")
    answered = await prepared(subject, claim)
    findings = [*check_prepared(subject, claim, answered)]
    devices = [device for entry in answered.values() for device in entry.devices]
    names = [name for device in devices for name in device.cdi_device_ids]
    if len(devices) != len(requests):
        findings.append(Violation(f"the answer has {len(devices)} devices for {len(requests)} shares of one device"))
    elif len(set(names)) != len(names):
        findings.append(Remark("both shares have the same CDI device, so a container cannot tell them apart"))
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
    foreign = DeviceRequestAllocationResult(request="foreign", driver=FOREIGN_DRIVER, pool="pool", device="device")
    claim = await subject.claim_with("foreign", foreign)
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


async def _rollback(subject: DriverUnderTest) -> Iterable[Finding]:
    """A claim with a good device and one that does not exist: half of its preparation fails."""
    cdi_before = subject.traces.cdi_names()
    good = await subject.claim()
    assert good.status.allocation is not None, "it was allocated"
    example = good.status.allocation.devices.results[0]
    await subject.claims.delete(good)
    missing = replace(example, request="missing", device=MISSING_DEVICE, share_id=None, consumed_capacity={})
    claim = await subject.claim_with("missing", missing)
    findings = await _refused(subject, name_of(claim), f"device {MISSING_DEVICE}, which does not exist")
    answered = await subject.caller.unprepare([name_of(claim)], subject.service)
    findings += check_success(name_of(claim), answered, "after half of its preparation failed, unpreparing")
    await subject.claims.delete(claim)
    findings += (
        Violation(f"half of a preparation failed and was released: CDI device {name} still exists")
        for name in sorted(subject.traces.cdi_names() - cdi_before)
    )
    # The good device is free again.
    later = await subject.claim()
    again = await prepared(subject, later)
    findings += check_success(name_of(later), again, "after another preparation of its device failed, preparing")
    return findings


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
        fix="answer with one entry for each claim UID, with the pool, device, main request and share ID as they are in status.allocation of the claim",
        run=_answer,
    ),
    Check(
        id="prepare.cdi",
        title="the CDI devices of the answer exist in CDI files",
        why="a container runtime does not start a container whose CDI device it cannot find",
        fix="write the CDI file before you answer, to a directory that the container runtime reads",
        run=_cdi,
    ),
    Check(
        id="prepare.repeat",
        title="a claim that is already prepared gets the same answer",
        why="a kubelet repeats the call after a lost answer and after its own restart",
        fix="store the answer in the checkpoint and give it again; do not derive names from counters or the time",
        run=_repeat,
    ),
    Check(
        id="prepare.concurrent",
        title="concurrent calls get the same answer",
        why="a kubelet repeats a timed-out call while the driver may still be working on it",
        fix="serialize calls for the same claim with a lock; let the later one wait and get the same answer",
        run=_concurrent,
    ),
    Check(
        id="prepare.impatient",
        title="a claim can be prepared after a cancelled call",
        why="a kubelet cancels the call after 45 seconds and repeats it",
        fix="finish or undo the work of a cancelled call; do not leave a marker that makes the next call fail",
        run=_impatient,
        injects="call given up",
    ),
    Check(
        id="prepare.versions",
        title="both versions give the same answer",
        why="after an update, a kubelet may call another version of the same driver",
        fix="serve both versions from the same code",
        run=_versions,
        feature=Feature.UPGRADE,
    ),
    Check(
        id="prepare.alternative",
        title="the answer names the main request of a device that was allocated for a subrequest",
        why="containers refer to the main request, and would get no device (KEP-4816)",
        fix="put the part of the request name before the slash into request_names",
        run=_alternative,
    ),
    Check(
        id="prepare.shares",
        title="two claims share a device, each with its own share ID",
        why="shares cannot be distinguished otherwise (KEP-5075)",
        fix="identify what you prepare by pool, device and share ID, copy the share ID into the answer, and give every share its own CDI device",
        run=_shares,
        feature=Feature.SHARED_CAPACITY,
        known_fault="shareID ignored",
    ),
    Check(
        id="prepare.two-shares",
        title="one claim gets two shares of one device",
        why="a claim may request a device twice; its containers would get one share, or a name that the runtime finds twice",
        fix="make one entry for each result of the allocation, with a CDI device whose name has the share ID in it",
        run=_two_shares,
        feature=Feature.SHARED_CAPACITY,
        known_fault="shareID ignored",
    ),
    Check(
        id="prepare.batch",
        title="the answer has an entry for each claim of the call",
        why="a kubelet makes one call for all claims of a pod, and fails if an entry is missing",
        fix="collect an entry for each claim, also if another one fails",
        run=_batch,
    ),
    Check(
        id="prepare.foreign",
        title="devices of other drivers are ignored",
        why="a claim may have devices of several drivers; each driver prepares its own",
        fix="skip results of status.allocation whose driver is not your own",
        run=_foreign,
    ),
    Check(
        id="prepare.unknown",
        title="a claim that does not exist is refused",
        why="a pod would start without its devices",
        fix="read the claim from the API server, and answer with an error if it is not there",
        run=_unknown,
    ),
    Check(
        id="prepare.replaced",
        title="a claim with another UID is refused",
        why="a pod would get the devices of another claim",
        fix="compare metadata.uid of the claim that you read with the UID of the call",
        run=_replaced,
    ),
    Check(
        id="prepare.unallocated",
        title="a claim without allocation is refused",
        why="a pod would start without its devices",
        fix="answer with an error if status.allocation is empty",
        run=_unallocated,
    ),
    Check(
        id="prepare.rollback",
        title="a claim whose preparation failed half-way is released",
        why="the kubelet can neither prepare nor release the claim: the pod stays Terminating, and its good device is lost to others",
        fix="record what was done before each step, undo exactly that in NodeUnprepareResources, and succeed if a device of the claim is not there",
        run=_rollback,
        known_fault="partial failure that blocks rollback",
        injects="device missing",
    ),
    Check(
        id="prepare.partial",
        title="a claim that cannot be prepared does not fail the others",
        why="one bad claim would block the other claims of its pod forever",
        fix="report the error in the entry of the claim, and go on with the others",
        run=_partial,
    ),
)
