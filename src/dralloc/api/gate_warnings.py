"""Warnings about fields that a server drops, because their feature gate is off. The server itself drops them silently."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from dralloc.api import gated_fields
from dralloc.api.codec import encode
from dralloc.api.core_strategies import GATED_MEMBERS, without_gated_members
from dralloc.api.gated_fields import GatedFields
from dralloc.api.meta_v1 import ApiObject
from dralloc.api.resource_v1 import DeviceClass, ResourceClaim, ResourceClaimSpec, ResourceClaimTemplate, ResourceSlice
from dralloc.api.scheduling_v1beta1 import PodGroup, Workload
from dralloc.api.unstructured_object import UnstructuredObject
from dralloc.primitives.features import FeatureGates

# The fields of a device that have names of the user's for keys.
_IS_MAP: Final = re.compile(r"spec\.devices\[\d+\]\.(capacity|requestPolicies)$")


def warn_of_dropped_fields(obj: ApiObject, gates: FeatureGates) -> Iterator[str]:
    """Yields a warning for each field of the object, in the hub's shape, that a creation drops."""
    match obj:
        case ResourceSlice():
            yield from _warn(gated_fields.SLICE_FEATURES, obj.spec, "spec", gates)
        case DeviceClass():
            yield from _warn(gated_fields.CLASS_FEATURES, obj.spec, "spec", gates)
        case ResourceClaim():
            yield from _warn_of_claim(obj.spec, "spec", gates)
        case ResourceClaimTemplate():
            yield from _warn_of_claim(obj.spec.spec, "spec.spec", gates)
        case PodGroup() | Workload() if "GenericWorkload" not in gates:
            yield f"{obj.kind}: not served by a server without the feature gate GenericWorkload"
        case UnstructuredObject(kind="Pod"):
            spec = obj.member("spec")
            kept = without_gated_members(spec, {}, gates)
            for name in spec.keys() - kept.keys():
                yield f"spec.{name}: dropped by a server without the feature gate {GATED_MEMBERS[name]}"
        case _:
            return


def _warn_of_claim(spec: ResourceClaimSpec, path: str, gates: FeatureGates) -> Iterator[str]:
    yield from _warn(gated_fields.CLAIM_SPEC_FEATURES, spec, path, gates)
    if gated_fields.uses_aggregated_capacity(spec) and "DRAAggregatedCapacity" not in gates:
        yield f"{path}.devices.requests: mode AggregatedCapacity is refused by a server without the feature gate DRAAggregatedCapacity"


def _warn(features: tuple[GatedFields[Any], ...], part: Any, path: str, gates: FeatureGates) -> Iterator[str]:
    warned: set[str] = set()
    for feature in features:
        off = [gate for gate in feature.gates if gate not in gates]
        if not off or not feature.in_use(part):
            continue
        for field in _lost(_tree(part), _tree(feature.cleared(part)), path):
            # A field of a field that another gate drops.
            if not any(field.startswith(outer) for outer in warned):
                warned.add(field)
                yield f"{field}: dropped by a server without the feature gate {' and '.join(off)}"


def _tree(part: Any) -> Any:
    return msgspec.json.decode(encode(part))


def _lost(before: Any, after: Any, path: str) -> Iterator[str]:
    if isinstance(before, dict) and isinstance(after, dict):
        for name, value in before.items():
            where = f"{path}[{name}]" if _IS_MAP.search(path) else f"{path}.{name}"
            if name not in after:
                yield where
            else:
                yield from _lost(value, after[name], where)
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for position, (value, kept) in enumerate(zip(before, after, strict=True)):
            yield from _lost(value, kept, f"{path}[{position}]")
    elif before != after:
        yield path
