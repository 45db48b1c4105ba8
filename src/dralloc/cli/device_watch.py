"""A cluster's devices, followed: the snapshot changes with every event, and is shown at a bounded rate."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable
from datetime import datetime
from typing import Any, Final

import msgspec

from dralloc.allocator.features import Features
from dralloc.api.core_v1 import Node
from dralloc.api.meta_v1 import ApiObject
from dralloc.api.resource_v1 import DeviceTaintRule, ResourceClaim, ResourceSlice
from dralloc.cli.device_tree import plain_pool, tree
from dralloc.cli.live_view import change_lines, changed_pools, frame
from dralloc.cli.object_documents import plain_yaml
from dralloc.cli.options import OutputFormat
from dralloc.cli.output import FINDINGS, fail, say
from dralloc.cli.server_connection import what_to_do
from dralloc.client.api_calls import ApiCalls
from dralloc.client.discovery import discover
from dralloc.client.informer import Informer
from dralloc.client.known_history import history_change
from dralloc.client.reflector import Reflector
from dralloc.client.transport import Transport
from dralloc.client.typed_resource import TypedResource
from dralloc.primitives.errors import Forbidden
from dralloc.snapshot.cluster import Snapshot
from dralloc.whatif.cluster_objects import relevant_kinds
from dralloc.whatif.device_report import PoolReport
from dralloc.whatif.live_cluster import served_resource, why_not_served, with_change
from dralloc.whatif.usage_report import UsageReporter, closed_nodes

# Between two drawings; a cluster that changes a thousand times a second is drawn no more often.
PAUSE_S: Final = 0.5
# How soon a screen that changed its size is drawn anew.
LOOK_AROUND_S: Final = 1.0
# A lost connection is tried again within this time, and then it is known whether it is still lost.
TROUBLE_S: Final = 12.0

NEEDED: Final = (ResourceSlice, ResourceClaim)
FOLLOWED: Final = (*NEEDED, Node, DeviceTaintRule)


class DeviceWatch:
    """Follows the devices of a server, and shows them again whenever something changed."""

    def __init__(self, transport: Transport, server: str, features: Features, node: str | None) -> None:
        self._transport = transport
        self._server = server
        self._reporter = UsageReporter(features)
        self._node = node
        self._snapshot = Snapshot()
        self._closed: dict[str, str] = {}
        self._changed = asyncio.Event()
        self._trouble: tuple[float, str] = (0.0, "")

    async def run(self, output: OutputFormat) -> None:
        """Never returns but by an error or a cancellation."""
        calls = ApiCalls(self._transport)
        informers: list[Informer[Any]] = []
        resources = await self._resources(calls)
        try:
            async with asyncio.TaskGroup() as group:
                for resource in resources:
                    informer: Informer[Any] = Informer()
                    informer.subscribe(self._on_change)
                    informers.append(informer)
                    group.create_task(Reflector(calls, resource, informer, on_problem=self._on_problem).run())
                for informer in informers:
                    await informer.synced.wait()
                await self._show(output)
        except BaseExceptionGroup as errors:
            if (changed := history_change(errors)) is None:
                raise
            fail(f"{changed}; run the command again")

    async def _resources(self, calls: ApiCalls) -> list[TypedResource[Any]]:
        """What is to be followed. Ends the command where the server does not give what is needed."""
        discovery = await discover(self._transport)
        found: list[TypedResource[Any]] = []
        for object_type, kind in relevant_kinds():
            if object_type not in FOLLOWED:
                continue
            resource = served_resource(discovery, kind)
            refused = why_not_served(discovery, kind) if resource is None else ""
            if resource is not None:
                try:
                    await calls.page(resource, query={"limit": "1"})
                    found.append(resource)
                except Forbidden as error:
                    refused = f"{kind.plural} cannot be read: {error}"
            if refused and object_type in NEEDED:
                fail(f"{self._server}: {refused}")
        return found

    def _on_problem(self, error: Exception) -> None:
        self._trouble = (asyncio.get_running_loop().time(), what_to_do(error, self._server))
        self._changed.set()

    def _on_change(self, before: ApiObject | None, after: ApiObject | None) -> None:
        snapshot, closed = with_change(self._snapshot, before, after), self._closed
        if isinstance(node := after or before, Node):
            others = {name: reason for name, reason in closed.items() if name != node.metadata.name}
            closed = others | closed_nodes([after] if isinstance(after, Node) else ())
        if snapshot is not self._snapshot or closed != self._closed:
            self._snapshot, self._closed = snapshot, closed
            self._changed.set()

    def _reports(self) -> tuple[PoolReport, ...]:
        reports = self._reporter.reports(self._snapshot, self._closed)
        return tuple(report for report in reports if self._node is None or report.node == self._node)

    # --- Showing ----------------------------------------------------------------------------------------------------------

    async def _show(self, output: OutputFormat) -> None:
        self._changed.clear()
        if self._node is not None and not (self._reports() or self._node in self._snapshot.nodes):
            fail(f"no node {self._node}, and no devices of it", FINDINGS)
        if output is OutputFormat.TABLE and sys.stdout.isatty():
            await self._draw()
        else:
            await self._print(output)

    async def _draw(self) -> None:
        from rich.console import Console
        from rich.live import Live

        console = Console()
        with Live(console=console, auto_refresh=False, vertical_overflow="crop") as live:
            size = None
            reports = self._reports()
            while True:
                if self._changed.is_set():
                    self._changed.clear()
                    reports, size = self._reports(), None
                if console.size != size:
                    size = console.size
                    live.update(self._screen(reports, size.height), refresh=True)
                await asyncio.sleep(PAUSE_S)
                await self._wait_for_change(LOOK_AROUND_S)

    def _screen(self, reports: tuple[PoolReport, ...], height: int) -> Any:
        from rich.text import Text

        moment, trouble = self._trouble
        is_troubled = bool(trouble) and asyncio.get_running_loop().time() - moment < TROUBLE_S
        heading = trouble if is_troubled else f"{datetime.now():%H:%M:%S}  Ctrl-C ends"
        lines = frame(reports, height=height - 1, heading=heading)
        return Text("\n", no_wrap=True, overflow="crop").join(Text.assemble(*line) for line in lines)

    async def _wait_for_change(self, timeout_s: float) -> None:
        try:
            async with asyncio.timeout(timeout_s):
                await self._changed.wait()
        except TimeoutError:
            return

    async def _print(self, output: OutputFormat) -> None:
        shown = self._reports()
        trouble = ""
        if output.is_for_people:
            say("\n".join(tree(shown, is_wide=output is OutputFormat.WIDE, with_bars=False)))
        else:
            _print_pools(output, shown)
        while True:
            await self._changed.wait()
            self._changed.clear()
            if self._trouble[1] not in ("", trouble):
                trouble = self._trouble[1]
                say(trouble, err=True, prefix="note: ")
            before, shown = shown, self._reports()
            if output.is_for_people:
                for line in change_lines(before, shown):
                    say(f"{datetime.now():%H:%M:%S}  {line}")
            elif changed := changed_pools(before, shown):
                _print_pools(output, changed)
            await asyncio.sleep(PAUSE_S)


def _print_pools(output: OutputFormat, reports: Iterable[PoolReport]) -> None:
    """One document for each time that something changed: a line of JSON, or YAML."""
    values = {"pools": [plain_pool(report) for report in reports]}
    if output is OutputFormat.JSON:
        say(msgspec.json.encode(values).decode())
    else:
        say(f"---\n{plain_yaml(values)}", newline=False)
