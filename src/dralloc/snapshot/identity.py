"""The names that identify a pool, a device and a claim."""

from __future__ import annotations

from msgspec import Struct

from dralloc.api.resource_v1 import DeviceRequestAllocationResult, ResourceClaim, ResourceSlice


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

    @property
    def pool_id(self) -> PoolId:
        return PoolId(self.driver, self.pool)

    def __str__(self) -> str:
        return f"{self.driver}/{self.pool}/{self.device}"


class ClaimId(Struct, frozen=True, order=True, gc=False):
    namespace: str
    name: str

    @classmethod
    def of(cls, claim: ResourceClaim) -> ClaimId:
        return cls(claim.metadata.namespace, claim.metadata.name)

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"
