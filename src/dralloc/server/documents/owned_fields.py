"""Fields of documents: which a document has, how two documents differ, and how they merge by a kind's merge rules.

This is the part of server-side apply without managers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

import msgspec

from dralloc.kube.codec import encode
from dralloc.primitives.errors import BadRequest
from dralloc.primitives.field_errors import FieldPath
from dralloc.server.documents.json_documents import Document, Json
from dralloc.server.documents.merge_rules import MergeRule

_NO_RULE: Final = MergeRule()


class _BadList(Exception):
    """A list whose elements cannot be told apart. Its path is known while the error passes the members above it."""

    def __init__(self, fault: str) -> None:
        super().__init__(fault)
        self.fault = fault
        self._steps: list[str | int] = []

    def below(self, step: str | int) -> _BadList:
        self._steps.append(step)
        return self

    def refusal(self) -> BadRequest:
        path: FieldPath | None = None
        for step in reversed(self._steps):
            path = FieldPath(path, step)
        return BadRequest(f"{path}: {self.fault}")


@dataclass(frozen=True, slots=True)
class Changes:
    """The difference between two documents."""

    added: FieldSet = field(default_factory=dict)
    modified: FieldSet = field(default_factory=dict)
    removed: FieldSet = field(default_factory=dict)

    @property
    def written(self) -> FieldSet:
        """The fields with a new value."""
        return union(self.added, self.modified)


def fields_of(document: Document, rule: MergeRule) -> FieldSet:
    """The fields that the applier of the document owns: its leaves and list elements. Raises `BadRequest`."""
    try:
        return _fields_of_members(document, rule.members, containers=False)
    except _BadList as bad:
        raise bad.refusal() from None


def compare(old: Document, new: Document, rule: MergeRule) -> Changes:
    """The fields that differ. New fields include their new parent objects and lists."""
    changes = Changes()
    _compare_members(old, new, rule.members, changes)
    return changes


def merge(live: Document, applied: Document, rule: MergeRule) -> Document:
    """The live document with the applied fields set; nothing is removed."""
    return _merge_members(live, applied, rule.members)


def remove(document: Document, fields: FieldSet, rule: MergeRule) -> Document:
    """The document without these fields and everything below them, and without containers that this empties."""
    return _remove_members(document, fields, rule.members)


# --- fields of a document ---------------------------------------------------------------------------------


def _fields_of_members(members: Document, rules: Mapping[str, MergeRule], *, containers: bool) -> FieldSet:
    fields: FieldSet = {}
    for name, value in members.items():
        try:
            node = _fields_of_value(value, rules.get(name, _NO_RULE), containers=containers)
        except _BadList as bad:
            raise bad.below(name) from None
        if node is not None:
            fields[f"f:{name}"] = node
    return fields


def _fields_of_value(value: Json, rule: MergeRule, *, containers: bool) -> FieldSet | None:
    """The value's fields, or `None` if it has none to own."""
    if value is None:
        return LEAF if containers else None
    if rule.atomic:
        return LEAF
    if isinstance(value, dict):
        below = _fields_of_members(value, rule.members, containers=containers)
    elif isinstance(value, list) and (rule.keys or rule.is_set):
        elements = _by_name(value, rule, strict=not containers)
        if elements is None:
            return LEAF
        below = _fields_of_elements(elements, rule, containers=containers)
    else:
        return LEAF
    if containers:
        return {SELF: {}, **below} if below else LEAF
    return below or (LEAF if value == {} else None)


def _fields_of_elements(elements: Mapping[str, Json], rule: MergeRule, *, containers: bool) -> FieldSet:
    if rule.is_set or rule.atomic_elements:
        return dict.fromkeys(elements, LEAF)
    fields: FieldSet = {}
    for position, (name, element) in enumerate(elements.items()):
        try:
            fields[name] = {SELF: {}, **_fields_of_members(element, rule.members, containers=containers)}
        except _BadList as bad:
            raise bad.below(position) from None
    return fields


def _by_name(elements: list[Json], rule: MergeRule, *, strict: bool = False) -> dict[str, Json] | None:
    """The elements by their names; `None`, or an error if `strict`, if names are missing or repeated.

    Stored objects may have such lists, which are then atomic. An apply with such a list is refused.
    """
    try:
        named = {element_name(element, rule): element for element in elements}
    except BadRequest as error:
        if strict:
            raise _BadList(error.message) from None
        return None
    if len(named) == len(elements):
        return named
    if strict:
        raise _BadList(f"two elements have the same {'value' if rule.is_set else ', '.join(rule.keys)}")
    return None


def element_name(element: Json, rule: MergeRule) -> str:
    """The element's name in a field set."""
    if rule.is_set:
        if isinstance(element, dict | list):
            raise BadRequest("the list is a set, which holds text and numbers, not objects and lists")
        return f"v:{encode(element).decode()}"
    if not isinstance(element, dict):
        raise BadRequest(f"an element is not an object with the keys {', '.join(rule.keys)}")
    keys: Document = {}
    for key in rule.keys:
        value = element.get(key, rule.key_defaults.get(key))
        if value is None:
            continue
        if isinstance(value, dict | list):
            raise BadRequest(f"an element has a key {key} that is not text or a number")
        keys[key] = value
    if not keys:
        raise BadRequest(f"an element has none of its keys: {', '.join(rule.keys)}")
    return f"k:{encode(keys).decode()}"


# --- differences ------------------------------------------------------------------------------------------


def _compare_members(old: Document, new: Document, rules: Mapping[str, MergeRule], changes: Changes) -> None:
    for name, value in new.items():
        rule = rules.get(name, _NO_RULE)
        if name not in old:
            _note(changes.added, f"f:{name}", _fields_of_value(value, rule, containers=True))
        else:
            _compare_values(old[name], value, f"f:{name}", rule, changes)
    for name, value in old.items():
        if name not in new:
            rule = rules.get(name, _NO_RULE)
            _note(changes.removed, f"f:{name}", _fields_of_value(value, rule, containers=True))


def _compare_values(old: Json, new: Json, name: str, rule: MergeRule, changes: Changes) -> None:
    # In Python, `True == 1`, but no field changes from one to the other.
    if old == new:
        return
    below = Changes()
    if _are_objects(old, new) and not rule.atomic:
        _compare_members(old or {}, new or {}, rule.members, below)
    elif not _are_keyed_lists(old, new, rule) or not _compare_elements(old or [], new or [], rule, below):
        changes.modified[name] = LEAF
        return
    for whole, part in (
        (changes.added, below.added),
        (changes.modified, below.modified),
        (changes.removed, below.removed),
    ):
        if part:
            whole[name] = part


def _are_objects(old: Json, new: Json) -> bool:
    """True if both are objects, of which at least one is not empty. `null` counts as an empty object."""
    return isinstance(old, dict | None) and isinstance(new, dict | None) and bool(old or new)


def _are_keyed_lists(old: Json, new: Json, rule: MergeRule) -> bool:
    return (
        bool(rule.keys or rule.is_set)
        and isinstance(old, list | None)
        and isinstance(new, list | None)
        and bool(old or new)
    )


def _compare_elements(old: list[Json], new: list[Json], rule: MergeRule, changes: Changes) -> bool:
    """Record how the lists differ; false if elements have no distinct names, so that the list is atomic."""
    old_elements, new_elements = _by_name(old, rule), _by_name(new, rule)
    if old_elements is None or new_elements is None:
        return False
    element_rule = MergeRule(members=rule.members, atomic=rule.atomic_elements)
    for name, element in new_elements.items():
        if name not in old_elements:
            _note(changes.added, name, _fields_of_value(element, element_rule, containers=True))
        else:
            _compare_values(old_elements[name], element, name, element_rule, changes)
    for name, element in old_elements.items():
        if name not in new_elements:
            _note(changes.removed, name, _fields_of_value(element, element_rule, containers=True))
    return True


def _note(fields: FieldSet, name: str, node: FieldSet | None) -> None:
    if node is not None:
        fields[name] = node


# --- merging and removing -----------------------------------------------------------------------------------


def _merge_members(live: Document, applied: Document, rules: Mapping[str, MergeRule]) -> Document:
    merged = dict(live)
    for name, value in applied.items():
        if value is None:
            continue
        rule = rules.get(name, _NO_RULE)
        old = merged.get(name)
        if isinstance(value, dict) and isinstance(old, dict) and not rule.atomic:
            merged[name] = _merge_members(old, value, rule.members)
        elif isinstance(value, list) and isinstance(old, list) and (rule.keys or rule.is_set):
            merged[name] = _merge_elements(old, value, rule)
        else:
            merged[name] = value
    return merged


def _merge_elements(live: list[Json], applied: list[Json], rule: MergeRule) -> list[Json]:
    """The elements of both lists: applied ones in their order, others next to their former neighbours."""
    old = [(element_name(element, rule), element) for element in live]
    old_by_name = dict(old)
    new_names = [element_name(element, rule) for element in applied]
    is_new = set(new_names)
    shared = [name for name in new_names if name in old_by_name]
    merged: list[Json] = []
    position = shared_done = 0
    for name, element in zip(new_names, applied, strict=True):
        awaited = shared[shared_done] if shared_done < len(shared) else None
        while position < len(old) and old[position][0] != awaited:
            if old[position][0] not in is_new:
                merged.append(old[position][1])
            position += 1
        if name == awaited:
            shared_done += 1
            position += 1
        is_mergeable = name in old_by_name and not (rule.is_set or rule.atomic_elements)
        merged.append(_merge_members(old_by_name[name], element, rule.members) if is_mergeable else element)
    return merged + [element for name, element in old[position:] if name not in is_new]


def _remove_members(members: Document, fields: FieldSet, rules: Mapping[str, MergeRule]) -> Document:
    kept = dict(members)
    for element, node in fields.items():
        name = element[2:]
        if element == SELF or name not in kept:
            continue
        rest = None if is_member(node) else _remove_from_value(kept[name], node, rules.get(name, _NO_RULE))
        if rest:
            kept[name] = rest
        elif rest is None or kept[name]:
            del kept[name]
    return kept


def _remove_from_value(value: Json, fields: FieldSet, rule: MergeRule) -> Json:
    if isinstance(value, dict):
        return _remove_members(value, fields, rule.members)
    if not isinstance(value, list) or not (rule.keys or rule.is_set):
        return value
    kept: list[Json] = []
    for element in value:
        node = fields.get(element_name(element, rule))
        if node is None:
            kept.append(element)
        elif not is_member(node):
            kept.append(_remove_members(element, node, rule.members))
    return kept


# --- Field sets -----------------------------------------------------------------------------------------------------
# Sets of fields in the form that Kubernetes stores them (FieldsV1), and their algebra.
#
# A set is a tree: `{"f:metadata": {"f:labels": {".": {}, "f:app": {}}}}` holds `.metadata.labels` and
# `.metadata.labels.app`, but not `.metadata`. An element is a member of an object (`f:name`), an element of a keyed
# list (`k:{"name":"x"}`) or a value of a set (`v:"x"`). A node is in the set if it is empty or has a `"."`.
# Operations work on the stored form directly.


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
    """The fields as paths, such as `.spec.containers[name="x"].image`, in Kubernetes' order."""
    elements = sorted(element for element in fields if element != SELF)
    for element in elements:
        if is_member(fields[element]):
            yield prefix + _readable(element)
    for element in elements:
        if fields[element]:
            yield from paths(fields[element], prefix + _readable(element))


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
