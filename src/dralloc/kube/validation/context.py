"""The context of validation besides the object."""

from __future__ import annotations

from msgspec import Struct

from dralloc.primitives.features import FeatureGates
from dralloc.primitives.field_errors import FieldPath


class ValidationContext(Struct, frozen=True, gc=False):
    """`flattened`: the object was sent as v1beta1, where requests and devices have another shape."""

    gates: FeatureGates
    flattened: bool = False

    def declared_request(self, request: FieldPath) -> FieldPath:
        """The path of an exact request in errors of declared rules."""
        return request if self.flattened else request.child("exactly")

    def declared_device(self, device: FieldPath) -> FieldPath:
        """The path of a device in errors of declared rules."""
        return device.child("basic") if self.flattened else device
