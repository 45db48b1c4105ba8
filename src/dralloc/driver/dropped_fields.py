"""Fields that a server did not keep: which ones, and which of its features are probably off.

A server drops fields of features that are off, silently. A driver that does not notice would publish devices that mean something
else than it meant, and would write them again and again.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from dralloc.api.codec import encode
from dralloc.api.gated_fields import SLICE_FEATURES
from dralloc.api.resource_v1 import ResourceSliceSpec


class DroppedFields(Exception):
    """A slice was stored without some of what was written."""

    def __init__(self, pool: str, index: int, written: ResourceSliceSpec, stored: ResourceSliceSpec) -> None:
        self.pool = pool
        self.index = index
        self.fields = tuple(find_dropped(written, stored))
        self.gates = likely_gates(written, stored)
        reason = f"; on the server these are probably off: {', '.join(self.gates)}" if self.gates else ""
        super().__init__(f"slice {index} of pool {pool} was stored without {', '.join(self.fields)}{reason}")


def find_dropped(written: ResourceSliceSpec, stored: ResourceSliceSpec) -> Iterator[str]:
    """The fields that differ; of devices each field once, however many have it."""
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
    """The gates whose fields were written and are not there any more."""
    lost = (feature for feature in SLICE_FEATURES if feature.in_use(written) and not feature.in_use(stored))
    return tuple(dict.fromkeys(gate for feature in lost for gate in feature.gates))


def _tree(spec: ResourceSliceSpec) -> dict[str, Any]:
    return msgspec.json.decode(encode(spec), type=dict[str, Any])
