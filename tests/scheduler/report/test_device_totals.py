"""Devices of a driver in a few numbers: those of `dralloc top devices --summary`, and they follow changes."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from dralloc.answers.device_report import DeviceState
from dralloc.answers.usage_report import closed_nodes, usage_report
from dralloc.answers.usage_summary import UsageSummarizer
from dralloc.kube.core_v1 import Node, NodeSpec
from dralloc.kube.resource_v1 import ResourceClaim
from dralloc.primitives.quantity import Quantity
from dralloc.scheduler.report.device_totals import CAPACITIES_MAX, CapacityTotals, DeviceTotals, DriverTotals
from dralloc.scheduler.state.cluster_state import ClusterState
from dralloc.testing.builders import (
    DRIVER,
    allocation,
    claim,
    device,
    device_class,
    held,
    request,
    resource_slice,
    taint,
    taint_rule,
)
from tests.answers.test_engine import node
from tests.answers.test_fit import gpus
from tests.scheduler.report.test_fragmentation import FEATURES, partitions, put, shared, state

GI = 2**30 * 10**9


def share(number: int, amount: str, on: str, name: str) -> ResourceClaim:
    taken = held(f"gpu-{number}", pool=on, share_id=name, consumed={"memory": amount})
    return claim(name, request(), allocation=allocation(taken))


def totals(made: ClusterState) -> DriverTotals:
    return DeviceTotals(made, FEATURES).by_driver()[DRIVER]


def from_top(made: ClusterState, nodes: list[Node]) -> dict[str, DriverTotals]:
    """The same numbers from the report of `dralloc top`."""
    reports = usage_report(made.snapshot, FEATURES, closed_nodes(nodes))
    ready = [each for each in reports if not each.fault]
    summary = UsageSummarizer(FEATURES, {"gpu": device_class()}, ()).summary(ready, {})
    found: dict[str, DriverTotals] = {}
    for each in summary.drivers:
        mine = [device for report in ready if report.pool_id.driver == each.driver for device in report.devices]
        # No request names a counter; of a capacity nothing may fit.
        named = {capacity.name for one in mine for capacity in one.capacities}
        fits = each.counts.largest
        largest = {name: fits[name].nanos if name in fits else 0 for name in named}
        found[each.driver] = DriverTotals(
            each.counts.total,
            each.counts.states.get(DeviceState.FREE, 0),
            sum(1 for one in mine for holding in one.holdings if holding.share_id is not None),
            {
                amount.name: CapacityTotals(amount.value, amount.available, largest.get(amount.name))
                for amount in sorted(each.hardware, key=lambda amount: amount.name)
            },
        )
    return found


def test_free_shares_and_the_largest_fit() -> None:
    made = state(node("n1"), node("n2"), gpus("n1", *shared(2)), gpus("n2", *shared(1)))
    assert totals(made) == DriverTotals(3, 3, 0, {"memory": CapacityTotals(240 * GI, 240 * GI, 80 * GI)})
    for number, on in ((0, "n1"), (1, "n1"), (0, "n2")):
        put(made, None, share(number, f"{20 * (number + 1)}Gi", on, f"{on}-{number}"))
    assert totals(made) == DriverTotals(3, 0, 3, {"memory": CapacityTotals(240 * GI, 160 * GI, 60 * GI)})


def test_nothing_can_be_had_of_devices_that_are_closed_or_in_use_as_a_whole() -> None:
    cordoned = replace(node("n2"), spec=NodeSpec(unschedulable=True))
    tainted = device("gpu-0", capacity={"memory": "80Gi"}, taints=[taint("broken")])
    made = state(node("n1"), cordoned, node("n3"), gpus("n1", *shared(1)), gpus("n2", *shared(1)), gpus("n3", tainted))
    put(made, None, claim("whole", request(), allocation=allocation(held("gpu-0", pool="n1"))))
    assert totals(made) == DriverTotals(3, 0, 0, {"memory": CapacityTotals(240 * GI, 0, 0)})


def test_partitions_count_their_counters_once() -> None:
    made = state(node("n1"), *partitions())
    assert totals(made) == DriverTotals(4, 4, 0, {"slots": CapacityTotals(4 * 10**9, 4 * 10**9, None)})
    put(made, None, claim("c", request(), allocation=allocation(held("small", pool="cards"))))
    # A whole and two halves are left, of which one half fits beside the small one.
    assert totals(made) == DriverTotals(4, 2, 0, {"slots": CapacityTotals(4 * 10**9, 2 * 10**9, None)})


def test_a_counter_set_that_devices_of_several_nodes_draw_from_counts_once() -> None:
    counters = resource_slice("a", counters={"switch": {"links": "4"}}, pool="fabric", of=3, all_nodes=True)
    ends = [
        resource_slice(
            name, device(f"link-{name}", draws={"switch": {"links": "1"}}), pool="fabric", of=3, node_name=name
        )
        for name in ("n1", "n2")
    ]
    made = state(node("n1"), node("n2"), counters, *ends)
    assert totals(made).capacities["links"].value == 4 * 10**9


def test_a_driver_has_a_bounded_number_of_capacities() -> None:
    many = {f"capacity-{number}": "1" for number in range(CAPACITIES_MAX // 4)}
    devices = [device(f"d{n}", capacity={f"{name}-{n}": value for name, value in many.items()}) for n in range(8)]
    made = state(node("n1"), gpus("n1", *devices))
    assert len(totals(made).capacities) == CAPACITIES_MAX


def random_device(random: Random, number: int) -> Any:
    match random.randrange(4):
        case 0:
            return device(f"gpu-{number}")
        case 1:
            return device(f"gpu-{number}", capacity={"memory": "40Gi", "cores": "8"})
        case _:
            memory = random.choice(["80Gi", "40Gi"])
            return device(f"gpu-{number}", capacity={"memory": memory, "cores": "8"}, shareable=True)


@pytest.mark.parametrize("seed", range(20))
def test_numbers_that_follow_changes_are_those_of_top(seed: int) -> None:
    random = Random(seed)
    nodes: dict[str, Any] = {f"n{number}": node(f"n{number}") for number in range(4)}
    slices = [gpus(name, *(random_device(random, each) for each in range(3))) for name in nodes]
    fabric = resource_slice("fabric", *shared(2), pool="fabric", driver="fabric.example.com", all_nodes=True)
    made = state(*nodes.values(), *slices, fabric, *(partitions() if seed % 2 else ()))
    followed = DeviceTotals(made, FEATURES)
    held_by: list[ResourceClaim] = []
    rule = taint_rule("rule", taint("broken"), driver=DRIVER, pool="n2")
    has_rule = False
    # Scrapes of several programs, each in the middle of its work.
    scrapes = [followed.follow() for _ in range(3)]
    for number in range(25):
        match random.randrange(8):
            case 0 | 1 if held_by:
                put(made, held_by.pop(random.randrange(len(held_by))), None)
            case 2:
                name = random.choice(sorted(nodes))
                changed = replace(nodes[name], spec=NodeSpec(unschedulable=random.random() < 0.5))
                put(made, nodes[name], changed)
                nodes[name] = changed
            case 3:
                put(made, *((rule, None) if has_rule else (None, rule)))
                has_rule = not has_rule
            case 4:
                index = random.randrange(len(slices))
                before = slices[index]
                devices = (*(before.spec.devices or ())[1:], random_device(random, 10 + number))
                slices[index] = replace(before, spec=replace(before.spec, devices=devices))
                put(made, before, slices[index])
            case _:
                taken = _allocated(random, made, slices, number)
                if taken is not None:
                    held_by.append(taken)
                    put(made, None, taken)
        next(scrapes[random.randrange(3)], None)
        if random.random() < 0.3:
            scrapes[random.randrange(3)] = followed.follow()
            continue
        assert followed.by_driver() == DeviceTotals(made, FEATURES).by_driver()
        assert followed.by_driver() == from_top(made, list(nodes.values()))


def _allocated(random: Random, made: ClusterState, slices: list[Any], number: int) -> ResourceClaim | None:
    """A claim for a free device, or for a share of one that has room."""
    chosen = random.choice(slices)
    picked = random.choice(chosen.spec.devices)
    pool = chosen.spec.pool.name
    usage = made.snapshot.usage.get(next(each for each in made.snapshot.pools if each.pool == pool))
    used = usage.of(picked.name) if usage is not None else None
    if picked.allow_multiple_allocations:
        room = picked.capacity["memory"].value.nanos - (used.consumed.get("memory", 0) if used is not None else 0)
        amount = random.choice(["10Gi", "30Gi"])
        if Quantity.parse(amount).nanos > room:
            return None
        result = held(picked.name, pool=pool, share_id=f"s{number}", consumed={"memory": amount, "cores": "0"})
    elif used is None or used.is_free:
        result = held(picked.name, pool=pool)
    else:
        return None
    return claim(f"claim-{number}", request(), allocation=allocation(result))
