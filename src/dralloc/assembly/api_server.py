"""An API server inside this process: the one place that starts and stops it, besides `dralloc apiserver`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from dralloc.access.authorizer import Authorizer
from dralloc.apiserver.audit.auditor import Auditor
from dralloc.apiserver.objects.writer import random_uid
from dralloc.apiserver.server import ApiServer, ServerExtension
from dralloc.primitives.clock import Clock
from dralloc.primitives.features import FeatureGates
from dralloc.store.interface import Store


@asynccontextmanager
async def running_api_server(
    store: Store,
    *,
    clock: Clock,
    gates: FeatureGates,
    new_uid: Callable[[], str] = random_uid,
    guards_devices: bool = True,
    authorizer: Authorizer | None = None,
    enforces_roles: bool = False,
    auditor: Auditor | None = None,
    extensions: Sequence[ServerExtension] = (),
) -> AsyncIterator[ApiServer]:
    """A server that is ready, and stopped at the end of the block."""
    server = ApiServer(
        store,
        clock=clock,
        gates=gates,
        new_uid=new_uid,
        guards_devices=guards_devices,
        authorizer=authorizer,
        enforces_roles=enforces_roles,
        auditor=auditor,
        extensions=extensions,
    )
    await server.start()
    try:
        yield server
    finally:
        await server.stop()
