"""Driver parameters in classes, claims and allocations."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from dralloc.kube.resource_v1 import OpaqueDeviceConfiguration
from dralloc.kube.validation.formats import validate_driver_name, validate_json_object
from dralloc.primitives.field_errors import FieldError, FieldPath, required

CONFIG_COUNT_MAX: Final = 32
PARAMETERS_LENGTH_MAX: Final = 10 * 1024


def validate_opaque(
    opaque: OpaqueDeviceConfiguration | None, path: FieldPath, *, stored: bool = False
) -> Iterator[FieldError]:
    """A driver name and a JSON object. Stored objects are exempt from the size limit, which was introduced later."""
    if opaque is None:
        yield required(path)
        return
    yield from validate_driver_name(opaque.driver, path.child("driver"))
    length_max = None if stored else PARAMETERS_LENGTH_MAX
    yield from validate_json_object(opaque.parameters, path.child("parameters"), length_max)
