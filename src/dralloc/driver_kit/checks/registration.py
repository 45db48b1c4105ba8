"""How a driver makes itself known."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from dralloc.driver_kit.answer_rules import judge_info
from dralloc.driver_kit.check import Check
from dralloc.driver_kit.driver_under_test import DriverUnderTest
from dralloc.driver_kit.findings import Finding, Violation


async def _info(subject: DriverUnderTest) -> Iterable[Finding]:
    return judge_info(await subject.registrar.get_info())


async def _repeat(subject: DriverUnderTest) -> Iterable[Finding]:
    first, second = await subject.registrar.get_info(), await subject.registrar.get_info()
    return [] if first == second else [Violation(f"asked twice, it said {first} and then {second}")]


async def _status(subject: DriverUnderTest) -> Iterable[Finding]:
    for _ in range(2):
        await subject.registrar.notify()
    await subject.registrar.get_info()
    return []


async def _versions(subject: DriverUnderTest) -> Iterable[Finding]:
    findings: list[Finding] = []
    for service in subject.services:
        for answered in (await subject.caller.prepare([], service), await subject.caller.unprepare([], service)):
            findings += [
                Violation(f"{service.advertised}: asked about no claim, it answers for {uid}") for uid in answered
            ]
    return findings


CHECKS: Final = (
    Check(
        id="registration.info",
        title="GetInfo says who the driver is, within a second",
        why="a node does not register a plugin of another type, with a bad name or without a version that it knows",
        run=_info,
    ),
    Check(
        id="registration.repeat",
        title="GetInfo says the same every time",
        why="a node asks again whenever it is restarted",
        run=_repeat,
    ),
    Check(
        id="registration.status",
        title="NotifyRegistrationStatus is accepted, also twice",
        why="a node that cannot tell a driver of its registration takes it back",
        run=_status,
    ),
    Check(
        id="registration.versions",
        title="every version that is offered is served",
        why="a node calls the first version of the list that it knows",
        run=_versions,
    ),
)
