"""The devices of a cluster on one screen: totals as tables for people, and as values for machines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from dralloc.cli.device_tree import plain_amount
from dralloc.cli.tables import table
from dralloc.scheduler.report.stranded_devices import WHOLE, IdleDevices, StrandedCause
from dralloc.whatif.device_report import DeviceState, HardwareAmount, portion
from dralloc.whatif.usage_summary import DeviceCounts, GroupSummary, UsageSummary

STATES: Final = (DeviceState.FREE, DeviceState.SHARED, DeviceState.FULL, DeviceState.BLOCKED)
# Cards have counters for every slot and engine; the largest amounts say most.
AMOUNTS_SHOWN_MAX: Final = 3
CLASSES_SHOWN_MAX: Final = 8
GROUPS_SHOWN_MAX: Final = 20
NODES_SHOWN_MAX: Final = 5
_HEADER: Final = ("DEVICES", *(state.value.upper() for state in STATES))


def summary_lines(summary: UsageSummary, idle: Mapping[str, IdleDevices]) -> Iterator[str]:
    if not summary.drivers:
        yield "there are no devices"
        return
    rows = [(each.name, *_counts(each.counts), _largest(each.counts)) for each in summary.drivers]
    yield from table(("DRIVER", *_HEADER, "LARGEST REQUEST"), rows)
    yield from _remarks(summary)
    yield ""
    yield from table(
        ("HARDWARE", "DEVICES", "FULL", "AMOUNT", "TOTAL", "USED", "AVAILABLE", "LARGEST", "UNUSABLE"),
        [row for group in summary.hardware for row in _hardware_rows(group)],
    )
    yield f"unusable: what none of {_typical(summary)} can use of the available amount"
    if any(sum(each.stranded.values()) for each in idle.values()):
        yield ""
        causes = (cause.value.upper() for cause in StrandedCause)
        yield from table(("IDLE DEVICES", "IDLE", "STRANDED", *causes), [_idle_row(*each) for each in idle.items()])
    if summary.classes:
        yield ""
        shown = [(each.name, *_counts(each.counts), _largest(each.counts)) for each in summary.classes]
        yield from table(("CLASS", *_HEADER, "LARGEST REQUEST"), shown[:CLASSES_SHOWN_MAX])
        yield from _more(len(shown), CLASSES_SHOWN_MAX, "classes")
    if summary.groups:
        yield ""
        groups = [(each.name, each.driver, *_counts(each.counts), _amounts(each.hardware)) for each in summary.groups]
        yield from table(("NODE GROUP", "DRIVER", *_HEADER, "AVAILABLE"), groups[:GROUPS_SHOWN_MAX])
        yield from _more(len(groups), GROUPS_SHOWN_MAX, "groups")
    if summary.nodes:
        yield ""
        nodes = summary.nodes[:NODES_SHOWN_MAX]
        yield from table(
            ("MOST FREE", *_HEADER, "AVAILABLE"),
            [(each.name, *_counts(each.counts), _amounts(each.hardware.values())) for each in nodes],
        )
        yield from _more(len(summary.nodes), NODES_SHOWN_MAX, "nodes")


def _counts(counts: DeviceCounts) -> tuple[str, ...]:
    return (f"{counts.total:,}", *(f"{counts.states.get(state, 0):,}" for state in STATES))


def _largest(counts: DeviceCounts) -> str:
    amounts = sorted(counts.largest.items(), key=lambda each: (-each[1].nanos, each[0]))[:AMOUNTS_SHOWN_MAX]
    return ", ".join(f"{name} {amount}" for name, amount in amounts) or "-"


def _remarks(summary: UsageSummary) -> Iterator[str]:
    for group in summary.drivers:
        causes = [f"{count:,} by {cause.value}" for cause, count in group.counts.blocked_by.items()]
        if causes:
            yield f"{group.name}: blocked {', '.join(causes)}"
        if gone := group.counts.states.get(DeviceState.GONE, 0):
            yield f"{group.name}: claims hold {gone:,} devices that no slice publishes any more"


def _hardware_rows(group: GroupSummary) -> Iterator[tuple[str, ...]]:
    counts = group.counts
    head = (
        f"{group.driver} {group.name}".rstrip(),
        f"{counts.total:,}",
        f"{counts.states.get(DeviceState.FULL, 0):,}",
    )
    for amount in _most(group.hardware):
        unusable = group.unusable[amount.name]
        yield (
            *head,
            amount.name,
            str(amount.quantity(amount.value)),
            f"{amount.quantity(amount.used)} ({portion(amount.used, amount.value)}%)",
            str(amount.quantity(amount.available)),
            str(counts.largest.get(amount.name, "-")),
            f"{amount.quantity(unusable)} ({portion(unusable, amount.available)}%)" if amount.available else "0",
        )
    if not group.hardware:
        yield (*head, *"------")
    if (hidden := len(group.hardware) - AMOUNTS_SHOWN_MAX) > 0:
        yield (*head, f"… {hidden} more, see -o json", "", "", "", "", "")


def _most(hardware: Iterable[HardwareAmount]) -> list[HardwareAmount]:
    return sorted(hardware, key=lambda amount: (-amount.value, amount.name))[:AMOUNTS_SHOWN_MAX]


def _amounts(hardware: Iterable[HardwareAmount]) -> str:
    told = (f"{each.name} {each.quantity(each.available)} of {each.quantity(each.value)}" for each in _most(hardware))
    return ", ".join(told) or "-"


def _typical(summary: UsageSummary) -> str:
    if not summary.typical:
        return "the requests that name no amounts (there are no claims)"
    return f"the {summary.typical} typical requests of claims" if summary.typical > 1 else "the requests of claims"


def _idle_row(driver: str, idle: IdleDevices) -> tuple[str, ...]:
    amounts = (idle.idle, sum(idle.stranded.values()), *(idle.stranded.get(cause, 0) for cause in StrandedCause))
    return (driver, *(f"{amount / WHOLE:,.3g}" for amount in amounts))


def _more(count: int, shown: int, what: str) -> Iterator[str]:
    if count > shown:
        yield f"… {count - shown:,} more {what}, see -o json"


# --- For machines -------------------------------------------------------------------------------------------------------


def plain_summary(summary: UsageSummary, idle: Mapping[str, IdleDevices]) -> dict[str, Any]:
    return {
        "idleDevices": [
            {
                "driver": driver,
                "idle": each.idle / WHOLE,
                "stranded": {cause.value: each.stranded.get(cause, 0) / WHOLE for cause in StrandedCause},
            }
            for driver, each in idle.items()
        ],
        "typicalRequests": summary.typical,
        "drivers": [_plain_group(each) for each in summary.drivers],
        "hardware": [{"product": each.name or None, **_plain_group(each)} for each in summary.hardware],
        "classes": [{"name": each.name, **_plain_counts(each.counts)} for each in summary.classes],
        "nodeGroups": [{"value": each.name, **_plain_group(each)} for each in summary.groups],
        "nodes": [
            {
                "name": node.name,
                **_plain_counts(node.counts),
                "hardware": [
                    {"driver": driver, "name": name, **plain_amount(amount)}
                    for (driver, name), amount in node.hardware.items()
                ],
            }
            for node in summary.nodes
        ],
    }


def _plain_group(group: GroupSummary) -> dict[str, Any]:
    return {
        "driver": group.driver,
        **_plain_counts(group.counts),
        "hardware": {
            amount.name: {**plain_amount(amount), "unusable": str(amount.quantity(group.unusable[amount.name]))}
            for amount in group.hardware
        },
    }


def _plain_counts(counts: DeviceCounts) -> dict[str, Any]:
    return {
        "devices": counts.total,
        "states": {state.value: counts.states.get(state, 0) for state in DeviceState},
        "blockedBy": {cause.value: count for cause, count in counts.blocked_by.items()},
        "largestRequest": {name: str(amount) for name, amount in counts.largest.items()},
    }
