"""A cluster's devices, followed: the snapshot changes with every event, and is shown at a bounded rate."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec

from dralloc.answers.cluster_objects import relevant_kinds
from dralloc.answers.device_report import (
    DeviceReport,
    DeviceState,
    HardwareAmount,
    PoolReport,
    hardware_by_driver,
    portion,
)
from dralloc.answers.live_cluster import served_resource, why_not_served, with_change
from dralloc.answers.usage_report import UsageReporter, closed_nodes
from dralloc.cli.device_tree import STATE_WIDTH, plain_pool, tree
from dralloc.cli.object_documents import plain_yaml
from dralloc.cli.options import OutputFormat
from dralloc.cli.output import FINDINGS, fail, say
from dralloc.cli.server_connection import what_to_do
from dralloc.client.api_calls import ApiCalls
from dralloc.client.discovery import discover
from dralloc.client.informer import Informer, history_change
from dralloc.client.reflector import Reflector
from dralloc.client.transport import Transport
from dralloc.client.typed_resource import TypedResource
from dralloc.devices.allocator.features import Features
from dralloc.devices.snapshot import Snapshot
from dralloc.kube.core_v1 import Node
from dralloc.kube.meta_v1 import ApiObject
from dralloc.kube.resource_v1 import DeviceTaintRule, ResourceClaim, ResourceSlice
from dralloc.primitives.errors import Forbidden

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


# --- Live view ------------------------------------------------------------------------------------------------------
# Devices on a screen that is drawn again and again: bars of capacity, as much of them as fits.
#
# Where there is room, every device has a line; where there is not, every node has, the fullest first. Pure: reports
# and the size of the screen in, lines out, so that what thousands of nodes look like can be tested.


BAR_WIDTH: Final = 20
ANY_NODE: Final = "(any node)"
HOLDERS_SHOWN_MAX: Final = 3

# A piece of a line, and how it looks; styles are those of rich.
Span = tuple[str, str]
Line = tuple[Span, ...]

_STATE_STYLES: Final = {
    DeviceState.FREE: "dim",
    DeviceState.FULL: "red",
    DeviceState.BLOCKED: "yellow",
    DeviceState.GONE: "red",
}
_USED: Final = (DeviceState.SHARED, DeviceState.FULL)


def amount_bar(label: str, amount: HardwareAmount) -> Line:
    amounts = f"{amount.quantity(amount.used)} of {amount.quantity(amount.value)}"
    return ((f"{label} ", ""), *bar(amount.used, amount.value), (f" {amounts}", ""))


def bar(used: int, value: int) -> Line:
    """Full blocks for what is used; a little is never shown as nothing, and only all of it as all."""
    filled = portion(used, value, BAR_WIDTH)
    fraction = used / value if value > 0 else 0.0
    style = "green" if fraction < 0.7 else "yellow" if fraction < 0.9 else "red"
    return (("█" * filled, style), ("░" * (BAR_WIDTH - filled), "dim"))


def frame(reports: Sequence[PoolReport], *, height: int, heading: str = "") -> list[Line]:
    """The lines of a screen of that height."""
    head = [*_summary(reports, heading), ()]
    room = max(height - len(head), 1)
    if not reports:
        return [*head, (("no devices", "dim"),)]
    if _device_line_count(reports) <= room:
        return [*head, *_device_lines(reports)]
    by_node = _by_node(reports)
    if len(by_node) == 1:
        return [*head, *_shortened(list(_device_lines(reports)), room, "lines; print all with dralloc top devices")]
    return [*head, *_shortened(list(_node_lines(by_node)), room, "nodes; --node NAME shows one")]


def text_of(line: Line) -> str:
    return "".join(text for text, _ in line)


def _shortened(lines: list[Line], room: int, what: str) -> list[Line]:
    if len(lines) <= room:
        return lines
    hidden = len(lines) - room + 1
    return [*lines[: room - 1], ((f"… {hidden:,} more {what}", "dim"),)]


# --- All together -------------------------------------------------------------------------------------------------------


def _summary(reports: Sequence[PoolReport], heading: str) -> Iterator[Line]:
    states = Counter(device.state for report in reports for device in report.devices)
    nodes = len({report.node for report in reports if report.node})
    counted = ", ".join(f"{states[state]:,} {state.value}" for state in DeviceState if states[state])
    yield ((f"{nodes:,} nodes, {states.total():,} devices: {counted or 'none'}", "bold"), (f"   {heading}", "dim"))
    totals = {" ".join(key): amount for key, amount in hardware_by_driver(reports).items()}
    width = max((len(label) for label in totals), default=0)
    for label, amount in totals.items():
        yield (*amount_bar(label.ljust(width), amount), (f"  {portion(amount.used, amount.value)}%", "bold"))


# --- Nodes --------------------------------------------------------------------------------------------------------------


def _by_node(reports: Iterable[PoolReport]) -> Mapping[str, list[PoolReport]]:
    by_node: dict[str, list[PoolReport]] = {}
    for report in reports:
        by_node.setdefault(report.node or ANY_NODE, []).append(report)
    return by_node


def _node_lines(by_node: Mapping[str, list[PoolReport]]) -> Iterator[Line]:
    width = max(map(len, by_node))
    rows = [(_node_fraction(reports), name, reports) for name, reports in by_node.items()]
    for _, name, reports in sorted(rows, key=lambda row: (-row[0], row[1])):
        devices = [device for report in reports for device in report.devices]
        used = sum(device.state in _USED for device in devices)
        bars: list[Line] = [((f"{name.ljust(width)}  {used} of {len(devices)} used", ""),)]
        bars += [amount_bar(label, amount) for (_, label), amount in hardware_by_driver(reports).items()]
        yield tuple(span for index, spans in enumerate(bars) for span in ((("  ", ""),) if index else ()) + spans)


def _node_fraction(reports: Iterable[PoolReport]) -> float:
    """How full the node is: by its fullest capacity, or by its devices where they have none."""
    fractions = [amount.fraction for amount in hardware_by_driver(reports).values()]
    states = [device.state for report in reports for device in report.devices]
    taken = sum(state in _USED for state in states) / len(states) if states else 0.0
    return max(fractions, default=taken)


# --- Devices ------------------------------------------------------------------------------------------------------------


def _device_line_count(reports: Iterable[PoolReport]) -> int:
    nodes: set[str] = set()
    count = 0
    for report in reports:
        nodes.add(report.node)
        count += sum(max(len(device.capacities), 1) for device in report.devices)
    return len(nodes) + count


def _device_lines(reports: Iterable[PoolReport]) -> Iterator[Line]:
    for node, pools in _by_node(reports).items():
        yield ((node, "bold"),)
        names = {id(device): _name(report, device) for report in pools for device in report.devices}
        width = max(map(len, names.values()), default=0)
        for report in pools:
            for device in report.devices:
                yield from _lines_of_device(device, names[id(device)].ljust(width))


def _name(report: PoolReport, device: DeviceReport) -> str:
    """Drivers call a pool like its node, mostly, and then it says nothing new."""
    pool = "" if report.pool_id.pool == report.node else f"{report.pool_id.pool}/"
    return f"{report.pool_id.driver}/{pool}{device.device_id.device}"


def _lines_of_device(device: DeviceReport, name: str) -> Iterator[Line]:
    state = (f"{device.state.value:<{STATE_WIDTH}}", _STATE_STYLES.get(device.state, ""))
    held = _holders(device)
    if not device.capacities:
        yield ((f"  {name}  ", ""), state, (f"  {held}", "cyan"))
    for index, capacity in enumerate(device.capacities):
        amount = HardwareAmount(capacity.name, capacity.value, capacity.value.nanos, capacity.used.nanos)
        lead = ((f"  {name}  ", ""), state) if index == 0 else ((" " * (len(name) + STATE_WIDTH + 4), ""),)
        yield (*lead, ("  ", ""), *amount_bar(capacity.name, amount), (f"  {held}" if index == 0 else "", "cyan"))


def _holders(device: DeviceReport) -> str:
    """What blocks the device, and the claims that hold it."""
    names = [str(holding.claim_id) for holding in device.holdings]
    if device.block is not None:
        names.insert(0, device.block.reason)
    more = len(names) - HOLDERS_SHOWN_MAX
    return ", ".join((*names[:HOLDERS_SHOWN_MAX], f"{more} more") if more > 0 else names)


# --- Changes, for those who read lines ------------------------------------------------------------------------------------


def changed_pools(before: Iterable[PoolReport], after: Iterable[PoolReport]) -> list[PoolReport]:
    """The pools that are new or different. Those of which nothing changed are the same objects."""
    known = {(report.pool_id, report.node): report for report in before}
    return [report for report in after if not _is_same(known.get((report.pool_id, report.node)), report)]


def _is_same(before: PoolReport | None, after: PoolReport) -> bool:
    return before is after or before == after


def change_lines(before: Sequence[PoolReport], after: Sequence[PoolReport]) -> Iterator[str]:
    """A line for every device that is new, different or gone."""
    known = {device.device_id: device for report in before for device in report.devices}
    for report in changed_pools(before, after):
        for device in report.devices:
            if known.get(device.device_id) != device:
                told = "; ".join(f"{each.name} {each.used} of {each.value} used" for each in device.capacities)
                parts = (report.node or ANY_NODE, str(device.device_id), device.state.value, told, _holders(device))
                yield "  ".join(part for part in parts if part)
    present = {device.device_id for report in after for device in report.devices}
    for device_id in known:
        if device_id not in present:
            yield f"{device_id}  is no longer published"
