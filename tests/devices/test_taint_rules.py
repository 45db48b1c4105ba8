"""Which devices taint rules select; the index agrees with the definition."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dralloc.devices.identity import DeviceId
from dralloc.devices.slices import IndexedSlice, Shapes
from dralloc.devices.taints import TaintRules, selects
from dralloc.kube.meta_v1 import ObjectMeta
from dralloc.kube.resource_v1 import DeviceTaintRule, DeviceTaintRuleSpec, DeviceTaintSelector
from dralloc.testing.builders import DRIVER, POOL, device, resource_slice, taint, taint_rule

GPUS = IndexedSlice(resource_slice("s", device("gpu-0"), device("gpu-1")), Shapes())
BROKEN = taint("broken")


@dataclass(frozen=True)
class Case:
    id: str
    rule: DeviceTaintRule
    want: list[int]


CASES = [
    Case("an empty selector selects every device", taint_rule("r", BROKEN), [0b11]),
    Case("all devices of the driver", taint_rule("r", BROKEN, driver=DRIVER), [0b11]),
    Case("another driver", taint_rule("r", BROKEN, driver="other"), []),
    Case("all devices of the pool", taint_rule("r", BROKEN, pool=POOL), [0b11]),
    Case("another pool", taint_rule("r", BROKEN, driver=DRIVER, pool="other"), []),
    Case("one device", taint_rule("r", BROKEN, driver=DRIVER, pool=POOL, device="gpu-1"), [0b10]),
    Case("a device of that name in any pool", taint_rule("r", BROKEN, device="gpu-0"), [0b01]),
    Case("a device that is not published", taint_rule("r", BROKEN, device="gpu-7"), []),
    Case(
        "an absent selector selects no device",
        DeviceTaintRule(metadata=ObjectMeta(name="r"), spec=DeviceTaintRuleSpec(taint=BROKEN)),
        [],
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_which_devices_a_rule_taints(case: Case) -> None:
    rules = TaintRules().with_rule(case.rule)
    assert [mask for mask, _ in GPUS.taints_from(rules)] == case.want
    assert list(GPUS.taints_from(rules.without_rule("r"))) == []


def test_a_rule_replaces_the_earlier_rule_of_the_same_name() -> None:
    rules = TaintRules().with_rule(taint_rule("r", BROKEN)).with_rule(taint_rule("r", BROKEN, device="gpu-0"))
    assert [mask for mask, _ in GPUS.taints_from(rules)] == [0b01]
    assert len(rules.without_rule("r").by_scope) == 0


PARTS = st.none() | st.sampled_from(["x", "y"])
SELECTORS = st.none() | st.builds(DeviceTaintSelector, driver=PARTS, pool=PARTS, device=PARTS)
DEVICES = [DeviceId(*parts) for parts in product("xy", repeat=3)]


@given(st.dictionaries(st.sampled_from("abc"), SELECTORS), st.sampled_from("abc"))
def test_the_index_agrees_with_the_definition(selectors: dict[str, DeviceTaintSelector | None], removed: str) -> None:
    rules = TaintRules()
    for name, selector in selectors.items():
        spec = DeviceTaintRuleSpec(device_selector=selector, taint=BROKEN)
        rules = rules.with_rule(DeviceTaintRule(metadata=ObjectMeta(name=name), spec=spec))
    selectors.pop(removed, None)
    rules = rules.without_rule(removed)
    for found in DEVICES:
        want = sorted(name for name, selector in selectors.items() if selects(selector, found))
        assert [entry.rule for entry in rules.taints_of(found)] == want
    assert bool(rules) is bool(selectors)
