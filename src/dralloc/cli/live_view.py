"""Devices on a screen that is drawn again and again: bars of capacity, as much of them as fits.

Where there is room, every device has a line; where there is not, every node has, the fullest first. Pure: reports and the size of
the screen in, lines out, so that what thousands of nodes look like can be tested.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from dralloc.cli.device_tree import STATE_WIDTH
from dralloc.whatif.device_report import (
    DeviceReport,
    DeviceState,
    HardwareAmount,
    PoolReport,
    hardware_by_driver,
    portion,
)

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
