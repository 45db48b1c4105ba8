"""Which taints a request tolerates."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from dralloc.devices.taints import repels
from dralloc.kube.resource_v1 import EFFECT_NONE, NO_EXECUTE, NO_SCHEDULE, DeviceTaint, DeviceToleration
from dralloc.testing.builders import taint, toleration


@dataclass(frozen=True)
class Case:
    id: str
    taint: DeviceTaint
    tolerations: tuple[DeviceToleration, ...]
    want: bool


CASES = [
    Case("no toleration", taint("k", "v"), (), want=True),
    Case("no toleration, evicting", taint("k", "v", NO_EXECUTE), (), want=True),
    Case("an effect that does nothing", taint("k", "v", EFFECT_NONE), (), want=False),
    Case("an unknown effect", taint("k", "v", "NoCleaning"), (), want=False),
    Case("any value of the key", taint("k", "v"), (toleration("k"),), want=False),
    Case("that value", taint("k", "v"), (toleration("k", "v"),), want=False),
    Case("another value", taint("k", "v"), (toleration("k", "w"),), want=True),
    Case("another key", taint("k", "v"), (toleration("l"),), want=True),
    Case("every key", taint("k", "v"), (toleration(),), want=False),
    Case("that effect", taint("k", "v"), (toleration("k", effect=NO_SCHEDULE),), want=False),
    Case("another effect", taint("k", "v"), (toleration("k", effect=NO_EXECUTE),), want=True),
    Case("one of several", taint("k", "v"), (toleration("l"), toleration("k", "v")), want=False),
    Case("the default operator is Equal", taint("k", "v"), (DeviceToleration(key="k", value="v"),), want=False),
    Case(
        "an unknown operator",
        taint("k", "v"),
        (DeviceToleration(key="k", operator="Like", value="v"),),
        want=True,
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_repels(case: Case) -> None:
    assert repels(case.taint, case.tolerations) == case.want
