"""ResourceClaimTemplate: the spec of future claims, and their labels and annotations."""

from __future__ import annotations

from collections.abc import Iterator

from dralloc.api.resource_v1 import ResourceClaimTemplate
from dralloc.api.validation.context import ValidationContext
from dralloc.api.validation.metadata import validate_metadata, validate_metadata_update, validate_template_metadata
from dralloc.api.validation.resource_claim import SPEC, validate_claim_spec
from dralloc.primitives.field_errors import FieldError, invalid


def validate_resource_claim_template(
    template: ResourceClaimTemplate, context: ValidationContext
) -> Iterator[FieldError]:
    yield from validate_metadata(template.metadata, namespaced=True)
    yield from validate_template_metadata(template.spec.metadata, SPEC.child("metadata"))
    yield from validate_claim_spec(template.spec.spec, SPEC.child("spec"), context)


def validate_resource_claim_template_update(
    new: ResourceClaimTemplate, old: ResourceClaimTemplate, *, spec_changed: bool, context: ValidationContext
) -> Iterator[FieldError]:
    """Unlike a claim, a template is validated again as if it were new, although its spec is immutable."""
    yield from validate_resource_claim_template(new, context)
    yield from validate_metadata_update(new.metadata, old.metadata)
    if spec_changed:
        yield invalid(SPEC, None, "field is immutable")
