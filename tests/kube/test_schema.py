"""The known fields of partially modelled kinds are those of Kubernetes 1.37, as an independent client lists them."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module

import msgspec
import pytest
from msgspec import inspect

from dralloc.kube.kind import Kind
from dralloc.kube.registry import KINDS


def module_of(kind: Kind) -> str:
    return f"{kind.group.partition('.')[0] or 'core'}_{kind.hub_version}"


NAMES = {module_of(kind) for kind in KINDS if kind.view}
MODULES = {
    name: import_module(f"lightkube.models.{name}") for name in ("meta_v1", "scheduling_v1alpha3", *sorted(NAMES))
}
OTHER_NAMES = {"ContainerClaim": "ResourceClaim"}


def types_in(info: object) -> Iterator[type[msgspec.Struct]]:
    """Yields every object type that a value may contain."""
    match info:
        case inspect.StructType():
            yield info.cls
            for field in info.fields:
                yield from types_in(field.type)
        case inspect.VarTupleType():
            yield from types_in(info.item_type)
        case inspect.DictType():
            yield from types_in(info.value_type)
        case inspect.UnionType():
            for member in info.types:
                yield from types_in(member)


# The client lists types without fields as plain objects.
VIEWED = {
    (module_of(kind), each.__name__): each
    for kind in KINDS
    if kind.view
    for each in types_in(inspect.type_info(kind.view))
    if each.__struct_fields__
}


def names_of(struct: type[msgspec.Struct]) -> set[str]:
    return {field.encode_name for field in msgspec.structs.fields(struct)}


@pytest.mark.parametrize(("module", "name"), sorted(VIEWED))
def test_known_fields_are_exactly_those_of_kubernetes(module: str, name: str) -> None:
    viewed, listed_name = VIEWED[module, name], OTHER_NAMES.get(name, name)
    # A type of another group is the only one of its name.
    listed = getattr(MODULES[module], listed_name, None)
    if listed is None:
        (listed,) = {getattr(each, listed_name) for each in MODULES.values() if hasattr(each, listed_name)}
    unread: tuple[str, ...] = getattr(viewed, "UNREAD", ())
    assert names_of(viewed).isdisjoint(unread)
    assert names_of(viewed) | {*unread} == names_of(listed)
