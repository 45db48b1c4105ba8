"""Policies by name, and the feature gates that a device needs."""

from __future__ import annotations

import pytest

from dralloc.devices.published_slice import PublishedDevice
from dralloc.devices.share_terms import capacities_of, gates_needed
from dralloc.kube.device_parts import capacity, request_policy
from dralloc.kube.resource_v1 import Device
from dralloc.testing.builders import device

NAMED = device(
    "d",
    shareable=True,
    capacity={"tx": capacity("10", policy_name="rate"), "rx": capacity("20", policy_name="rate"), "slots": "4"},
    policies={"rate": request_policy(default="1", minimum="1", step="1"), "unused": request_policy(default="2")},
)


def test_a_named_policy_is_the_policy_of_every_capacity_that_names_it() -> None:
    found = capacities_of(NAMED)
    assert found["tx"] == capacity("10", default="1", minimum="1", step="1")
    assert found["rx"] == capacity("20", default="1", minimum="1", step="1")
    assert found["slots"] == capacity("4")


def test_a_device_without_named_policies_keeps_its_capacities() -> None:
    plain = device("d", capacity={"memory": capacity("4", default="1")})
    assert capacities_of(plain) is plain.capacity


def test_a_name_without_a_policy_stays() -> None:
    dangling = device("d", capacity={"memory": capacity("4", policy_name="gone")}, policies={"other": request_policy()})
    assert capacities_of(dangling)["memory"].request_policy_name == "gone"


def test_a_named_strategy_is_published() -> None:
    nic = device(
        "d",
        shareable=True,
        capacity={"bandwidth": capacity("10", policy_name="first"), "slots": "4"},
        policies={"first": request_policy(strategy="ConsumedOrNever")},
    )
    assert PublishedDevice.of(nic).undivided == ("bandwidth",)


@pytest.mark.parametrize(
    ("found", "gates"),
    [
        pytest.param(device("d", capacity={"memory": capacity("4", default="1")}), set(), id="an ordinary policy"),
        pytest.param(
            device("d", capacity={"memory": capacity("4", strategy="AlwaysConsumed")}, remainder="Keep"),
            set(),
            id="the values that are the default",
        ),
        pytest.param(NAMED, {"DRANamedRequestPolicies"}, id="a policy by name"),
        pytest.param(
            device("d", capacity={"memory": capacity("4", policy_name="gone")}),
            {"DRANamedRequestPolicies"},
            id="a name without policies",
        ),
        pytest.param(
            device("d", capacity={"memory": capacity("4", strategy="BlockOrShare")}),
            {"DRACapacityStrategies"},
            id="a strategy",
        ),
        pytest.param(
            device("d", capacity={"memory": capacity("4", consumed=False)}),
            {"DRAZeroConsumption"},
            id="nothing consumed",
        ),
        pytest.param(
            device("d", capacity={"memory": "4"}, remainder="GiveToLast"), {"DRACapacityRemainder"}, id="a remainder"
        ),
        pytest.param(
            device(
                "d",
                capacity={"memory": capacity("4", policy_name="p")},
                policies={"p": request_policy(strategy="ConsumedOrNever"), "q": request_policy(consumed=False)},
            ),
            {"DRANamedRequestPolicies", "DRACapacityStrategies", "DRAZeroConsumption"},
            id="what policies need, named and used or not",
        ),
    ],
)
def test_gates_needed(found: Device, gates: set[str]) -> None:
    assert set(gates_needed(found)) == gates
