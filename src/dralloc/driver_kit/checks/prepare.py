"""NodePrepareResources: the right devices, the same answer every time, and no harm from what goes wrong."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Final
from uuid import uuid4

from msgspec.structs import replace

from dralloc.api.resource_v1 import DeviceRequestAllocationResult, ResourceClaim
from dralloc.driver_kit.answer_rules import judge_devices, judge_entries, judge_same, judge_success
from dralloc.driver_kit.caller import AnsweredClaim, ClaimName, RpcFailed
from dralloc.driver_kit.check import Check
from dralloc.driver_kit.claim_maker import NAMESPACE, exactly
from dralloc.driver_kit.driver_under_test import DriverUnderTest, name_of
from dralloc.driver_kit.findings import Finding, Remark, Skip, Violation
from dralloc.kubelet.cdi_registry import CdiRegistry
from dralloc.rpc.plugin_services import DRA_V1

CONCURRENT: Final = 4
# The node hangs up: on a driver that works, and on one that has not even got the call.
NO_PATIENCE_S: Final = (0.002, 0.01, 0.05)
FOREIGN_DRIVER: Final = "other.driver-test.example.com"


async def prepared(subject: DriverUnderTest, claim: ResourceClaim) -> Mapping[str, AnsweredClaim]:
    """The answer for one claim, in the version that a node takes."""
    return await subject.caller.prepare([name_of(claim)], subject.service)


def judge(subject: DriverUnderTest, claim: ResourceClaim, answered: Mapping[str, AnsweredClaim]) -> Iterator[Finding]:
    """Everything that must hold for a claim that can be prepared."""
    name = name_of(claim)
    yield from judge_success(name, answered, "preparing")
    entry = answered.get(name.uid)
    if entry is not None and not entry.error:
        yield from judge_devices(claim, entry, subject.driver, with_shares=subject.service is DRA_V1)


async def _answer(subject: DriverUnderTest) -> Iterable[Finding]:
    claim = await subject.claim()
    answered = await prepared(subject, claim)
    return [*judge_entries([name_of(claim)], answered), *judge(subject, claim, answered)]


async def _cdi(subject: DriverUnderTest) -> Iterable[Finding]:
    if not subject.cdi_dirs:
        raise Skip("it is not known where the driver writes CDI files")
    claim = await subject.claim()
    answered = await prepared(subject, claim)
    named = {name for entry in answered.values() for device in entry.devices for name in device.cdi_device_ids}
    missing = named - CdiRegistry(subject.cdi_dirs).names()
    return [Violation(f"no CDI file has {name}, so no container can start with it") for name in sorted(missing)]


async def _repeat(subject: DriverUnderTest) -> Iterable[Finding]:
    claim = await subject.claim()
    first, second = await prepared(subject, claim), await prepared(subject, claim)
    return [*judge_success(name_of(claim), second, "preparing again"), *judge_same(first, second, "asked twice")]


async def _concurrent(subject: DriverUnderTest) -> Iterable[Finding]:
    claim = await subject.claim()
    answers = await asyncio.gather(*(prepared(subject, claim) for _ in range(CONCURRENT)))
    findings = [*judge(subject, claim, answers[0])]
    for answer in answers[1:]:
        findings += judge_success(name_of(claim), answer, "preparing at the same time")
        findings += judge_same(answers[0], answer, "asked several times at once")
    return findings


async def _impatient(subject: DriverUnderTest) -> Iterable[Finding]:
    claim = await subject.claim()
    for patience_s in NO_PATIENCE_S:
        with suppress(RpcFailed):
            await subject.caller.prepare([name_of(claim)], subject.service, timeout_s=patience_s)
    return judge(subject, claim, await prepared(subject, claim))


async def _versions(subject: DriverUnderTest) -> Iterable[Finding]:
    if len(subject.services) < 2:
        raise Skip("the driver offers one version")
    claim = await subject.claim()
    answers = [await subject.caller.prepare([name_of(claim)], service) for service in subject.services]
    findings: list[Finding] = []
    for service, answer in zip(subject.services, answers, strict=True):
        findings += judge_success(name_of(claim), answer, f"preparing with {service.advertised}")
    findings += judge_same(answers[0], answers[1], "asked in both versions", with_shares=False)
    return findings


async def _alternative(subject: DriverUnderTest) -> Iterable[Finding]:
    claim = await subject.claim(subject.alternatives())
    return judge(subject, claim, await prepared(subject, claim))


async def _shares(subject: DriverUnderTest) -> Iterable[Finding]:
    claims = [await subject.claim(), await subject.claim()]
    shared = [_shares_of(claim) for claim in claims]
    if not all(shared):
        raise Skip("the driver has no devices that several claims can use")
    findings: list[Finding] = []
    answers = [await prepared(subject, claim) for claim in claims]
    for claim, answer in zip(claims, answers, strict=True):
        findings += judge(subject, claim, answer)
    # One share less must not concern the other.
    gone, stays = claims
    findings += judge_success(
        name_of(gone), await subject.caller.unprepare([name_of(gone)], subject.service), "unpreparing"
    )
    findings += judge_same(answers[1], await prepared(subject, stays), "after another share was released")
    return findings


def _shares_of(claim: ResourceClaim) -> list[str]:
    assert claim.status.allocation is not None, "it was allocated"
    return [result.share_id for result in claim.status.allocation.devices.results if result.share_id is not None]


async def _batch(subject: DriverUnderTest) -> Iterable[Finding]:
    claims = [await subject.claim(), await subject.claim()]
    names = [name_of(claim) for claim in claims]
    answered = await subject.caller.prepare(names, subject.service)
    findings = [*judge_entries(names, answered)]
    for claim in claims:
        findings += judge(subject, claim, answered)
    return findings


async def _foreign(subject: DriverUnderTest) -> Iterable[Finding]:
    """A claim with devices of two drivers, of which each prepares its own."""
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
    return judge(subject, claim, await prepared(subject, claim))


# --- What cannot be prepared --------------------------------------------------------------------------------------


async def _refused(subject: DriverUnderTest, claim: ClaimName, what: str) -> list[Finding]:
    """A claim that cannot be prepared is refused: for itself, or as the whole call."""
    try:
        answered = await subject.caller.prepare([claim], subject.service)
    except RpcFailed as error:
        if error.code in ("DEADLINE_EXCEEDED", "UNAVAILABLE"):
            return [Violation(f"asked about {what}, the driver did not answer: {error}")]
        return []
    findings = [*judge_entries([claim], answered)]
    entry = answered.get(claim.uid)
    if entry is not None and not entry.error:
        findings.append(Violation(f"the driver says that it has prepared {what}"))
    return findings


async def _unknown(subject: DriverUnderTest) -> Iterable[Finding]:
    unknown = ClaimName(NAMESPACE, subject.new_name(), str(uuid4()))
    return await _refused(subject, unknown, "a claim that does not exist")


async def _replaced(subject: DriverUnderTest) -> Iterable[Finding]:
    claim = name_of(await subject.claim())
    other = ClaimName(claim.namespace, claim.name, str(uuid4()))
    return await _refused(subject, other, "a claim that was deleted and made again under the same name")


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
            Remark(
                f"one claim that cannot be prepared fails the whole call, and with it the pod's other claims: {error}"
            )
        )
    else:
        findings += judge_entries([bad, name_of(good)], answered)
        findings += judge(subject, good, answered)
        entry = answered.get(bad.uid)
        if entry is not None and not entry.error:
            findings.append(Violation("the driver says that it has prepared a claim that does not exist"))
    findings += judge(subject, good, await prepared(subject, good))
    return findings


CHECKS: Final = (
    Check(
        id="prepare.answer",
        title="a claim is prepared with the devices that it was allocated",
        why="a node refuses answers for other claims; containers get what is answered, and nothing else",
        run=_answer,
    ),
    Check(
        id="prepare.cdi",
        title="CDI names that are answered stand in CDI files",
        why="a container runtime does not start a container with a CDI device that it cannot find",
        run=_cdi,
    ),
    Check(
        id="prepare.repeat",
        title="a claim that is prepared already gets the same answer again",
        why="a node asks again after lost answers and after its own restart",
        run=_repeat,
    ),
    Check(
        id="prepare.concurrent",
        title="questions that come at the same time get the same answer",
        why="a node that gave up on a call asks again while the driver still works",
        run=_concurrent,
    ),
    Check(
        id="prepare.impatient",
        title="a call that the node gave up on does no harm",
        why="a node waits 45 seconds and then asks again",
        run=_impatient,
    ),
    Check(
        id="prepare.versions",
        title="both versions answer alike",
        why="after an update a node may speak another version to the same driver",
        run=_versions,
    ),
    Check(
        id="prepare.alternative",
        title="a device of an alternative is answered under the name of its main request",
        why="containers name the main request only, and would get no device (KEP-4816)",
        run=_alternative,
    ),
    Check(
        id="prepare.shares",
        title="two claims share a device, each with its own share ID",
        why="shares cannot be told apart otherwise (KEP-5075)",
        run=_shares,
    ),
    Check(
        id="prepare.batch",
        title="several claims in one call are all answered",
        why="a node asks once for all claims of a pod, and fails where an entry is missing",
        run=_batch,
    ),
    Check(
        id="prepare.foreign",
        title="devices of other drivers are left alone",
        why="a claim may have devices of several drivers, and each prepares its own",
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
        title="a claim of the same name and another UID is refused",
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
        title="a claim that cannot be prepared does not harm the others",
        why="one bad claim must not keep good ones from their devices for ever",
        run=_partial,
    ),
)
