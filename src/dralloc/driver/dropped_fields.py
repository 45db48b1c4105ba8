"""Finds fields of slices that the API server dropped, and the feature gates that are probably disabled.

A server silently drops fields of disabled features. Without this check a driver would publish devices with another meaning, and
would rewrite them forever.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from dralloc.api.codec import encode
from dralloc.api.gated_fields import SLICE_FEATURES
from dralloc.api.resource_v1 import ResourceSliceSpec


class DroppedFields(Exception):
    """The API server stored a slice without some of its fields."""

    def __init__(self, pool: str, index: int, written: ResourceSliceSpec, stored: ResourceSliceSpec) -> None:
        self.pool = pool
        self.index = index
        self.fields = tuple(find_dropped(written, stored))
        self.gates = likely_gates(written, stored)
        self.has_lost_counters = not {"sharedCounters", "devices[].consumesCounters"}.isdisjoint(self.fields)
        reason = f"; feature gates that are probably disabled: {', '.join(self.gates)}" if self.gates else ""
        super().__init__(f"slice {index} of pool {pool} was stored without {', '.join(self.fields)}{reason}")


def find_dropped(written: ResourceSliceSpec, stored: ResourceSliceSpec) -> Iterator[str]:
    """The fields that differ; a field of devices is named once."""
    before, after = _tree(written), _tree(stored)
    for name in sorted(before.keys() | after.keys()):
        if name != "devices" and before.get(name) != after.get(name):
            yield name
    devices = {device["name"]: device for device in after.get("devices", ())}
    differing: dict[str, None] = {}
    for device in before.get("devices", ()):
        kept = devices.get(device["name"], {})
        differing |= dict.fromkeys(name for name in device if device[name] != kept.get(name))
    yield from (f"devices[].{name}" for name in differing)


def likely_gates(written: ResourceSliceSpec, stored: ResourceSliceSpec) -> tuple[str, ...]:
    """The gates of features that were written but not stored."""
    lost = (feature for feature in SLICE_FEATURES if feature.in_use(written) and not feature.in_use(stored))
    return tuple(dict.fromkeys(gate for feature in lost for gate in feature.gates))


def _tree(spec: ResourceSliceSpec) -> dict[str, Any]:
    return msgspec.json.decode(encode(spec), type=dict[str, Any])
