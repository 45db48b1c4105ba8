"""Random objects of any wire type, for property tests (needs hypothesis)."""

from __future__ import annotations

from functools import cache
from typing import Any

from hypothesis import strategies as st
from msgspec import Raw, Struct, inspect

from dralloc.primitives.quantity import Quantity

TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=["Cc"]), max_size=12)
KEYS = st.sampled_from(["memory", "gpu.example.com/model", "a", ""])
QUANTITIES = st.sampled_from(["0", "1", "80Gi", "1500m", "007", "1e3", "-5", "0.1Ki"]).map(Quantity.parse)
RAW = st.sampled_from([b'{"a": [1, 2.50, "\\u00e4"]}', b'{"b":null}', b"[]"]).map(Raw)


@cache
def wire_objects(wire_type: type[Struct]) -> st.SearchStrategy[Any]:
    """Any object of the type that the codec can decode."""
    return _strategy(inspect.type_info(wire_type))


def _strategy(info: inspect.Type) -> st.SearchStrategy[Any]:
    match info:
        case inspect.StructType():
            fields = {field.name: _strategy(field.type) for field in info.fields}
            return st.fixed_dictionaries({}, optional=fields).map(lambda given: info.cls(**given))
        case inspect.VarTupleType():
            return st.lists(_strategy(info.item_type), max_size=2).map(tuple)
        case inspect.DictType():
            return st.dictionaries(KEYS, _strategy(info.value_type), max_size=2)
        case inspect.UnionType():
            return st.one_of(*(_strategy(member) for member in info.types))
        case inspect.CustomType():
            return QUANTITIES
        case inspect.IntType():
            return st.integers(info.ge, info.le)
        case inspect.BoolType():
            return st.booleans()
        case inspect.NoneType():
            return st.none()
        case inspect.RawType():
            return RAW
        case inspect.AnyType():
            return st.sampled_from(["x", 1, True, {"f:spec": {}}])
        case _:
            return TEXTS
