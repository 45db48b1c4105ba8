"""Runs the checks against a driver, one after the other, each on its own ground."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

from dralloc.client.transport import TransportError
from dralloc.driver_kit.caller import RpcFailed
from dralloc.driver_kit.check import Check, CheckResult
from dralloc.driver_kit.driver_under_test import LOOK_AGAIN_S, DriverNotFound, DriverUnderTest
from dralloc.driver_kit.findings import Finding, NotTestable, Skip, Violation
from dralloc.driver_kit.slice_rules import are_complete
from dralloc.primitives.errors import ApiError


async def run_checks(subject: DriverUnderTest, checks: Sequence[Check]) -> AsyncIterator[CheckResult]:
    """The verdicts as they come. The driver must be there (`DriverUnderTest.connect`)."""
    async with subject.watching_slices():
        await _get_ready(subject)
        for check in checks:
            yield await _run(check, subject)


async def _get_ready(subject: DriverUnderTest) -> None:
    """Wait for devices; where none come, the checks that need some say so."""
    try:
        await subject.claims.create_class()
    except Skip:
        return
    deadline = asyncio.get_running_loop().time() + subject.patience.start_s
    while asyncio.get_running_loop().time() < deadline and not are_complete(await subject.slices()):
        if subject.ended:
            return
        await asyncio.sleep(LOOK_AGAIN_S)


async def _run(check: Check, subject: DriverUnderTest) -> CheckResult:
    loop = asyncio.get_running_loop()
    begun_s = loop.time()
    findings: tuple[Finding, ...] = ()
    skipped, is_testable = "", True
    try:
        findings = tuple(await check.run(subject))
    except Skip as reason:
        skipped, is_testable = str(reason), not isinstance(reason, NotTestable)
    except RpcFailed as error:
        findings = (Violation(f"a call failed: {error}"),)
    except DriverNotFound as error:
        findings = (Violation(str(error)),)
    except (ApiError, TransportError) as error:
        skipped = f"the server did not do as asked: {error}"
    problem = await _clear_away(subject)
    return CheckResult(check, (*findings, *problem), skipped if not problem else "", loop.time() - begun_s, is_testable)


async def _clear_away(subject: DriverUnderTest) -> tuple[Finding, ...]:
    """Release what the check left; a driver that is gone is looked for, so that the next check has one."""
    try:
        if not subject.is_connected:
            await subject.connect()
        await subject.clear_away()
    except DriverNotFound as error:
        return (Violation(f"the driver is gone: {error}"),)
    except Skip:
        return ()
    return ()
