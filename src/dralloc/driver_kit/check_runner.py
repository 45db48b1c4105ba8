"""Runs the checks one after another, and clears away the claims of each."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Final

from dralloc.client.transport import TransportError
from dralloc.driver_kit.caller import RpcFailed
from dralloc.driver_kit.check import Check, CheckResult
from dralloc.driver_kit.claim_maker import CannotAllocate
from dralloc.driver_kit.driver_process import CommandFailed
from dralloc.driver_kit.driver_under_test import LOOK_AGAIN_S, DriverNotFound, DriverUnderTest
from dralloc.driver_kit.findings import Finding, NotApplicable, NotTestable, Remark, Skip, Violation
from dralloc.driver_kit.slice_rules import are_complete
from dralloc.primitives.errors import ApiError

END_S: Final = 0.5
# Of one check: a driver that answers with thousands of devices breaks the same rule for each.
FINDINGS_MAX: Final = 20
# Characters of a finding: it quotes what the driver has answered.
TEXT_LENGTH_MAX: Final = 1024


async def run_checks(subject: DriverUnderTest, checks: Sequence[Check]) -> AsyncIterator[CheckResult]:
    """The results, one by one. The driver must be connected (`DriverUnderTest.connect`)."""
    async with subject.watching_slices():
        await _wait_for_devices(subject)
        for check in checks:
            yield await _run(check, subject)


async def _wait_for_devices(subject: DriverUnderTest) -> None:
    """Wait for published devices; if there are none, the checks that need devices report it."""
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
    skip: Skip | None = None
    skipped = ""
    try:
        async with asyncio.timeout(subject.patience.check_s):
            findings = first_findings(tuple(await check.run(subject)))
    except Skip as reason:
        skip, skipped = reason, str(reason)
    except TimeoutError:
        findings = (Violation(f"the check did not end within {subject.patience.check_s:g} s"),)
    except (CommandFailed, CannotAllocate) as error:
        skipped = str(error)
    except RpcFailed as error:
        findings = (Violation(f"a call failed: {error}"),)
        if error.code == "UNAVAILABLE":
            await _wait_for_end(subject)
    except DriverNotFound as error:
        findings = (Violation(str(error)),)
    except (ApiError, TransportError) as error:
        skipped = f"a request to the API server failed: {error}"
    problem = await _clean_up(subject)
    return CheckResult(
        check,
        (*findings, *problem),
        skipped if not problem else "",
        loop.time() - begun_s,
        is_applicable=not isinstance(skip, NotApplicable),
        is_testable=not isinstance(skip, NotTestable),
    )


async def _wait_for_end(subject: DriverUnderTest) -> None:
    """A connection closes before the end of its process is known."""
    deadline = asyncio.get_running_loop().time() + END_S
    while asyncio.get_running_loop().time() < deadline and not subject.ended:
        await asyncio.sleep(LOOK_AGAIN_S)


async def _clean_up(subject: DriverUnderTest) -> tuple[Finding, ...]:
    """Release the claims of the check, and reconnect to the driver if necessary; a driver that ended is started again."""
    ended = (Violation(f"the driver did not survive the check: {subject.ended}"),) if subject.ended else ()
    try:
        if ended:
            await subject.restart()
        elif not subject.is_connected:
            await subject.connect()
        await subject.clean_up()
    except (DriverNotFound, CommandFailed) as error:
        return (*ended, Violation(f"the driver is no longer available: {error}"))
    except Skip:
        return ended
    return ended


def first_findings(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """The first findings of a check, not too long, and how many there are besides."""
    first = tuple(replace(each, text=_in_short(each.text)) for each in findings[:FINDINGS_MAX])
    left = findings[FINDINGS_MAX:]
    if not left:
        return first
    kind = Violation if any(isinstance(each, Violation) for each in left) else Remark
    return (*first, kind(f"… and {len(left)} more"))


def _in_short(text: str) -> str:
    half = TEXT_LENGTH_MAX // 2
    return text if len(text) <= TEXT_LENGTH_MAX else f"{text[: half - 1]}…{text[-half:]}"
