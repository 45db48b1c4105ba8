"""Checks of what a driver remembers about claims: nothing of a released claim, nothing of other drivers, and never a stale preparation."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import AsyncExitStack
from typing import Final
from uuid import uuid4

from dralloc.driver_kit.answer_rules import check_success
from dralloc.driver_kit.caller import RpcFailed
from dralloc.driver_kit.check import Check
from dralloc.driver_kit.checks.prepare import FOREIGN_DRIVER, prepared
from dralloc.driver_kit.checks.unprepare import released
from dralloc.driver_kit.driver_under_test import LOOK_AGAIN_S, DriverUnderTest, name_of
from dralloc.driver_kit.findings import Finding, NotTested, Remark, Violation
from dralloc.kube.resource_v1 import DeviceRequestAllocationResult, ResourceClaim

# The API server answers so late that a preparation is still reading its claim when the claim is released. On a busy machine, the driver
# may have its answer before the call is given up; then the next delay is tried.
STALE_DELAYS_S: Final = (0.3, 1.0, 3.0)


def _new_cdi_devices(subject: DriverUnderTest, cdi_before: frozenset[str]) -> list[str]:
    return [f"CDI device {name} still exists" for name in sorted(subject.traces.cdi_names() - cdi_before)]


def _records(subject: DriverUnderTest, claim: ResourceClaim) -> list[str]:
    return [f"{path.name} still names the claim's UID" for path in subject.traces.records_of(claim.metadata.uid)]


async def _recorded(subject: DriverUnderTest) -> ResourceClaim:
    """A prepared claim that the checkpoint names: otherwise its absence later would prove nothing."""
    if not subject.traces.checkpoint:
        raise NotTested("the checkpoint of the driver is not known; use --checkpoint with its file or directory")
    claim = await subject.claim()
    await prepared(subject, claim)
    if not subject.traces.records_of(claim.metadata.uid):
        places = ", ".join(map(str, subject.traces.checkpoint))
        raise NotTested(f"no file in {places} names a prepared claim; use --checkpoint if the driver has a checkpoint")
    return claim


async def _released(subject: DriverUnderTest) -> Iterable[Finding]:
    cdi_before = subject.traces.cdi_names()
    claim = await _recorded(subject)
    await subject.claims.delete(claim)
    findings = await released(subject, name_of(claim), "after its deletion, unpreparing")
    found = [*_new_cdi_devices(subject, cdi_before), *_records(subject, claim)]
    return [*findings, *(Violation(f"after the claim was released: {text}") for text in found)]


async def _deleted(subject: DriverUnderTest) -> Iterable[Finding]:
    limit_s = subject.patience.cleanup_s
    if limit_s is None:
        raise NotTested(
            "drivers look for deleted claims only from time to time; say how long to wait with --wait-cleanup"
        )
    claim = await _recorded(subject)
    await subject.claims.delete(claim)
    await subject.restart()
    deadline = asyncio.get_running_loop().time() + limit_s
    while asyncio.get_running_loop().time() < deadline:
        if not subject.traces.records_of(claim.metadata.uid):
            return []
        await asyncio.sleep(LOOK_AGAIN_S)
    files = ", ".join(path.name for path in subject.traces.records_of(claim.metadata.uid))
    return [
        Violation(f"{limit_s:g} s after a restart, {files} still names claim {claim.metadata.name}, which was deleted")
    ]


async def _foreign(subject: DriverUnderTest) -> Iterable[Finding]:
    await _recorded(subject)
    await subject.clean_up()
    marker = f"foreign-{uuid4().hex[:12]}"
    result = DeviceRequestAllocationResult(request="foreign", driver=FOREIGN_DRIVER, pool=marker, device=marker)
    claim = await subject.claim_with("foreign", result)
    answered = await prepared(subject, claim)
    findings = [*check_success(name_of(claim), answered, "preparing")]
    return [
        *findings,
        *(
            Violation(f"{path.name} has device {marker} of driver {FOREIGN_DRIVER} as a prepared device")
            for path in subject.traces.records_of(marker)
        ),
    ]


async def _stale(subject: DriverUnderTest) -> Iterable[Finding]:
    """A kubelet gives a preparation up and releases the claim; the preparation must not end after that."""
    if not subject.traces.cdi_dirs:
        raise NotTested("nothing shows what a claim leaves behind; use --cdi-dir")
    for delay_s in STALE_DELAYS_S if subject.faults.api is not None else STALE_DELAYS_S[:1]:
        if (findings := await _given_up(subject, delay_s)) is not None:
            return findings
        await subject.clean_up()
    raise NotTested("the driver prepared the claim before the call could be given up")


async def _given_up(subject: DriverUnderTest, delay_s: float) -> list[Finding] | None:
    """None if the claim was prepared before the call could be given up."""
    cdi_before = subject.traces.cdi_names()
    claim = await subject.claim()
    async with AsyncExitStack() as stack:
        if subject.faults.api is not None:
            await stack.enter_async_context(subject.faults.api.slow(delay_s))
        try:
            await subject.caller.prepare([name_of(claim)], subject.service, timeout_s=delay_s / 3)
        except RpcFailed:
            pass
        else:
            return None
        findings: list[Finding] = [
            *await released(subject, name_of(claim), "after a preparation was given up, unpreparing")
        ]
        # The driver may still be working on the first call.
        await asyncio.sleep(2 * delay_s + subject.patience.settle_s)
    late = "a preparation ended after the claim was released"
    if devices := _new_cdi_devices(subject, cdi_before):
        return [*findings, *(Violation(f"{late}: {text}") for text in devices)]
    # A mark that makes the late preparation fail looks the same from outside, and is a way to get it right.
    return [
        *findings,
        *(Remark(f"either {late}, or this is a mark against it: {text}") for text in _records(subject, claim)),
    ]


CHECKS: Final = (
    Check(
        id="checkpoint.released",
        title="a released claim leaves nothing behind",
        why="the devices of a claim that is remembered cannot be prepared for the next one, or a runtime finds CDI devices that are in use elsewhere",
        fix="remove the CDI file and the record of the claim in NodeUnprepareResources, also if the claim no longer exists in the API",
        run=_released,
        known_fault="deleted claims left in the checkpoint",
    ),
    Check(
        id="checkpoint.deleted",
        title="a claim that was deleted while the driver was away is forgotten",
        why="the kubelet may never release it; its device is refused to later claims as being in use until a person edits the checkpoint",
        fix="compare the checkpoint with the API server at the start and periodically; release claims that are gone or have another UID, whatever their state",
        run=_deleted,
        known_fault="deleted claims left in the checkpoint",
        injects="driver dead while a claim is deleted",
    ),
    Check(
        id="checkpoint.foreign",
        title="the checkpoint has only the driver's own devices",
        why="a kubelet gives a claim to every driver in its allocation; devices of others in the checkpoint are later kept, released or cleaned up as if they were the driver's",
        fix="store only those results of status.allocation whose driver is your own, and filter by driver wherever results are read",
        run=_foreign,
        known_fault="claims of several drivers pollute the checkpoint",
    ),
    Check(
        id="checkpoint.stale-prepare",
        title="a preparation that was given up does not end after the release",
        why="the kubelet has released the claim and will not do it again: the device stays prepared for a claim that no pod uses",
        fix="when a claim is released, make calls that are still preparing it fail, for instance by a mark in the checkpoint that they check under the same lock before they write",
        run=_stale,
        known_fault="stale prepare after unprepare",
        injects="API server slow, call given up",
    ),
)
