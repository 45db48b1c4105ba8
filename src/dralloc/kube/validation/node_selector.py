"""Node selectors of devices."""

from __future__ import annotations

from collections.abc import Iterator

from dralloc.kube.meta_v1 import NodeSelector, NodeSelectorRequirement
from dralloc.kube.validation.formats import validate_dns_subdomain, validate_format
from dralloc.primitives import names
from dralloc.primitives.field_errors import FieldError, FieldPath, forbidden, invalid, required


def validate_node_selector(selector: NodeSelector, path: FieldPath) -> Iterator[FieldError]:
    terms = path.child("nodeSelectorTerms")
    if not selector.node_selector_terms:
        yield required(terms, "must have at least one node selector term")
        return
    for position, term in enumerate(selector.node_selector_terms):
        term_path = terms.index(position)
        for index, requirement in enumerate(term.match_expressions):
            yield from validate_label_requirement(requirement, term_path.child("matchExpressions").index(index))
        for index, requirement in enumerate(term.match_fields):
            yield from _validate_field_requirement(requirement, term_path.child("matchFields").index(index))


def validate_label_requirement(requirement: NodeSelectorRequirement, path: FieldPath) -> Iterator[FieldError]:
    match requirement.operator:
        case "In" | "NotIn":
            if not requirement.values:
                yield required(path.child("values"), "must be set for operators In and NotIn")
        case "Exists" | "DoesNotExist":
            if requirement.values:
                yield forbidden(path.child("values"), "may not be set for operators Exists and DoesNotExist")
        case "Gt" | "Lt":
            if len(requirement.values) != 1:
                yield required(path.child("values"), "must hold one value for operators Gt and Lt")
        case operator:
            yield invalid(
                path.child("operator"), operator, "is not an operator: In, NotIn, Exists, DoesNotExist, Gt, Lt"
            )
    yield from validate_format(requirement.key, path.child("key"), names.label_key)
    for position, value in enumerate(requirement.values):
        yield from validate_format(value, path.child("values").index(position), names.label_value)


def _validate_field_requirement(requirement: NodeSelectorRequirement, path: FieldPath) -> Iterator[FieldError]:
    if requirement.operator not in ("In", "NotIn"):
        yield invalid(path.child("operator"), requirement.operator, "is not an operator for fields: In, NotIn")
    elif len(requirement.values) != 1:
        yield required(path.child("values"), "must hold one value")
    if requirement.key != "metadata.name":
        yield invalid(path.child("key"), requirement.key, "only metadata.name can be selected by")
        return
    for position, value in enumerate(requirement.values):
        yield from validate_dns_subdomain(value, path.child("values").index(position))
