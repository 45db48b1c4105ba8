"""Checks of NodeWatchResources: a first message at once, valid entries, and a stream that can be opened again."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import aclosing
from typing import Any, Final

from dralloc.driver_kit.check import Check, Feature
from dralloc.driver_kit.driver_under_test import DriverUnderTest
from dralloc.driver_kit.findings import Finding, NotApplicable, Remark, Violation
from dralloc.node.kubelet.plugin_sockets import HEALTH_MESSAGE_LENGTH_MAX, HEALTH_TIMEOUT_S
from dralloc.rpc.plugin_services import PluginService

HEALTHS: Final = (0, 1, 2)
HEALTHY: Final = 1
# From the year 2001 on; milliseconds and zero are outside.
TIME_MIN_S, TIME_MAX_S = 1_000_000_000, 100_000_000_000


async def first_message(subject: DriverUnderTest, service: PluginService) -> Any:
    async with aclosing(subject.caller.watch_health(service)) as stream:
        try:
            async with asyncio.timeout(subject.patience.health_s):
                return await anext(stream)
        except TimeoutError:
            return None
        except StopAsyncIteration:
            return None


def _services(subject: DriverUnderTest) -> tuple[PluginService, ...]:
    if not subject.health_services:
        raise NotApplicable("the driver does not advertise a health service")
    return subject.health_services


async def _first(subject: DriverUnderTest) -> Iterable[Finding]:
    findings: list[Finding] = []
    for service in _services(subject):
        message = await first_message(subject, service)
        if message is None:
            findings.append(
                Violation(f"{service.advertised}: no message arrived within {subject.patience.health_s:.0f} s")
            )
        else:
            findings += (type(found)(f"{service.advertised}: {found.text}") for found in check_health(message))
    return findings


async def _devices(subject: DriverUnderTest) -> Iterable[Finding]:
    message = await first_message(subject, _services(subject)[0])
    published = {
        (item.spec.pool.name, device.name) for item in await subject.slices() for device in item.spec.devices or ()
    }
    told = {(found.device.pool_name, found.device.device_name) for found in message.devices} if message else set()
    strangers = [
        Violation(f"health is reported for device {pool}/{name}, which is not published")
        for pool, name in sorted(told - published)
    ]
    silent = sorted(f"{pool}/{name}" for pool, name in published - told)
    return [*strangers, *([Remark(f"no health is reported for {', '.join(silent)}")] if silent and message else [])]


def check_health(message: Any) -> Iterator[Finding]:
    """What is wrong with a message."""
    names = Counter((found.device.pool_name, found.device.device_name) for found in message.devices)
    for (pool, device), count in names.items():
        if not pool or not device:
            yield Violation(f"a device lacks its name or its pool: {pool!r}/{device!r}")
        if count > 1:
            yield Violation(f"device {pool}/{device} has {count} entries")
    for found in message.devices:
        shown = f"device {found.device.pool_name}/{found.device.device_name}"
        if found.health not in HEALTHS:
            yield Violation(f"{shown}: {found.health} is not a health value")
        if not TIME_MIN_S < found.last_updated_time < TIME_MAX_S:
            yield Violation(f"{shown}: last_updated_time {found.last_updated_time} is not in seconds since 1970")
        if found.health_check_timeout_seconds < 0:
            yield Violation(f"{shown}: health_check_timeout_seconds is negative")
        if len(found.message) > HEALTH_MESSAGE_LENGTH_MAX:
            yield Remark(f"{shown}: a kubelet cuts the message off after {HEALTH_MESSAGE_LENGTH_MAX} characters")


async def _reopen(subject: DriverUnderTest) -> Iterable[Finding]:
    service = _services(subject)[0]
    for attempt in ("", " after the stream was cancelled"):
        if await first_message(subject, service) is None:
            return [Violation(f"no message arrived within {subject.patience.health_s:.0f} s{attempt}")]
    return []


async def _refresh(subject: DriverUnderTest) -> Iterable[Finding]:
    """A report counts for half a minute, or as long as it says."""
    service = _services(subject)[0]
    async with aclosing(subject.caller.watch_health(service)) as stream:
        try:
            async with asyncio.timeout(subject.patience.health_s):
                await anext(stream)
                latest = await anext(stream)
        except (TimeoutError, StopAsyncIteration):
            return [Violation(f"the report is not repeated within {subject.patience.health_s:g} s")]
    now_s = time.time()
    return [
        Remark(
            f"device {found.device.pool_name}/{found.device.device_name}: last_updated_time is "
            f"{now_s - found.last_updated_time:.0f} s old in a new message"
        )
        for found in latest.devices
        if now_s - found.last_updated_time > (found.health_check_timeout_seconds or HEALTH_TIMEOUT_S)
    ]


CHECKS: Final = (
    Check(
        id="health.first",
        title="a health stream begins with the state of the devices",
        why="until the first message, the health of the devices of running pods is unknown",
        fix="send the state of all devices when a stream is opened, with times in seconds since 1970",
        run=_first,
        feature=Feature.HEALTH,
    ),
    Check(
        id="health.devices",
        title="health is reported for the published devices",
        why="a kubelet finds the pods of a device by its pool and name",
        fix="use the pool and device names of the published slices, and report every published device",
        run=_devices,
        feature=Feature.HEALTH,
    ),
    Check(
        id="health.reopen",
        title="a cancelled health stream can be opened again",
        why="a kubelet opens the stream again five seconds after it ended",
        fix="serve any number of streams; end the work of a stream when its call is cancelled",
        run=_reopen,
        feature=Feature.HEALTH,
    ),
    Check(
        id="health.refresh",
        title="a health report is repeated before it is out of date",
        why="a kubelet shows a device as Unknown if its report is older than half a minute, even if nothing has changed",
        fix="send all reports every few seconds, with the time of the measurement in last_updated_time",
        run=_refresh,
        feature=Feature.HEALTH,
    ),
)
