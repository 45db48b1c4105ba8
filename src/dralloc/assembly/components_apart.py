"""Scheduler and controllers in processes of their own, beside the server: a process uses one core at a time."""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NamedTuple

from dralloc.access.users import User
from dralloc.apiserver.http.application import ApiApplication
from dralloc.apiserver.server_process import RunningServer
from dralloc.assembly.child_process import ChildProcess
from dralloc.assembly.cluster import ClusterSettings, ReadIdleDevices
from dralloc.assembly.component_rights import ComponentAccount
from dralloc.assembly.components import Components, starting_again
from dralloc.client.http_transport import HttpTransport
from dralloc.client.kubeconfig import ConnectionConfig
from dralloc.controllers.controller_set import ControllerSet
from dralloc.primitives.metrics import Metric
from dralloc.scheduler.leader_loop import SchedulerLoop
from dralloc.scheduler.report.stranded_devices import IdleDevices


def has_several_cores() -> bool:
    """True if several processes can run at the same time."""
    return sys.platform == "linux" and len(os.sched_getaffinity(0)) > 1


class ComponentState(NamedTuple):
    """What the parent of a component shows of it."""

    metrics: tuple[Metric, ...]
    idle: Mapping[str, IdleDevices] = {}


def _new_tokens() -> dict[ComponentAccount, str]:
    return {
        account: secrets.token_urlsafe(32) for account in (ComponentAccount.SCHEDULER, ComponentAccount.CONTROLLERS)
    }


@dataclass(frozen=True, slots=True)
class ComponentsApart:
    """The processes, and the tokens by which the server knows them."""

    _scheduler: ChildProcess[ComponentState]
    _controllers: ChildProcess[ComponentState]
    _tokens: Mapping[ComponentAccount, str] = field(default_factory=_new_tokens)

    def users(self) -> dict[str, User]:
        """The users of the components, by token."""
        return {token: account.user for account, token in self._tokens.items()}

    def start(self, running: RunningServer, components: Components, application: ApiApplication) -> ReadIdleDevices:
        """Have them work on the server."""
        for name, account, child in (
            ("scheduler", ComponentAccount.SCHEDULER, self._scheduler),
            ("controllers", ComponentAccount.CONTROLLERS, self._controllers),
        ):
            connection = _connection(running.local_url, self._tokens[account], running.authority)
            components.start(name, partial(child.run, connection))
            application.metrics.include_later(partial(_metrics_of, child))
        return partial(_idle_devices_of, self._scheduler)


def _connection(server: str, token: str, authority: Path | None) -> ConnectionConfig:
    if authority is None:
        return ConnectionConfig(server=server, token=token)
    return ConnectionConfig(server=server, token=token, authority_pem=authority.read_text())


async def _metrics_of(child: ChildProcess[ComponentState]) -> Iterable[Metric]:
    state = await child.state()
    return () if state is None else state.metrics


async def _idle_devices_of(child: ChildProcess[ComponentState]) -> Mapping[str, IdleDevices]:
    state = await child.state()
    return {} if state is None else state.idle


def fork_components(settings: ClusterSettings) -> ComponentsApart:
    """Call it before the process has an event loop or threads."""
    return ComponentsApart(
        ChildProcess(lambda connection: _ForkedScheduler(connection, settings)),
        ChildProcess(lambda connection: _ForkedControllers(connection, settings)),
    )


class _ForkedScheduler:
    def __init__(self, connection: ConnectionConfig, settings: ClusterSettings) -> None:
        self._loop = SchedulerLoop(HttpTransport(connection), clock=settings.clock, settings=settings.scheduler)
        self._identity = settings.identity

    async def run(self) -> None:
        loop, identity = self._loop, self._identity
        await starting_again("scheduler", partial(loop.run_elected, identity) if identity else loop.run)

    async def close(self) -> None:
        await self._loop.close()

    def state(self) -> ComponentState:
        return ComponentState(tuple(self._loop.metrics.all()), self._loop.metrics.idle())


class _ForkedControllers:
    def __init__(self, connection: ConnectionConfig, settings: ClusterSettings) -> None:
        transport = HttpTransport(connection)
        self._set = ControllerSet(transport, clock=settings.clock, gates=settings.gates, only=settings.controllers)
        self._identity = settings.identity

    async def run(self) -> None:
        controllers, identity = self._set, self._identity
        await starting_again("controllers", partial(controllers.run_elected, identity) if identity else controllers.run)

    async def close(self) -> None:
        await self._set.close()

    def state(self) -> ComponentState:
        return ComponentState(tuple(self._set.metrics.all()))
