"""The values that identify a pool, a device, an allocation result and a claim."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from dralloc.kube.resource_v1 import (
    AllocatedDeviceStatus,
    Device,
    DeviceRequestAllocationResult,
    ResourceClaim,
    ResourceSlice,
)


class PoolId(Struct, frozen=True, order=True, gc=False):
    driver: str
    pool: str

    @classmethod
    def of_slice(cls, resource_slice: ResourceSlice) -> PoolId:
        return cls(resource_slice.spec.driver, resource_slice.spec.pool.name)

    @classmethod
    def of_result(cls, result: DeviceRequestAllocationResult) -> PoolId:
        return cls(result.driver, result.pool)

    def device(self, name: str) -> DeviceId:
        return DeviceId(self.driver, self.pool, name)

    def __str__(self) -> str:
        return f"{self.driver}/{self.pool}"


class DeviceId(Struct, frozen=True, order=True, gc=False):
    driver: str
    pool: str
    device: str

    @classmethod
    def of(cls, result: DeviceRequestAllocationResult) -> DeviceId:
        return cls(result.driver, result.pool, result.device)

    @property
    def pool_id(self) -> PoolId:
        return PoolId(self.driver, self.pool)

    def __str__(self) -> str:
        return f"{self.driver}/{self.pool}/{self.device}"


class ResultId(Struct, frozen=True, gc=False):
    """Identifies an allocation result within its claim: a whole device, or a share of one.

    An entry of `status.devices` belongs to the result with the same identity.
    """

    driver: str
    pool: str
    device: str
    share_id: str | None

    @classmethod
    def of(cls, entry: DeviceRequestAllocationResult | AllocatedDeviceStatus) -> ResultId:
        return cls(entry.driver, entry.pool, entry.device, entry.share_id)


class ClaimId(Struct, frozen=True, order=True, gc=False):
    namespace: str
    name: str

    @classmethod
    def of(cls, claim: ResourceClaim) -> ClaimId:
        return cls(claim.metadata.namespace, claim.metadata.name)

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


# --- Result text ----------------------------------------------------------------------------------------------------
# An allocated device in words, the same in events and answers.


def text_of_result(result: DeviceRequestAllocationResult) -> str:
    """The device, and what the claim has of it: `gpu.example.com/node-1/gpu-0 (memory=40Gi)`."""
    consumed = ",".join(f"{name}={amount}" for name, amount in result.consumed_capacity.items())
    share = consumed or ("a share" if result.share_id else "")
    return f"{DeviceId.of(result)} ({share})" if share else str(DeviceId.of(result))


# --- Product --------------------------------------------------------------------------------------------------------
# What a device is called in a shop: the attribute that names its model. There is no standard attribute for it.


# In the order of preference; a domain before the name does not matter.
PRODUCT_ATTRIBUTES: Final = ("productName", "model", "product")


def product_of(device: Device) -> str:
    """The name of the product; empty if the driver publishes none."""
    named = {name.rpartition("/")[2]: each.string for name, each in device.attributes.items() if each.string}
    return next((named[name] for name in PRODUCT_ATTRIBUTES if name in named), "")
