"""The function behind the macros that build maps."""

from __future__ import annotations

from typing import Final

from dralloc.cel.errors import CelEvaluationError
from dralloc.cel.library.functions import Anything, Library
from dralloc.cel.meter import Meter
from dralloc.cel.values import MISSING, Map, Value, find, key_value, map_key

LIBRARY: Final = Library()
define: Final = LIBRARY.define


@define("cel.@mapInsert", dict, Anything, Anything, metered=True)
def insert(meter: Meter, mapping: Map, key: Value, value: Value) -> Map:
    """Adds an entry in place: only the macro that builds the map refers to it."""
    if find(mapping, key) is not MISSING:
        raise CelEvaluationError(f"insert failed: key {key} already exists")
    meter.spend(1)
    mapping[map_key(key)] = value
    return mapping


@define("cel.@mapInsert", dict, dict, metered=True)
def insert_all(meter: Meter, mapping: Map, entries: Map) -> Map:
    for key, value in entries.items():
        insert(meter, mapping, key_value(key), value)
    return mapping
