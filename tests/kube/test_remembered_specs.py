"""Specs of claims that were found valid are remembered: no answer depends on what was validated before."""

from __future__ import annotations

from dralloc.kube.resource_v1 import (
    AGGREGATED_CAPACITY,
    EXACT_COUNT,
    CapacityRequirements,
    CELDeviceSelector,
    DeviceClaim,
    DeviceRequest,
    DeviceSelector,
    ExactDeviceRequest,
    ResourceClaimSpec,
)
from dralloc.kube.validation import resource_claim
from dralloc.kube.validation.context import ValidationContext
from dralloc.kube.validation.resource_claim import SPEC, validate_claim_spec
from dralloc.primitives.features import FeatureGates
from dralloc.primitives.field_errors import FieldPath
from dralloc.primitives.quantity import Quantity

DEFAULT = ValidationContext(FeatureGates.defaults())
AGGREGATED = ValidationContext(FeatureGates(FeatureGates.defaults().enabled | {"DRAAggregatedCapacity"}))


def spec(name: str, *, mode: str = EXACT_COUNT, expression: str = "true") -> ResourceClaimSpec:
    selectors = (DeviceSelector(cel=CELDeviceSelector(expression=expression)),)
    capacity = CapacityRequirements(requests={"memory": Quantity.of(1)})
    exactly = ExactDeviceRequest(
        device_class_name="gpu", selectors=selectors, allocation_mode=mode, count=1, capacity=capacity
    )
    return ResourceClaimSpec(devices=DeviceClaim(requests=(DeviceRequest(name=name, exactly=exactly),)))


def faults(checked: ResourceClaimSpec, context: ValidationContext, path: FieldPath = SPEC) -> list[str]:
    return [str(fault.path) for fault in validate_claim_spec(checked, path, context)]


def test_a_spec_is_valid_only_with_the_gates_that_it_was_found_valid_with() -> None:
    aggregated = spec("remembered", mode=AGGREGATED_CAPACITY)
    for _ in range(2):
        assert faults(aggregated, AGGREGATED) == []
        assert faults(aggregated, DEFAULT) == ["spec.devices.requests[0].exactly.allocationMode"]


def test_faults_are_found_again_and_under_the_path_of_the_object() -> None:
    template = SPEC.child("spec")
    for _ in range(2):
        assert faults(spec("Not-A-Label"), DEFAULT) == ["spec.devices.requests[0].name"]
        assert faults(spec("Not-A-Label"), DEFAULT, template) == ["spec.spec.devices.requests[0].name"]
        assert faults(spec("a-label"), DEFAULT, template) == []


def test_few_specs_are_remembered() -> None:
    for number in range(resource_claim.SPECS_KEPT_MAX + 10):
        assert faults(spec(f"request-{number}"), DEFAULT) == []
    assert len(resource_claim._valid_specs) <= resource_claim.SPECS_KEPT_MAX
