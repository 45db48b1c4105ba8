"""Checks of GetInfo and NotifyRegistrationStatus."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from dralloc.driver_kit.answer_rules import check_info
from dralloc.driver_kit.check import Check
from dralloc.driver_kit.driver_under_test import DriverUnderTest
from dralloc.driver_kit.findings import Finding, Violation


async def _info(subject: DriverUnderTest) -> Iterable[Finding]:
    return check_info(await subject.registrar.get_info())


async def _repeat(subject: DriverUnderTest) -> Iterable[Finding]:
    first, second = await subject.registrar.get_info(), await subject.registrar.get_info()
    return [] if first == second else [Violation(f"two calls got different answers: {first}, then {second}")]


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
                Violation(f"{service.advertised}: the answer to a call without claims has an entry for {uid}")
                for uid in answered
            ]
    return findings


CHECKS: Final = (
    Check(
        id="registration.info",
        title="GetInfo answers within a second and describes the driver",
        why="a kubelet does not register a plugin with another type, an invalid name or no version that it supports",
        fix="answer GetInfo with type DRAPlugin, a DNS subdomain as the name, the path of the service socket, and v1.DRAPlugin first in the versions",
        run=_info,
    ),
    Check(
        id="registration.repeat",
        title="GetInfo gives the same answer every time",
        why="a kubelet calls it again after every restart",
        fix="answer from constants; do not count calls or generate names in GetInfo",
        run=_repeat,
    ),
    Check(
        id="registration.status",
        title="NotifyRegistrationStatus can be called repeatedly",
        why="a kubelet whose notification fails removes the registration again",
        fix="treat the notification as information: answer it every time, also if the plugin is registered already",
        run=_status,
    ),
    Check(
        id="registration.versions",
        title="every advertised version is served",
        why="a kubelet calls the first version of the list that it supports",
        fix="advertise only what you serve on the socket, and serve both calls of each advertised version",
        run=_versions,
    ),
)
