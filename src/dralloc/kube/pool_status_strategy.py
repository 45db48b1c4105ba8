"""The write strategy of `resource.k8s.io/v1alpha3`: requests for the status of pools."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msgspec.structs import replace

from dralloc.kube.gated_fields import GatedFields, drop_disabled
from dralloc.kube.resource_v1alpha3 import (
    DEFAULT_LIMIT,
    ResourcePoolStatusRequest,
    ResourcePoolStatusRequestSpec,
)
from dralloc.kube.strategy import StatusStrategy
from dralloc.kube.validation.pool_status_request import (
    validate_pool_status,
    validate_pool_status_request,
    validate_pool_status_request_update,
)
from dralloc.primitives.field_errors import FieldError

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
