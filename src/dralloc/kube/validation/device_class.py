"""DeviceClass: selectors and driver configuration under a name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from dralloc.kube.resource_v1 import DeviceClass, DeviceClassConfiguration, DeviceClassSpec
from dralloc.kube.validation.configuration import CONFIG_COUNT_MAX, validate_opaque
from dralloc.kube.validation.context import ValidationContext
from dralloc.kube.validation.formats import validate_format
from dralloc.kube.validation.metadata import validate_metadata, validate_metadata_update
from dralloc.kube.validation.request_policy import validate_device_preference
from dralloc.kube.validation.selectors import validate_selectors, validate_selectors_size
from dralloc.primitives import names
from dralloc.primitives.field_errors import FieldError, FieldPath, too_many

SPEC: Final = FieldPath.of("spec")


def validate_device_class(obj: DeviceClass, context: ValidationContext) -> Iterator[FieldError]:
    yield from validate_metadata(obj.metadata, namespaced=False, checks_generate_name=False)
    yield from _validate_spec(obj.spec, None, context)


def validate_device_class_update(
    new: DeviceClass, old: DeviceClass, context: ValidationContext
) -> Iterator[FieldError]:
    """All fields may change; unchanged lists are not validated again."""
    yield from validate_metadata(new.metadata, namespaced=False, checks_generate_name=False)
    yield from validate_metadata_update(new.metadata, old.metadata)
    yield from _validate_spec(new.spec, old.spec, context)


def _validate_spec(
    spec: DeviceClassSpec, old: DeviceClassSpec | None, context: ValidationContext
) -> Iterator[FieldError]:
    yield from validate_selectors_size(spec.selectors, SPEC.child("selectors"))
    selectors_stored = old is not None and spec.selectors == old.selectors
    yield from validate_selectors(spec.selectors, SPEC.child("selectors"), context, stored=selectors_stored)
    config_stored = old is not None and spec.config == old.config
    yield from _validate_config(spec.config, SPEC.child("config"), stored=config_stored)
    if spec.extended_resource_name is not None:
        path = SPEC.child("extendedResourceName")
        yield from validate_format(spec.extended_resource_name, path, names.extended_resource_name)
    if spec.device_preference is not None:
        yield from validate_device_preference(spec.device_preference, SPEC.child("devicePreference"))


def _validate_config(
    config: tuple[DeviceClassConfiguration, ...], path: FieldPath, *, stored: bool
) -> Iterator[FieldError]:
    if len(config) > CONFIG_COUNT_MAX:
        yield too_many(path, len(config), CONFIG_COUNT_MAX)
        return
    for position, entry in enumerate(config):
        yield from validate_opaque(entry.opaque, path.index(position).child("opaque"), stored=stored)
