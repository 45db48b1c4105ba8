"""Taint rules reach the devices whose named parts are equal."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from dralloc.api.meta_v1 import ObjectMeta
from dralloc.api.resource_v1 import DeviceTaintRule, DeviceTaintRuleSpec
from dralloc.devices.taint_rules import TaintRules
from dralloc.snapshot.slices import IndexedSlice, Shapes
from dralloc.testing.builders import DRIVER, POOL, device, resource_slice, taint, taint_rule

GPUS = IndexedSlice(resource_slice("s", device("gpu-0"), device("gpu-1")), Shapes())
BROKEN = taint("broken")


@dataclass(frozen=True)
class Case:
    id: str
    rule: DeviceTaintRule
    want: list[int]


CASES = [
    Case("an empty selector takes every device", taint_rule("r", BROKEN), [0b11]),
    Case("the driver's", taint_rule("r", BROKEN, driver=DRIVER), [0b11]),
    Case("another driver's", taint_rule("r", BROKEN, driver="other"), []),
    Case("the pool's", taint_rule("r", BROKEN, pool=POOL), [0b11]),
    Case("another pool's", taint_rule("r", BROKEN, driver=DRIVER, pool="other"), []),
    Case("one device", taint_rule("r", BROKEN, driver=DRIVER, pool=POOL, device="gpu-1"), [0b10]),
    Case("a device of that name in any pool", taint_rule("r", BROKEN, device="gpu-0"), [0b01]),
    Case("a device that is not there", taint_rule("r", BROKEN, device="gpu-7"), []),
    Case(
        "no selector takes none",
        DeviceTaintRule(metadata=ObjectMeta(name="r"), spec=DeviceTaintRuleSpec(taint=BROKEN)),
        [],
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_which_devices_a_rule_taints(case: Case) -> None:
    rules = TaintRules().with_rule(case.rule)
    assert [mask for mask, _ in GPUS.taints_from(rules)] == case.want
    assert list(GPUS.taints_from(rules.without_rule("r"))) == []


def test_a_rule_that_is_stated_again_replaces_the_old_one() -> None:
    rules = TaintRules().with_rule(taint_rule("r", BROKEN)).with_rule(taint_rule("r", BROKEN, device="gpu-0"))
    assert [mask for mask, _ in GPUS.taints_from(rules)] == [0b01]
    assert len(rules.without_rule("r").by_scope) == 0
