"""Pod affinity and topology spread constraints."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from dralloc.api.meta_v1 import LabelSelector
from dralloc.api.pod_v1 import Affinity, PodAffinity, PodAffinityTerm, TopologySpreadConstraint
from dralloc.api.validation import formats
from dralloc.api.validation.metadata import validate_labels
from dralloc.primitives import names
from dralloc.primitives.field_errors import FieldError, FieldPath, duplicate, forbidden, invalid, required

DO_NOT_SCHEDULE: Final = "DoNotSchedule"
UNSATISFIABLE: Final = (DO_NOT_SCHEDULE, "ScheduleAnyway")
POLICIES: Final = ("Honor", "Ignore")
_POSITIVE: Final = "must be greater than zero"


def validate_pod_affinity(affinity: Affinity, path: FieldPath) -> Iterator[FieldError]:
    for name, side in (("podAffinity", affinity.pod_affinity), ("podAntiAffinity", affinity.pod_anti_affinity)):
        if side is not None:
            yield from _validate_side(side, path.child(name))


def _validate_side(side: PodAffinity, path: FieldPath) -> Iterator[FieldError]:
    where = path.child("requiredDuringSchedulingIgnoredDuringExecution")
    for position, term in enumerate(side.required_during_scheduling_ignored_during_execution):
        yield from _validate_term(term, where.index(position))
    where = path.child("preferredDuringSchedulingIgnoredDuringExecution")
    for position, weighted in enumerate(side.preferred_during_scheduling_ignored_during_execution):
        if not 1 <= weighted.weight <= 100:
            yield invalid(where.index(position).child("weight"), weighted.weight, "must be in the range 1-100")
        yield from _validate_term(weighted.pod_affinity_term, where.index(position).child("podAffinityTerm"))


def _validate_term(term: PodAffinityTerm, path: FieldPath) -> Iterator[FieldError]:
    if term.label_selector is not None:
        yield from _validate_selector(term.label_selector, path.child("labelSelector"))
    if term.namespace_selector is not None:
        yield from _validate_selector(term.namespace_selector, path.child("namespaceSelector"))
    for position, namespace in enumerate(term.namespaces):
        yield from formats.validate_dns_label(namespace, path.child("namespaces").index(position))
    yield from _validate_label_keys(term.match_label_keys, term.label_selector, path.child("matchLabelKeys"))
    yield from _validate_label_keys(term.mismatch_label_keys, term.label_selector, path.child("mismatchLabelKeys"))
    for position, key in enumerate(term.match_label_keys):
        if key in term.mismatch_label_keys:
            yield invalid(
                path.child("matchLabelKeys").index(position), key, "exists in both matchLabelKeys and mismatchLabelKeys"
            )
    yield from _validate_topology_key(term.topology_key, path)


def validate_topology_spread(
    constraints: tuple[TopologySpreadConstraint, ...], path: FieldPath
) -> Iterator[FieldError]:
    known: set[tuple[str, str]] = set()
    for position, each in enumerate(constraints):
        where = path.index(position)
        if each.max_skew <= 0:
            yield invalid(where.child("maxSkew"), each.max_skew, _POSITIVE)
        yield from _validate_topology_key(each.topology_key, where)
        yield from formats.validate_choice(each.when_unsatisfiable, where.child("whenUnsatisfiable"), UNSATISFIABLE)
        pair = (each.topology_key, each.when_unsatisfiable)
        if pair in known:
            yield duplicate(where.child("{topologyKey, whenUnsatisfiable}"), f"{{{', '.join(pair)}}}")
        known.add(pair)
        yield from _validate_min_domains(each, where.child("minDomains"))
        for name, policy in (
            ("nodeAffinityPolicy", each.node_affinity_policy),
            ("nodeTaintsPolicy", each.node_taints_policy),
        ):
            if policy is not None:
                yield from formats.validate_choice(policy, where.child(name), POLICIES)
        yield from _validate_label_keys(each.match_label_keys, each.label_selector, where.child("matchLabelKeys"))
        if each.label_selector is not None:
            yield from _validate_selector(each.label_selector, where.child("labelSelector"))


def _validate_min_domains(constraint: TopologySpreadConstraint, path: FieldPath) -> Iterator[FieldError]:
    least, when = constraint.min_domains, constraint.when_unsatisfiable
    if least is None:
        return
    if least <= 0:
        yield invalid(path, least, _POSITIVE)
    if when != DO_NOT_SCHEDULE:
        yield invalid(path, least, f"can only use minDomains if whenUnsatisfiable={DO_NOT_SCHEDULE}, not {when}")


def _validate_topology_key(key: str, path: FieldPath) -> Iterator[FieldError]:
    if not key:
        yield required(path.child("topologyKey"), "can not be empty")
    else:
        yield from formats.validate_format(key, path.child("topologyKey"), names.label_key)


def _validate_label_keys(
    keys: tuple[str, ...], selector: LabelSelector | None, path: FieldPath
) -> Iterator[FieldError]:
    if keys and selector is None:
        yield forbidden(path, "must not be specified when labelSelector is not set")
    for position, key in enumerate(keys):
        yield from formats.validate_format(key, path.index(position), names.label_key)


def _validate_selector(selector: LabelSelector, path: FieldPath) -> Iterator[FieldError]:
    yield from validate_labels(selector.match_labels, path.child("matchLabels"))
    for position, each in enumerate(selector.match_expressions):
        where = path.child("matchExpressions").index(position)
        match each.operator:
            case "In" | "NotIn":
                if not each.values:
                    yield required(where.child("values"), "must be specified when `operator` is 'In' or 'NotIn'")
            case "Exists" | "DoesNotExist":
                if each.values:
                    message = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
                    yield forbidden(where.child("values"), message)
            case operator:
                yield invalid(where.child("operator"), operator, "not a valid selector operator")
        yield from formats.validate_format(each.key, where.child("key"), names.label_key)
