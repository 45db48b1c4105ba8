"""Sets of fields in the form that Kubernetes stores them (FieldsV1), and their algebra.

A set is a tree: `{"f:metadata": {"f:labels": {".": {}, "f:app": {}}}}` holds `.metadata.labels` and
`.metadata.labels.app`, but not `.metadata`. An element is a member of an object (`f:name`), an element of a
keyed list (`k:{"name":"x"}`) or a value of a set (`v:"x"`). A node is in the set if it is empty or has a
`"."`. Operations work on the stored form directly.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from dralloc.primitives.field_errors import beginning

FieldSet = dict[str, "FieldSet"]

SELF: Final = "."
LEAF: Final[FieldSet] = {}
_SELF_ALONE: Final[FieldSet] = {SELF: {}}


def is_member(node: FieldSet) -> bool:
    """True if the set contains the node itself, and not only fields below it."""
    return not node or SELF in node


def union(one: FieldSet, other: FieldSet) -> FieldSet:
    """The fields that are in either set."""
    if not one or not other:
        return one or other
    result = dict(one)
    for element, node in other.items():
        mine = result.get(element)
        result[element] = node if mine is None else _either_node(mine, node)
    return result


def intersection(one: FieldSet, other: FieldSet) -> FieldSet:
    """The fields that are in both sets."""
    result: FieldSet = {}
    for element, node in one.items():
        theirs = other.get(element)
        if theirs is None:
            continue
        both = intersection(node or _SELF_ALONE, theirs or _SELF_ALONE) if node or theirs else _SELF_ALONE
        if both:
            result[element] = _tidy(both)
    return result


def difference(one: FieldSet, other: FieldSet) -> FieldSet:
    """The fields of the first set that are not in the other."""
    result: FieldSet = {}
    for element, node in one.items():
        theirs = other.get(element)
        if theirs is None:
            result[element] = node
        elif (node or theirs) and (rest := difference(node or _SELF_ALONE, theirs or _SELF_ALONE)):
            result[element] = _tidy(rest)
    return result


def without_below(one: FieldSet, other: FieldSet) -> FieldSet:
    """The fields of the first set that are neither in the other nor below one of its fields."""
    result: FieldSet = {}
    for element, node in one.items():
        theirs = other.get(element)
        if theirs is None:
            result[element] = node
        elif is_member(theirs):
            continue
        elif not node:
            result[element] = node
        elif rest := without_below(node, theirs):
            result[element] = _tidy(rest)
    return result


def with_parents(fields: FieldSet) -> FieldSet:
    """The set and the parent objects of its fields, without list elements, which are owned themselves."""
    result: FieldSet = {}
    for element, node in fields.items():
        if not node:
            result[element] = node
        elif element.startswith("f:"):
            result[element] = {SELF: {}, **with_parents(node)}
        else:
            result[element] = with_parents(node)
    return result


def paths(fields: FieldSet, prefix: str = "") -> Iterator[str]:
    """The fields as paths, such as `.spec.containers[name="x"].image`, in Kubernetes' order; of long paths the beginning."""
    elements = sorted(element for element in fields if element != SELF)
    for element in elements:
        if is_member(fields[element]):
            yield beginning(prefix + beginning(_readable(element)))
    for element in elements:
        if fields[element]:
            yield from paths(fields[element], beginning(prefix + beginning(_readable(element))))


def _either_node(one: FieldSet, other: FieldSet) -> FieldSet:
    if not one and not other:
        return LEAF
    return union(one or _SELF_ALONE, other or _SELF_ALONE)


def _tidy(node: FieldSet) -> FieldSet:
    return LEAF if node == _SELF_ALONE else node


def _readable(element: str) -> str:
    kind, _, text = element.partition(":")
    match kind:
        case "f":
            return f".{text}"
        case "k":
            keys = msgspec.json.decode(text, type=dict[str, object])
            return f"[{','.join(f'{name}={_json(value)}' for name, value in keys.items())}]"
        case "v":
            return f"[={text}]"
        case _:
            return f"[{text}]"


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
