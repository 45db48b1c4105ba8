"""Strategic merge patch: a merge patch that merges lists by element.

A patch may contain directives: `$patch` (replace or delete this object or list element), `$retainKeys` (drop the members not
listed), `$setElementOrder/LIST` (the order of elements) and `$deleteFromPrimitiveList/LIST` (values to remove from a list of
scalars).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Final

from dralloc.primitives.errors import BadRequest
from dralloc.server.documents.json_documents import Document, Json, refuses_deep_nesting
from dralloc.server.documents.merge_rules import MergeRule
from dralloc.server.http.statuses import bad_patch

DIRECTIVE: Final = "$patch"
RETAIN_KEYS: Final = "$retainKeys"
ORDER_PREFIX: Final = "$setElementOrder/"
DELETE_PREFIX: Final = "$deleteFromPrimitiveList/"

_NO_RULE: Final = MergeRule()


@refuses_deep_nesting
def apply_strategic_merge_patch(document: Document, patch: Json, rule: MergeRule) -> Document:
    if not isinstance(patch, dict):
        raise BadRequest("a strategic merge patch must be a JSON object")
    return _merge_object(document, patch, rule.members)


def _merge_object(original: Document, patch: Document, rules: Mapping[str, MergeRule]) -> Document:
    match patch.get(DIRECTIVE, "merge"):
        case "merge":
            merged = _retain_keys(original, patch)
        case "replace":
            merged = {}
        case "delete":
            return {}
        case other:
            raise BadRequest(f"unknown {DIRECTIVE} directive {other!r}")
    for name, value in patch.items():
        if name.startswith("$") and _is_directive(name):
            continue
        rule = rules.get(name, _NO_RULE)
        if value is None:
            merged.pop(name, None)
        elif isinstance(value, dict):
            merged[name] = _merge_object(_object_at(merged, name), value, rule.members)
        elif isinstance(value, list) and rule.strategic:
            merged[name] = _merge_list(merged.get(name), patch, name, rule)
        else:
            merged[name] = value
    for name in _lists_with_directives_only(patch):
        if rules.get(name, _NO_RULE).strategic and isinstance(merged.get(name), list):
            merged[name] = _merge_list(merged[name], patch, name, rules[name])
    return merged


def _is_directive(name: str) -> bool:
    return name in (DIRECTIVE, RETAIN_KEYS) or name.startswith((ORDER_PREFIX, DELETE_PREFIX))


def _object_at(document: Document, name: str) -> Document:
    value = document.get(name)
    return value if isinstance(value, dict) else {}


def _retain_keys(original: Document, patch: Document) -> Document:
    """A copy of the object, without the members that the patch does not retain."""
    retained = patch.get(RETAIN_KEYS)
    if retained is None:
        return dict(original)
    if not isinstance(retained, list):
        raise BadRequest(f"{RETAIN_KEYS} must be a list of names")
    for name, value in patch.items():
        if value is not None and name not in retained and not _is_directive(name):
            raise BadRequest(f"{RETAIN_KEYS} does not list {name!r}, which the patch sets")
    return {name: value for name, value in original.items() if name in retained}


def _lists_with_directives_only(patch: Document) -> Iterable[str]:
    """Lists that the patch changes by directives only."""
    directives = [name for name in patch if name.startswith((ORDER_PREFIX, DELETE_PREFIX))]
    lists = (name.partition("/")[2] for name in directives)
    return dict.fromkeys(name for name in lists if name not in patch)


def _merge_list(original: Json, patch: Document, name: str, rule: MergeRule) -> list[Json]:
    """The list with its patch merged, in the order of the patch."""
    server = original if isinstance(original, list) else []
    elements = _list_of(patch, name)
    removed = _list_of(patch, DELETE_PREFIX + name)
    if rule.strategic_key is None:
        merged = _merge_scalars(server, elements, removed)
    else:
        merged, elements = _merge_keyed(server, elements, rule)
    key = rule.strategic_key
    order = [_identity(element, key) for element in _list_of(patch, ORDER_PREFIX + name)]
    patched = [_identity(element, key) for element in elements]
    if order and not set(patched) <= set(order):
        raise BadRequest(f"{ORDER_PREFIX}{name} must list every element that the patch sets")
    return _arrange(merged, order or patched, server, key)


def _list_of(patch: Document, name: str) -> list[Json]:
    elements = patch.get(name)
    if elements is None:
        return []
    if not isinstance(elements, list):
        raise BadRequest(f"{name} must be a list")
    return elements


def _merge_scalars(server: list[Json], added: list[Json], removed: list[Json]) -> list[Json]:
    gone = {_identity(value, None) for value in removed}
    values = {_identity(value, None): value for value in (*server, *added)}
    return [value for identity, value in values.items() if identity not in gone]


def _merge_keyed(server: list[Json], elements: list[Json], rule: MergeRule) -> tuple[list[Json], list[Json]]:
    """The merged list, and the patch's elements without directives."""
    key = rule.strategic_key
    plain: list[Json] = []
    gone: set[Hashable] = set()
    merged = server
    for element in elements:
        match element.get(DIRECTIVE) if isinstance(element, dict) else None:
            case None:
                plain.append(element)
            case "delete":
                gone.add(_identity(element, key))
            case "replace":
                merged = []
            case other:
                raise BadRequest(f"unknown {DIRECTIVE} directive {other!r} in a list")
    merged = [element for element in merged if _identity(element, key) not in gone]
    positions: dict[Hashable, int] = {}
    for position, element in enumerate(merged):
        positions.setdefault(_identity(element, key), position)
    for element in plain:
        position = positions.setdefault(_identity(element, key), len(merged))
        if position == len(merged):
            merged.append({})
        merged[position] = _merge_object(merged[position], element, rule.members)
    return merged, plain


def _identity(element: Json, key: str | None) -> Hashable:
    """The value that identifies the element in its list."""
    if key is None:
        value = element
    elif isinstance(element, dict) and key in element:
        value = element[key]
    else:
        raise bad_patch(f"a list element does not contain its merge key {key!r}")
    if isinstance(value, dict | list):
        raise bad_patch("the merge key of a list element must be a string or number")
    return (type(value), value)


def _arrange(merged: list[Json], wanted: list[Hashable], server: list[Json], key: str | None) -> list[Json]:
    """The elements in the wanted order, with others next to their former neighbours."""
    ranks = {identity: rank for rank, identity in reversed(list(enumerate(wanted)))}
    places = {_identity(element, key): place for place, element in reversed(list(enumerate(server)))}
    identified = [(_identity(element, key), element) for element in merged]
    ordered = sorted((pair for pair in identified if pair[0] in ranks), key=lambda pair: ranks[pair[0]])
    result: list[Json] = []
    others = [pair for pair in identified if pair[0] not in ranks]
    next_other = 0
    for identity, element in ordered:
        place = places.get(identity, -1)
        while next_other < len(others) and places[others[next_other][0]] < place:
            result.append(others[next_other][1])
            next_other += 1
        result.append(element)
    return result + [element for _, element in others[next_other:]]
