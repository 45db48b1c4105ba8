"""Single changes of the cluster that could make claims fit: devices, other claims, feature gates, classes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import replace as change
from fractions import Fraction
from typing import ClassVar, Final

from msgspec.structs import replace

from dralloc.allocator.diagnosis.reasons import counted
from dralloc.devices.identity import ClaimId, DeviceId, PoolId
from dralloc.snapshot.slices import newest_indexed
from dralloc.whatif.explanation.claim_changes import Change, with_expression
from dralloc.whatif.explanation.situation import Situation


@dataclass(frozen=True, slots=True)
class ReleaseClaim(Change):
    """Another claim releases its devices."""

    rank: ClassVar[int] = 9
    claim_id: ClaimId

    def apply(self, situation: Situation) -> Situation:
        return change(situation, snapshot=situation.snapshot.without_claim(self.claim_id))

    @property
    def text(self) -> str:
        return f"release claim {self.claim_id}"


@dataclass(frozen=True, slots=True)
class AddDevices(Change):
    """Adds free devices like an existing one to its slice."""

    rank: ClassVar[int] = 10
    slice_name: str
    device_id: DeviceId
    count: int

    @property
    def size(self) -> Fraction:
        return Fraction(self.count)

    def apply(self, situation: Situation) -> Situation:
        indexed = situation.snapshot.pools[self.device_id.pool_id].slice(self.slice_name)
        assert indexed is not None, "the slice is in the snapshot"
        devices = indexed.devices
        model = devices[indexed.bit_of[self.device_id.device]]
        more = tuple(replace(model, name=f"{model.name}-added-{number}") for number in range(self.count))
        source = replace(indexed.source, spec=replace(indexed.source.spec, devices=(*devices, *more)))
        return change(situation, snapshot=situation.snapshot.with_slice(source))

    @property
    def text(self) -> str:
        return f"add {counted(self.count, 'device')} like {self.device_id}"


@dataclass(frozen=True, slots=True)
class CompletePool(Change):
    """The driver finishes publishing a pool, with the devices that it has published."""

    rank: ClassVar[int] = 11
    pool_id: PoolId

    def apply(self, situation: Situation) -> Situation:
        snapshot = situation.snapshot
        newest = [indexed.source for indexed in newest_indexed(snapshot.pools[self.pool_id].slices)]
        for source in newest:
            pool = replace(source.spec.pool, resource_slice_count=len(newest))
            snapshot = snapshot.with_slice(replace(source, spec=replace(source.spec, pool=pool)))
        return change(situation, snapshot=snapshot)

    @property
    def text(self) -> str:
        return f"wait until all slices of pool {self.pool_id} are published"


@dataclass(frozen=True, slots=True)
class SwitchOn(Change):
    """Enables a feature gate."""

    rank: ClassVar[int] = 12
    feature: str

    def apply(self, situation: Situation) -> Situation:
        return change(situation, features=change(situation.features, **{self.feature: True}))

    @property
    def text(self) -> str:
        return f"enable the feature gate {GATE_OF_FEATURE[self.feature]}"


# Features that are on by default.
GATE_OF_FEATURE: Final[Mapping[str, str]] = {
    "admin_access": "DRAAdminAccess",
    "prioritized_list": "DRAPrioritizedList",
    "consumable_capacity": "DRAConsumableCapacity",
    "partitionable_devices": "DRAPartitionableDevices",
    "binding_conditions": "DRADeviceBindingConditions",
}


@dataclass(frozen=True, slots=True)
class GuardClassSelector(Change):
    """Makes a selector of a class read an attribute only if the device has it."""

    rank: ClassVar[int] = 13
    device_class: str
    position: int
    expression: str

    def apply(self, situation: Situation) -> Situation:
        found = situation.classes[self.device_class]
        selectors = with_expression(found.spec.selectors, self.position, self.expression)
        changed = replace(found, spec=replace(found.spec, selectors=selectors))
        return change(situation, classes={**situation.classes, self.device_class: changed})

    @property
    def text(self) -> str:
        return f"change the selector of class {self.device_class} to {self.expression}"
