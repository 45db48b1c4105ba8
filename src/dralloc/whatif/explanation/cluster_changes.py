"""Single changes of the cluster that could make claims fit: devices, other claims, feature gates, classes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace as change
from fractions import Fraction
from typing import Final

from msgspec.structs import replace

from dralloc.allocator.diagnosis.reasons import counted
from dralloc.devices.identity import ClaimId, DeviceId, PoolId
from dralloc.snapshot.slices import newest_indexed
from dralloc.whatif.explanation.claim_changes import Change, with_expression
from dralloc.whatif.explanation.situation import Situation

# Features that are on by default.
GATE_OF_FEATURE: Final[Mapping[str, str]] = {
    "admin_access": "DRAAdminAccess",
    "prioritized_list": "DRAPrioritizedList",
    "consumable_capacity": "DRAConsumableCapacity",
    "partitionable_devices": "DRAPartitionableDevices",
    "binding_conditions": "DRADeviceBindingConditions",
}


def release_claim(claim_id: ClaimId) -> Change:
    """Another claim releases its devices."""
    return Change(
        kind="ReleaseClaim",
        rank=9,
        text=f"release claim {claim_id}",
        apply=lambda situation: change(situation, snapshot=situation.snapshot.without_claim(claim_id)),
    )


def add_devices(slice_name: str, device_id: DeviceId, count: int) -> Change:
    """Adds free devices like an existing one to its slice."""

    def apply(situation: Situation) -> Situation:
        indexed = situation.snapshot.pools[device_id.pool_id].slice(slice_name)
        assert indexed is not None, "the slice is in the snapshot"
        devices = indexed.devices
        model = devices[indexed.bit_of[device_id.device]]
        more = tuple(replace(model, name=f"{model.name}-added-{number}") for number in range(count))
        source = replace(indexed.source, spec=replace(indexed.source.spec, devices=(*devices, *more)))
        return change(situation, snapshot=situation.snapshot.with_slice(source))

    text = f"add {counted(count, 'device')} like {device_id}"
    return Change(kind="AddDevices", rank=10, size=Fraction(count), text=text, apply=apply)


def complete_pool(pool_id: PoolId) -> Change:
    """The driver finishes publishing a pool, with the devices that it has published."""

    def apply(situation: Situation) -> Situation:
        snapshot = situation.snapshot
        newest = [indexed.source for indexed in newest_indexed(snapshot.pools[pool_id].slices)]
        for source in newest:
            pool = replace(source.spec.pool, resource_slice_count=len(newest))
            snapshot = snapshot.with_slice(replace(source, spec=replace(source.spec, pool=pool)))
        return change(situation, snapshot=snapshot)

    text = f"wait until all slices of pool {pool_id} are published"
    return Change(kind="CompletePool", rank=11, text=text, apply=apply)


def switch_on(feature: str) -> Change:
    """Enables a feature gate."""
    return Change(
        kind="SwitchOn",
        rank=12,
        text=f"enable the feature gate {GATE_OF_FEATURE[feature]}",
        apply=lambda situation: change(situation, features=change(situation.features, **{feature: True})),
    )


def guard_class_selector(device_class: str, position: int, expression: str) -> Change:
    """Makes a selector of a class read an attribute only if the device has it."""

    def apply(situation: Situation) -> Situation:
        found = situation.classes[device_class]
        selectors = with_expression(found.spec.selectors, position, expression)
        changed = replace(found, spec=replace(found.spec, selectors=selectors))
        return change(situation, classes={**situation.classes, device_class: changed})

    text = f"change the selector of class {device_class} to {expression}"
    return Change(kind="GuardClassSelector", rank=13, text=text, apply=apply)
