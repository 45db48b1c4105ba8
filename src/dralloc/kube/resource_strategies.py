"""The write strategies of `resource.k8s.io`: what is set, kept and dropped before validation, and the validation of
each kind.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msgspec.structs import replace

from dralloc.kube.admin_access import validate_admin_access, validate_admin_access_given
from dralloc.kube.admission import warn_of_claim_spec, warn_of_slice
from dralloc.kube.authorization import validate_status_permissions
from dralloc.kube.canonical_form import canonicalize
from dralloc.kube.gated_fields import (
    CLAIM_SPEC_FEATURES,
    CLAIM_STATUS_FEATURES,
    CLASS_FEATURES,
    SLICE_FEATURES,
    GatedFields,
    drop_disabled,
)
from dralloc.kube.pod_claims import CLAIM_FINALIZER
from dralloc.kube.resource_defaults import (
    default_device_taint_rule,
    default_resource_claim,
    default_resource_claim_template,
    default_resource_slice,
)
from dralloc.kube.resource_v1 import (
    DeviceClass,
    DeviceTaintRule,
    DeviceTaintRuleStatus,
    ResourceClaim,
    ResourceClaimStatus,
    ResourceClaimTemplate,
    ResourceSlice,
)
from dralloc.kube.resource_v1alpha3 import (
    DEFAULT_LIMIT,
    ResourcePoolStatusRequest,
    ResourcePoolStatusRequestSpec,
)
from dralloc.kube.strategy import StatusStrategy, Strategy, with_generation
from dralloc.kube.timestamps import print_timestamp
from dralloc.kube.validation.device_class import validate_device_class, validate_device_class_update
from dralloc.kube.validation.pool_status_request import (
    validate_pool_status,
    validate_pool_status_request,
    validate_pool_status_request_update,
)
from dralloc.kube.validation.resource_claim import (
    validate_resource_claim,
    validate_resource_claim_template,
    validate_resource_claim_template_update,
    validate_resource_claim_update,
)
from dralloc.kube.validation.resource_claim_status import (
    AllocatedDeviceKey,
    allocated_devices,
    validate_resource_claim_status_update,
)
from dralloc.kube.validation.resource_slice import validate_resource_slice, validate_resource_slice_update
from dralloc.kube.validation.taints import (
    validate_device_taint_rule,
    validate_device_taint_rule_status_update,
    validate_device_taint_rule_update,
)
from dralloc.primitives.field_errors import FieldError


class ResourceSliceStrategy(Strategy[ResourceSlice]):
    def default(self, obj: ResourceSlice) -> ResourceSlice:
        return default_resource_slice(obj, print_timestamp(self.admission.now))

    def prepare_create(self, new: ResourceSlice) -> ResourceSlice:
        spec = drop_disabled(SLICE_FEATURES, new.spec, None, self.admission.gates)
        return with_generation(replace(new, spec=spec), 1)

    def validate_create(self, new: ResourceSlice) -> Iterator[FieldError]:
        return validate_resource_slice(new, self.context)

    def prepare_update(self, new: ResourceSlice, old: ResourceSlice) -> ResourceSlice:
        # A change counts even if the gated fields that changed are dropped right after.
        generation = old.metadata.generation + (canonicalize(new).spec != old.spec)
        spec = drop_disabled(SLICE_FEATURES, new.spec, old.spec, self.admission.gates)
        return with_generation(replace(new, spec=spec), generation)

    def validate_update(self, new: ResourceSlice, old: ResourceSlice) -> Iterator[FieldError]:
        return validate_resource_slice_update(new, old, self.context)

    def warnings(self, new: ResourceSlice) -> Iterator[str]:
        return warn_of_slice(new.spec)


class DeviceClassStrategy(Strategy[DeviceClass]):
    def prepare_create(self, new: DeviceClass) -> DeviceClass:
        spec = drop_disabled(CLASS_FEATURES, new.spec, None, self.admission.gates)
        return with_generation(replace(new, spec=spec), 1)

    def validate_create(self, new: DeviceClass) -> Iterator[FieldError]:
        return validate_device_class(new, self.context)

    def prepare_update(self, new: DeviceClass, old: DeviceClass) -> DeviceClass:
        new = replace(new, spec=drop_disabled(CLASS_FEATURES, new.spec, old.spec, self.admission.gates))
        return with_generation(new, old.metadata.generation + (canonicalize(new).spec != old.spec))

    def validate_update(self, new: DeviceClass, old: DeviceClass) -> Iterator[FieldError]:
        return validate_device_class_update(new, old, self.context)


class ResourceClaimStrategy(StatusStrategy[ResourceClaim]):
    def default(self, obj: ResourceClaim) -> ResourceClaim:
        return default_resource_claim(obj, flattened=self.context.flattened)

    def prepare_create(self, new: ResourceClaim) -> ResourceClaim:
        spec = drop_disabled(CLAIM_SPEC_FEATURES, new.spec, None, self.admission.gates)
        return replace(new, spec=spec, status=ResourceClaimStatus())

    def validate_create(self, new: ResourceClaim) -> Iterator[FieldError]:
        yield from validate_admin_access(new.spec, self.admission.namespace_labels)
        yield from validate_resource_claim(new, self.context)

    def prepare_update(self, new: ResourceClaim, old: ResourceClaim) -> ResourceClaim:
        spec = drop_disabled(CLAIM_SPEC_FEATURES, new.spec, old.spec, self.admission.gates)
        return replace(new, spec=spec, status=old.status)

    def validate_update(self, new: ResourceClaim, old: ResourceClaim) -> Iterator[FieldError]:
        return validate_resource_claim_update(canonicalize(new), canonicalize(old))

    def finalizers_with_status(self, new: ResourceClaim, old: ResourceClaim) -> tuple[str, ...]:
        """The write that allocates a claim may also protect it, which takes a write of its own in Kubernetes."""
        kept = old.metadata.finalizers
        if CLAIM_FINALIZER in kept or CLAIM_FINALIZER not in new.metadata.finalizers:
            return kept
        is_allocated_now = old.status.allocation is None and new.status.allocation is not None
        return (*kept, CLAIM_FINALIZER) if is_allocated_now else kept

    def prepare_status(self, new: ResourceClaim, old: ResourceClaim) -> ResourceClaim:
        new = replace(new, spec=old.spec)
        new = drop_disabled(CLAIM_STATUS_FEATURES, new, old, self.admission.gates)
        if "DRAResourceClaimDeviceStatus" in self.admission.gates or old.status.devices:
            return _without_stale_devices(new, old)
        return new

    def validate_status(self, new: ResourceClaim, old: ResourceClaim) -> Iterator[FieldError]:
        proposed = canonicalize(new)
        yield from validate_admin_access_given(new.status, old.status, self.admission.namespace_labels)
        if (requester := self.admission.requester) is not None:
            yield from validate_status_permissions(new, proposed, old, self.admission.gates, requester)
        changed = proposed.status.allocation != canonicalize(old).status.allocation
        yield from validate_resource_claim_status_update(new, old, allocation_changed=changed)

    def warnings(self, new: ResourceClaim) -> Iterator[str]:
        return warn_of_claim_spec(new.spec, "spec")


def _without_stale_devices(new: ResourceClaim, old: ResourceClaim) -> ResourceClaim:
    """Removes the status entries of devices that are deallocated by this write."""
    if not new.status.devices:
        return new
    given_back = allocated_devices(old.status) - allocated_devices(new.status)
    if not given_back:
        return new
    devices = tuple(device for device in new.status.devices if AllocatedDeviceKey.of(device) not in given_back)
    return replace(new, status=replace(new.status, devices=devices))


class ResourceClaimTemplateStrategy(Strategy[ResourceClaimTemplate]):
    def default(self, obj: ResourceClaimTemplate) -> ResourceClaimTemplate:
        return default_resource_claim_template(obj, flattened=self.context.flattened)

    def prepare_create(self, new: ResourceClaimTemplate) -> ResourceClaimTemplate:
        spec = drop_disabled(CLAIM_SPEC_FEATURES, new.spec.spec, None, self.admission.gates)
        return replace(new, spec=replace(new.spec, spec=spec))

    def validate_create(self, new: ResourceClaimTemplate) -> Iterator[FieldError]:
        yield from validate_admin_access(new.spec.spec, self.admission.namespace_labels)
        yield from validate_resource_claim_template(new, self.context)

    def prepare_update(self, new: ResourceClaimTemplate, old: ResourceClaimTemplate) -> ResourceClaimTemplate:
        spec = drop_disabled(CLAIM_SPEC_FEATURES, new.spec.spec, old.spec.spec, self.admission.gates)
        return replace(new, spec=replace(new.spec, spec=spec))

    def validate_update(self, new: ResourceClaimTemplate, old: ResourceClaimTemplate) -> Iterator[FieldError]:
        changed = canonicalize(new).spec != canonicalize(old).spec
        return validate_resource_claim_template_update(new, old, spec_changed=changed, context=self.context)

    def warnings(self, new: ResourceClaimTemplate) -> Iterator[str]:
        return warn_of_claim_spec(new.spec.spec, "spec.spec")


class DeviceTaintRuleStrategy(StatusStrategy[DeviceTaintRule]):
    def default(self, obj: DeviceTaintRule) -> DeviceTaintRule:
        return default_device_taint_rule(obj, print_timestamp(self.admission.now))

    def prepare_create(self, new: DeviceTaintRule) -> DeviceTaintRule:
        return with_generation(replace(new, status=DeviceTaintRuleStatus()), 1)

    def validate_create(self, new: DeviceTaintRule) -> Iterator[FieldError]:
        return validate_device_taint_rule(new)

    def prepare_update(self, new: DeviceTaintRule, old: DeviceTaintRule) -> DeviceTaintRule:
        taint, before = new.spec.taint, old.spec.taint
        if taint.effect != before.effect and taint.time_added == before.time_added:
            # Eviction counts from the time of the effect, so a new effect must not keep the old time.
            new = replace(
                new, spec=replace(new.spec, taint=replace(taint, time_added=print_timestamp(self.admission.now)))
            )
        new = replace(new, status=old.status)
        return with_generation(new, old.metadata.generation + (new.spec != old.spec))

    def validate_update(self, new: DeviceTaintRule, old: DeviceTaintRule) -> Iterator[FieldError]:
        return validate_device_taint_rule_update(new, old)

    def prepare_status(self, new: DeviceTaintRule, old: DeviceTaintRule) -> DeviceTaintRule:
        return replace(new, spec=old.spec)

    def validate_status(self, new: DeviceTaintRule, old: DeviceTaintRule) -> Iterator[FieldError]:
        return validate_device_taint_rule_status_update(new, old)


# --- Pool status strategy -------------------------------------------------------------------------------------------
# The write strategy of `resource.k8s.io/v1alpha3`: requests for the status of pools.


_SPEC_FEATURES: Final[tuple[GatedFields[ResourcePoolStatusRequestSpec], ...]] = (
    GatedFields(
        ("DRAPartitionableDevicesType",),
        lambda spec: spec.default_partition_type_attribute is not None,
        lambda spec: replace(spec, default_partition_type_attribute=None),
    ),
)


class ResourcePoolStatusRequestStrategy(StatusStrategy[ResourcePoolStatusRequest]):
    def default(self, obj: ResourcePoolStatusRequest) -> ResourcePoolStatusRequest:
        return obj if obj.spec.limit is not None else replace(obj, spec=replace(obj.spec, limit=DEFAULT_LIMIT))

    def prepare_create(self, new: ResourcePoolStatusRequest) -> ResourcePoolStatusRequest:
        spec = drop_disabled(_SPEC_FEATURES, new.spec, None, self.admission.gates)
        return replace(new, spec=spec, status=None)

    def validate_create(self, new: ResourcePoolStatusRequest) -> Iterator[FieldError]:
        return validate_pool_status_request(new)

    def prepare_update(
        self, new: ResourcePoolStatusRequest, old: ResourcePoolStatusRequest
    ) -> ResourcePoolStatusRequest:
        spec = drop_disabled(_SPEC_FEATURES, new.spec, old.spec, self.admission.gates)
        return replace(new, spec=spec, status=old.status)

    def validate_update(self, new: ResourcePoolStatusRequest, old: ResourcePoolStatusRequest) -> Iterator[FieldError]:
        return validate_pool_status_request_update(new, old)

    def prepare_status(
        self, new: ResourcePoolStatusRequest, old: ResourcePoolStatusRequest
    ) -> ResourcePoolStatusRequest:
        return replace(new, spec=old.spec)

    def validate_status(self, new: ResourcePoolStatusRequest, old: ResourcePoolStatusRequest) -> Iterator[FieldError]:
        return validate_pool_status(new, old)
