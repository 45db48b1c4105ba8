"""Which plugins to register, from the sockets in the directory and earlier attempts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from dralloc.node.drivers import dra_services, health_service
from dralloc.node.kubelet.plugin_sockets import SocketIdentity
from dralloc.node.registration import (
    Attempt,
    Deregister,
    Register,
    plan_registrations,
)
from dralloc.rpc.plugin_services import DRA_V1, DRA_V1BETA1, HEALTH_V1, HEALTH_V1ALPHA1

OLD, NEW = SocketIdentity(1, 100), SocketIdentity(2, 200)


@dataclass(frozen=True)
class Case:
    id: str
    found: Mapping[str, SocketIdentity] = field(default_factory=lambda: {"a": OLD})
    attempts: Mapping[str, Attempt] = field(default_factory=dict)
    now_s: float = 10.0
    want: tuple[Register | Deregister, ...] = ()


CASES = [
    Case(id="a new socket is registered", want=(Register("a", OLD),)),
    Case(id="a registered one is left alone", attempts={"a": Attempt(identity=OLD, is_registered=True)}),
    Case(id="one that is being registered is left alone", attempts={"a": Attempt(identity=OLD, is_running=True)}),
    Case(
        id="a removed one is deregistered",
        found={},
        attempts={"a": Attempt(identity=OLD, is_registered=True)},
        want=(Deregister("a"),),
    ),
    Case(
        id="one that was made anew is another plugin",
        found={"a": NEW},
        attempts={"a": Attempt(identity=OLD, is_registered=True)},
        want=(Deregister("a"), Register("a", NEW)),
    ),
    Case(
        id="one that was made anew does not wait for the failures of the old one",
        found={"a": NEW},
        attempts={"a": Attempt(identity=OLD, failures=9, again_at=99.0)},
        want=(Deregister("a"), Register("a", NEW)),
    ),
    Case(id="a failed one waits", attempts={"a": Attempt(identity=OLD, failures=1, again_at=10.1)}),
    Case(
        id="a failed one is tried again when its time has come",
        attempts={"a": Attempt(identity=OLD, failures=1, again_at=10.0)},
        want=(Register("a", OLD),),
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_plan_registrations(case: Case) -> None:
    assert plan_registrations(case.found, case.attempts, case.now_s) == case.want


def test_the_driver_chooses_the_dra_version_and_the_node_the_health_version() -> None:
    assert dra_services(("v1beta1.DRAPlugin", "v9.DRAPlugin", "v1.DRAPlugin")) == (DRA_V1BETA1, DRA_V1)
    assert dra_services(("v1.DRAResourceHealth", "1.0.0")) == ()
    assert health_service(("v1alpha1.DRAResourceHealth", "v1.DRAResourceHealth")) == HEALTH_V1
    assert health_service(("v1alpha1.DRAResourceHealth",)) == HEALTH_V1ALPHA1
    assert health_service(("v1.DRAPlugin",)) is None
