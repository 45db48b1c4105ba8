"""The identities of devices and of allocation results."""

from __future__ import annotations

from dralloc.devices.identity import ClaimId, DeviceId, PoolId, ResultId
from dralloc.kube.resource_v1 import AllocatedDeviceStatus
from dralloc.testing.builders import DRIVER, POOL, claim, held, resource_slice


def test_a_result_and_a_slice_name_the_same_pool() -> None:
    assert PoolId.of_result(held("gpu")) == PoolId.of_slice(resource_slice("s")) == PoolId(DRIVER, POOL)


def test_all_shares_of_a_device_name_the_same_device() -> None:
    assert DeviceId.of(held("gpu", share_id="a")) == DeviceId.of(held("gpu")) == PoolId(DRIVER, POOL).device("gpu")
    assert DeviceId.of(held("gpu")).pool_id == PoolId(DRIVER, POOL)


def test_a_device_status_belongs_to_the_result_of_the_same_share() -> None:
    status = AllocatedDeviceStatus(driver=DRIVER, pool=POOL, device="gpu", share_id="a")
    assert ResultId.of(status) == ResultId.of(held("gpu", share_id="a"))
    assert ResultId.of(status) != ResultId.of(held("gpu", share_id="b"))
    assert ResultId.of(status) != ResultId.of(held("gpu"))


def test_identities_print_as_paths() -> None:
    assert str(DeviceId("d", "p", "gpu")) == "d/p/gpu"
    assert str(PoolId("d", "p")) == "d/p"
    assert str(ClaimId.of(claim("c"))) == "default/c"
