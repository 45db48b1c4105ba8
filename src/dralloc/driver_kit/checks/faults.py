"""Checks that inject a fault while the driver works: frozen, disk full, API server slow or away, device lost."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Final

from dralloc.driver_kit.caller import AnsweredClaim, RpcFailed
from dralloc.driver_kit.check import Check, Feature
from dralloc.driver_kit.checks.health import HEALTHY, first_message
from dralloc.driver_kit.checks.prepare import check_prepared, missing_cdi_names, prepared
from dralloc.driver_kit.checks.unprepare import released
from dralloc.driver_kit.driver_under_test import LOOK_AGAIN_S, ApiFaults, DriverUnderTest, ProcessFaults, name_of
from dralloc.driver_kit.findings import Finding, NotTested, Violation
from dralloc.kube.resource_v1 import Device, ResourceClaim

FROZEN_CALL_S: Final = 0.5
SLOW_API_S: Final = 1.0


def _process(subject: DriverUnderTest) -> ProcessFaults:
    if subject.faults.process is None:
        raise NotTested("the kit cannot disturb a process that it has not started; give the driver's command after --")
    return subject.faults.process


def _api(subject: DriverUnderTest) -> ApiFaults:
    if subject.faults.api is None:
        raise NotTested(
            "the kit is not between the driver and its API server; give the driver's command after --, without --kubeconfig"
        )
    return subject.faults.api


async def _recovers(subject: DriverUnderTest, claim: ResourceClaim, after: str) -> list[Finding]:
    """After the fault, the claim can be prepared and released; the kubelet repeats its call until then.

    A driver that has ended is reported by the runner.
    """
    deadline = asyncio.get_running_loop().time() + subject.patience.recovery_s
    problem = "no answer"
    while asyncio.get_running_loop().time() < deadline and not subject.ended:
        if subject.responsiveness.is_silent:
            break
        try:
            answered = await prepared(subject, claim)
        except RpcFailed as error:
            problem = str(error)
        else:
            entry = answered.get(claim.metadata.uid)
            if entry is not None and not entry.error:
                findings = [*check_prepared(subject, claim, answered)]
                return [*findings, *await released(subject, name_of(claim), f"{after}, unpreparing")]
            problem = entry.error if entry is not None else "there is no entry for the claim"
        await asyncio.sleep(LOOK_AGAIN_S)
    if subject.ended:
        return []
    return [Violation(f"{after}, the claim cannot be prepared within {subject.patience.recovery_s:g} s: {problem}")]


async def _frozen(subject: DriverUnderTest) -> Iterable[Finding]:
    claim = await subject.claim()
    with _process(subject).frozen(), suppress(RpcFailed):
        await subject.caller.prepare([name_of(claim)], subject.service, timeout_s=FROZEN_CALL_S)
    return await _recovers(subject, claim, "after the driver stood still during a call")


async def _api_slow(subject: DriverUnderTest) -> Iterable[Finding]:
    claim = await subject.claim()
    async with _api(subject).slow(SLOW_API_S):
        answered = await prepared(subject, claim)
    return check_prepared(subject, claim, answered)


async def _api_away(subject: DriverUnderTest) -> Iterable[Finding]:
    ready, other = await subject.claim(), await subject.claim()
    await prepared(subject, ready)
    findings: list[Finding] = []
    async with _api(subject).away():
        findings += await released(subject, name_of(ready), "without the API server, unpreparing")
        try:
            await subject.caller.prepare([name_of(other)], subject.service, timeout_s=subject.patience.call_s)
        except RpcFailed as error:
            if error.code == "DEADLINE_EXCEEDED":
                findings.append(
                    Violation(f"without the API server, a call is not answered, not even with an error: {error}")
                )
    return [*findings, *await _recovers(subject, other, "after the API server was away")]


async def _disk_full(subject: DriverUnderTest) -> Iterable[Finding]:
    ready, other = await subject.claim(), await subject.claim()
    await prepared(subject, ready)
    findings: list[Finding] = []
    with _process(subject).full_disk():
        try:
            answered = await subject.caller.prepare(
                [name_of(other)], subject.service, timeout_s=subject.patience.call_s
            )
        except RpcFailed as error:
            if error.code == "DEADLINE_EXCEEDED":
                findings.append(Violation(f"with a full disk, a call is not answered, not even with an error: {error}"))
        else:
            findings += _success_without_files(subject, ready, other, answered)
        with suppress(RpcFailed):
            await subject.caller.unprepare([name_of(ready)], subject.service, timeout_s=subject.patience.call_s)
    if "SIGXFSZ" in subject.ended:
        await subject.restart()
        raise NotTested(
            "the runtime of the driver ends it at a file size limit, by which the kit simulates a full disk: "
            "test it on a small file system of your own"
        )
    findings += await _recovers(subject, other, "after the disk was full")
    if not subject.ended:
        findings += await released(subject, name_of(ready), "after the disk was full, unpreparing")
    return findings


def _success_without_files(
    subject: DriverUnderTest, recorded: ResourceClaim, claim: ResourceClaim, answered: Mapping[str, AnsweredClaim]
) -> Iterator[Finding]:
    """A driver may succeed without writing files only if it needs none."""
    for name in missing_cdi_names(subject, answered):
        yield Violation(f"with a full disk, the driver reports success, but no CDI file describes {name}")
    is_success = any(not entry.error for entry in answered.values())
    has_checkpoint = bool(subject.traces.records_of(recorded.metadata.uid))
    if is_success and has_checkpoint and not subject.traces.records_of(claim.metadata.uid):
        yield Violation("with a full disk, the driver reports success, but its checkpoint does not have the claim")


async def _lost(subject: DriverUnderTest) -> Iterable[Finding]:
    faults = subject.faults.device
    if faults is None:
        raise NotTested("the kit cannot take a device away; say how with --lose-device 'COMMAND {device}'")
    claim = await subject.claim()
    assert claim.status.allocation is not None, "it was allocated"
    result = claim.status.allocation.devices.results[0]
    pool, device = result.pool, result.device
    before = await _published(subject, pool, device)
    await subject.caller.prepare([name_of(claim)], subject.service)
    await faults.lose(pool, device)
    findings: list[Finding] = []
    try:
        if not await _eventually(subject, lambda: _is_told(subject, pool, device)):
            said = "reported as healthy" if subject.health_services else "published without a taint"
            late = f"{subject.patience.health_s:g} s after device {pool}/{device} was lost it is still {said}"
            findings.append(Violation(late))
        findings += await released(subject, name_of(claim), "after its device was lost, unpreparing")
    finally:
        is_back = await faults.restore(pool, device)

    async def is_published_again() -> bool:
        return await _published(subject, pool, device) == before

    if is_back and not await _eventually(subject, is_published_again):
        findings.append(Violation(f"device {pool}/{device} is back, but is not published as before"))
    return findings


async def _is_told(subject: DriverUnderTest, pool: str, device: str) -> bool:
    """True if the driver reports the device as not healthy; without health: if it taints or no longer publishes it."""
    if not subject.health_services:
        found = await _published(subject, pool, device)
        return found is None or bool(found.taints)
    message = await first_message(subject, subject.health_services[0])
    devices = message.devices if message is not None else ()
    healthy = {(each.device.pool_name, each.device.device_name) for each in devices if each.health == HEALTHY}
    return (pool, device) not in healthy


async def _published(subject: DriverUnderTest, pool: str, device: str) -> Device | None:
    for item in await subject.slices():
        for each in item.spec.devices or ():
            if (item.spec.pool.name, each.name) == (pool, device):
                return each
    return None


async def _eventually(subject: DriverUnderTest, condition: Callable[[], Awaitable[bool]]) -> bool:
    deadline = asyncio.get_running_loop().time() + subject.patience.health_s
    while asyncio.get_running_loop().time() < deadline:
        if await condition():
            return True
        await asyncio.sleep(LOOK_AGAIN_S)
    return False


CHECKS: Final = (
    Check(
        id="faults.slow-driver",
        title="a claim can be prepared after the driver stood still during a call",
        why="on a busy node a driver may not run for a minute; the kubelet has given the call up and repeats it",
        fix="let a repeated call continue or repeat the work of the first; do not refuse it because a marker says that it is in progress",
        run=_frozen,
        injects="driver slow",
    ),
    Check(
        id="faults.api-slow",
        title="a claim is prepared although the API server answers slowly",
        why="API servers are slow when many pods start, which is when claims are prepared",
        fix="give requests to the API server nearly as long as the kubelet gives the call (45 s), and make few of them",
        run=_api_slow,
        injects="API server slow",
    ),
    Check(
        id="faults.api-away",
        title="claims are released without the API server, and calls are answered",
        why="pods must be able to end while the API server is away; a call without an answer blocks the pod for 45 s each time",
        fix="release a claim by what the checkpoint says about its UID alone; answer with an error if a claim cannot be read",
        run=_api_away,
        injects="API server away",
    ),
    Check(
        id="faults.disk-full",
        title="a full disk is an error, and is over when there is space again",
        why="a driver that reports success without its files leaves a pod that cannot start and a claim that is forgotten at the next restart",
        fix="write the checkpoint and CDI files to a temporary file, flush and rename it, and answer with an error if any of it fails",
        run=_disk_full,
        injects="disk full",
    ),
    # Last: the device may not come back.
    Check(
        id="faults.device-lost",
        title="a device that is lost is reported, and its claim can be released",
        why="pods keep running on a device that is gone, and new pods are placed on it",
        fix="measure the health of each device instead of reporting that it was prepared; taint it or remove it from the slices; release claims without touching the device",
        run=_lost,
        feature=Feature.HEALTH,
        known_fault="health that lies",
        injects="device lost",
    ),
)
