"""Claims from the view of a driver, and the devices that it may prepare."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import pytest

from dralloc.driver.claims import BadConfig, DeviceKey, PreparedDevice, allocated_claim, find_prepared_faults
from dralloc.kube.resource_v1 import (
    DeviceAllocationConfiguration,
    DeviceAllocationResult,
    OpaqueDeviceConfiguration,
    ResourceClaim,
)
from dralloc.node.kubelet.cdi import ContainerEdits
from dralloc.testing.builders import DRIVER, allocation, alternative, claim, first_available, held, request

SHARE = "5f2c1d5e-8b0a-4d0e-9d5c-0d4f4bb7a001"


def config(
    parameters: str, *requests: str, source: str = "FromClaim", driver: str = DRIVER
) -> DeviceAllocationConfiguration:
    opaque = OpaqueDeviceConfiguration(driver=driver, parameters=msgspec.Raw(parameters.encode()))
    return DeviceAllocationConfiguration(source=source, requests=requests, opaque=opaque)


def claim_with(*configs: DeviceAllocationConfiguration) -> ResourceClaim:
    results = (
        held(
            "gpu-0",
            request="gpu/large",
            share_id=SHARE,
            consumed={"memory": "10Gi", "slots": "0"},
            limits={"memory": "20Gi"},
        ),
        held("nic-0", request="nic", driver="nic.example.com"),
        held("gpu-1", request="extra", admin=True),
    )
    given = msgspec.structs.replace(allocation(), devices=DeviceAllocationResult(results=results, config=configs))
    return claim(
        "c",
        first_available("gpu", alternative("large"), alternative("small")),
        request("nic"),
        request("extra"),
        allocation=given,
    )


def test_a_driver_gets_its_own_devices_with_shares_and_capacity() -> None:
    told = allocated_claim(claim_with(), DRIVER)
    assert (told.namespace, told.name, told.uid) == ("default", "c", "uid-of-default-c")
    assert list(told.requests) == ["gpu", "nic", "extra"]
    large, extra = told.devices
    assert (large.request, large.alternative, large.name, large.share_id) == ("gpu", "large", "gpu-0", SHARE)
    assert {name: str(amount) for name, amount in large.consumed.items()} == {"memory": "10Gi", "slots": "0"}
    assert {name: str(amount) for name, amount in large.limits.items()} == {"memory": "20Gi"}
    assert extra.limits == {}
    assert (extra.request, extra.alternative, extra.share_id, extra.admin_access) == ("extra", None, None, True)


def test_a_claim_without_allocation_has_no_devices() -> None:
    assert allocated_claim(claim("c", request("gpu")), DRIVER).devices == ()


@dataclass(frozen=True)
class ConfigCase:
    id: str
    configs: tuple[DeviceAllocationConfiguration, ...]
    # The numbers that reach gpu-0 (request gpu/large) and gpu-1 (request extra).
    want: tuple[list[int], list[int]]


CONFIGS = [
    ConfigCase(id="for all requests", configs=(config("1"),), want=([1], [1])),
    ConfigCase(id="for the main request", configs=(config("1", "gpu"),), want=([1], [])),
    ConfigCase(id="for the alternative that was chosen", configs=(config("1", "gpu/large"),), want=([1], [])),
    ConfigCase(id="for one that was not chosen", configs=(config("1", "gpu/small"),), want=([], [])),
    ConfigCase(id="for several requests", configs=(config("1", "nic", "extra"),), want=([], [1])),
    ConfigCase(id="for another driver", configs=(config("1", driver="nic.example.com"),), want=([], [])),
    ConfigCase(
        id="in the order of the allocation",
        configs=(config("1", source="FromClass"), config("2", "gpu"), config("3", "extra")),
        want=([1, 2], [1, 3]),
    ),
]


@pytest.mark.parametrize("case", CONFIGS, ids=lambda case: case.id)
def test_configuration_reaches_the_devices_that_it_is_for(case: ConfigCase) -> None:
    devices = allocated_claim(claim_with(*case.configs), DRIVER).devices
    assert tuple([found.read(int) for found in device.configs] for device in devices) == case.want
    assert tuple(device.config(int) for device in devices) == tuple(
        numbers[-1] if numbers else None for numbers in case.want
    )


class Sharing(msgspec.Struct, forbid_unknown_fields=True):
    strategy: str


def test_parameters_are_read_into_a_type_of_the_driver() -> None:
    (device, *_) = allocated_claim(claim_with(config('{"strategy": "time-slicing"}')), DRIVER).devices
    assert device.config(Sharing) == Sharing("time-slicing")
    (device, *_) = allocated_claim(claim_with(config('{"stratgy": "x"}', source="FromClass")), DRIVER).devices
    with pytest.raises(BadConfig, match=r"invalid parameters of the class: .*stratgy"):
        device.config(Sharing)


# --- Answers ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class AnswerCase:
    id: str
    prepared: PreparedDevice
    want: str


OWN = DeviceKey("pool-a", "gpu-0", SHARE)
ANSWERS = [
    AnswerCase(
        id="another device",
        prepared=PreparedDevice(key=DeviceKey("pool-a", "gpu-9"), requests=("gpu",)),
        want="the claim has no device pool-a/gpu-9",
    ),
    AnswerCase(
        id="without its share",
        prepared=PreparedDevice(key=DeviceKey("pool-a", "gpu-0"), requests=("gpu",)),
        want="the claim has no device pool-a/gpu-0",
    ),
    AnswerCase(
        id="for an alternative, not for its request",
        prepared=PreparedDevice(key=OWN, requests=("gpu/large",)),
        want="the claim has no request 'gpu/large'",
    ),
    AnswerCase(
        id="a CDI name that is none",
        prepared=PreparedDevice(key=OWN, requests=("gpu",), cdi_device_ids=("gpu-0",)),
        want="'gpu-0' is not a CDI name",
    ),
    AnswerCase(
        id="an environment that no container can have",
        prepared=PreparedDevice(key=OWN, requests=("gpu",), edits=ContainerEdits(env={"A=B": "c"})),
        want="'A=B' is not a valid name for an environment variable",
    ),
]


@pytest.mark.parametrize("case", ANSWERS, ids=lambda case: case.id)
def test_prepared_devices_that_contradict_the_claim_are_found(case: AnswerCase) -> None:
    told = allocated_claim(claim_with(), DRIVER)
    (fault,) = find_prepared_faults(told, [case.prepared])
    assert case.want in fault


def test_prepared_devices_fit_their_claim() -> None:
    told = allocated_claim(claim_with(), DRIVER)
    prepared = [
        device.prepared(env={"A": "b"}, cdi_device_ids=["nvidia.com/gpu=0"], data={"n": 1}, state=[1])
        for device in told.devices
    ]
    assert list(find_prepared_faults(told, prepared)) == []
    assert [device.requests for device in prepared] == [("gpu",), ("extra",)]
    assert prepared[0].has_status
    status = prepared[0].status(DRIVER)
    assert (status.share_id, bytes(status.data)) == (SHARE, b'{"n":1}')
