"""Simulates containers that do nothing for as long as the annotations of their pod say.

A running container is at most a timer. The annotations hold for all containers of the pod, except that init containers succeed
at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from dralloc.node.pod_plan import Exit
from dralloc.node.pod_view import NodePod
from dralloc.node.runtime import CannotStart, Launch, RuntimeListener
from dralloc.primitives.clock import Clock

PREFIX: Final = "fake.dralloc.io/"
# 128 plus the number of SIGTERM or SIGKILL, as on a real node.
TERMINATED: Final = 143
KILLED: Final = 137


@dataclass(frozen=True, slots=True, kw_only=True)
class Behaviour:
    """How the containers of a pod behave; without `run_s` they run until they are stopped."""

    start_s: float = 0.0
    run_s: float | None = None
    exit_code: int = 0
    # The number of runs that fail at once before one succeeds.
    failures: int = 0
    stop_s: float = 0.0
    stop_code: int = TERMINATED


RUNS_FOREVER: Final = Behaviour()


def read_behaviour(annotations: Mapping[str, str]) -> Behaviour:
    """The behaviour in the annotations of a pod; ValueError names an annotation that is not valid."""
    values = {name.removeprefix(PREFIX): value for name, value in annotations.items() if name.startswith(PREFIX)}
    if not values:
        return RUNS_FOREVER
    known = {"start-seconds", "run-seconds", "exit-code", "failures", "stop-seconds", "stop-code"}
    if unknown := sorted(values.keys() - known):
        raise ValueError(f"unknown annotation {PREFIX}{unknown[0]}; known are {', '.join(sorted(known))}")
    return Behaviour(
        start_s=_seconds(values, "start-seconds") or 0.0,
        run_s=_seconds(values, "run-seconds"),
        exit_code=_whole(values, "exit-code"),
        failures=_whole(values, "failures"),
        stop_s=_seconds(values, "stop-seconds") or 0.0,
        stop_code=_whole(values, "stop-code", TERMINATED),
    )


def _seconds(values: Mapping[str, str], name: str) -> float | None:
    if name not in values:
        return None
    try:
        seconds = float(values[name])
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= 1e9:
        raise ValueError(f"{PREFIX}{name}: {values[name]!r} is not a number of seconds")
    return seconds


def _whole(values: Mapping[str, str], name: str, default: int = 0) -> int:
    text = values.get(name, str(default))
    if not text.isascii() or not text.isdecimal() or len(text) > 9:
        raise ValueError(f"{PREFIX}{name}: {text!r} is not a whole number")
    return int(text)


@dataclass(slots=True)
class _Running:
    behaviour: Behaviour
    started_at: datetime | None = None
    timer: asyncio.TimerHandle | None = None
    stops_at: float | None = None


class SimulatedRuntime:
    """A runtime whose containers only report events."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._running: dict[str, dict[str, _Running]] = {}
        self._listener: RuntimeListener | None = None

    def listen(self, listener: RuntimeListener) -> None:
        self._listener = listener

    def limits(self, pod: NodePod, cdi_ids: Sequence[str]) -> str:  # noqa: ARG002 - nothing is run, so nothing is missing
        return ""

    async def start(self, launch: Launch) -> None:
        try:
            behaviour = read_behaviour(launch.pod.metadata.annotations)
        except ValueError as error:
            raise CannotStart("CreateContainerConfigError", str(error)) from None
        if launch.restarts < behaviour.failures:
            behaviour = Behaviour(run_s=0.0, exit_code=1)
        if launch.container in launch.pod.spec.init_containers and not launch.container.is_sidecar:
            behaviour = Behaviour(run_s=0.0)
        key = (launch.pod.metadata.uid, launch.container.name)
        running = _Running(behaviour)
        self._running.setdefault(key[0], {})[key[1]] = running
        if behaviour.start_s:
            running.timer = asyncio.get_running_loop().call_later(behaviour.start_s, self._started, key, running)
        else:
            # Synchronously, so that the first status of the pod already shows it running.
            self._started(key, running)

    def adopt(self, pod: NodePod, container: str, started_at: datetime) -> bool:
        """A simulated container survives restarts of the agent and runs until its time is up."""
        try:
            behaviour = read_behaviour(pod.metadata.annotations)
        except ValueError:
            return False
        running = _Running(behaviour, started_at)
        self._running.setdefault(pod.metadata.uid, {})[container] = running
        self._schedule_exit((pod.metadata.uid, container), running)
        return True

    def stop(self, pod_uid: str, container: str, grace_s: float) -> None:
        key = (pod_uid, container)
        running = self._running.get(pod_uid, {}).get(container)
        if running is None:
            return
        loop = asyncio.get_running_loop()
        takes_s = min(running.behaviour.stop_s, grace_s)
        stops_at = loop.time() + takes_s
        if running.stops_at is not None and running.stops_at <= stops_at:
            return
        if running.timer is not None:
            running.timer.cancel()
        running.stops_at = stops_at
        was_killed = running.behaviour.stop_s > grace_s
        code = KILLED if was_killed else running.behaviour.stop_code
        running.timer = loop.call_later(takes_s, self._exited, key, running, code)

    def forget(self, pod_uid: str) -> None:
        for running in self._running.pop(pod_uid, {}).values():
            if running.timer is not None:
                running.timer.cancel()

    def _started(self, key: tuple[str, str], running: _Running) -> None:
        running.started_at, running.timer = self._clock.now(), None
        assert self._listener is not None
        self._listener.container_started(*key, running.started_at)
        self._schedule_exit(key, running)

    def _schedule_exit(self, key: tuple[str, str], running: _Running) -> None:
        run_s = running.behaviour.run_s
        if run_s is None:
            return
        assert running.started_at is not None
        left_s = (running.started_at + timedelta(seconds=run_s) - self._clock.now()).total_seconds()
        loop = asyncio.get_running_loop()
        running.timer = loop.call_later(max(left_s, 0.0), self._exited, key, running, running.behaviour.exit_code)

    def _exited(self, key: tuple[str, str], running: _Running, code: int) -> None:
        of_pod = self._running[key[0]]
        del of_pod[key[1]]
        if not of_pod:
            del self._running[key[0]]
        assert self._listener is not None
        exit = Exit(code=code, started_at=running.started_at, finished_at=self._clock.now())
        self._listener.container_exited(*key, exit)
