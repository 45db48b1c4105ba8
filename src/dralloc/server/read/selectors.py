"""Label and field selectors of lists, watches and collection deletions."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from dralloc.primitives.errors import BadRequest
from dralloc.primitives.names import label_key, label_value
from dralloc.server.documents.json_documents import Document
from dralloc.server.http.access_requests import FieldTerm, read_field_terms

# --- labels -------------------------------------------------------------------------------------------------


class LabelOperator(Enum):
    EXISTS = "exists"
    DOES_NOT_EXIST = "!"
    EQUALS = "="
    NOT_EQUALS = "!="
    IN = "in"
    NOT_IN = "notin"
    GREATER = ">"
    LESS = "<"


@dataclass(frozen=True, slots=True)
class LabelRequirement:
    key: str
    operator: LabelOperator
    values: frozenset[str] = frozenset()

    def matches(self, value: str | None) -> bool:
        """True if an object whose label has this value, or that lacks the label, matches."""
        match self.operator:
            case LabelOperator.EXISTS:
                return value is not None
            case LabelOperator.DOES_NOT_EXIST:
                return value is None
            case LabelOperator.EQUALS | LabelOperator.IN:
                return value in self.values
            case LabelOperator.NOT_EQUALS | LabelOperator.NOT_IN:
                return value not in self.values
        number, (limit,) = _integer(value or ""), map(_integer, self.values)
        assert limit is not None, "the value of a comparison was checked"
        return number is not None and (number > limit if self.operator is LabelOperator.GREATER else number < limit)


@dataclass(frozen=True, slots=True)
class LabelQuery:
    """Requirements on labels, all of which must match."""

    requirements: tuple[LabelRequirement, ...] = ()

    def matches(self, labels: Mapping[str, str] | None) -> bool:
        present = labels or {}
        return all(requirement.matches(present.get(requirement.key)) for requirement in self.requirements)


def parse_label_selector(text: str) -> LabelQuery:
    """Parse a `labelSelector` parameter, such as `app=a,tier in (x, y),!old`."""
    return LabelQuery(tuple(_LabelParser(text).requirements()))


_TOKEN: Final = re.compile(r"!=|==|[=!(),<>]|[^\s=!(),<>]+")
_OPERATORS: Final = {
    "=": LabelOperator.EQUALS,
    "==": LabelOperator.EQUALS,
    "!=": LabelOperator.NOT_EQUALS,
    "in": LabelOperator.IN,
    "notin": LabelOperator.NOT_IN,
    ">": LabelOperator.GREATER,
    "<": LabelOperator.LESS,
}


class _LabelParser:
    """Reads requirements from left to right. The end of the text is an empty token."""

    def __init__(self, text: str) -> None:
        self._tokens: list[str] = [*_TOKEN.findall(text), ""]
        self._place = 0

    def requirements(self) -> Iterator[LabelRequirement]:
        if not self._next:
            return
        while True:
            yield _checked(self._requirement())
            if not self._next:
                return
            self._expect(",", "',' or 'end of string'")
            if not (_is_word(self._next) or self._next == "!"):
                raise self._unexpected("identifier after ','")

    def _requirement(self) -> LabelRequirement:
        absent = self._accept("!")
        key = self._word("!, identifier, or 'end of string'")
        if absent:
            return LabelRequirement(key, LabelOperator.DOES_NOT_EXIST)
        if self._next in ("", ","):
            return LabelRequirement(key, LabelOperator.EXISTS)
        operator = _OPERATORS.get(self._next)
        if operator is None:
            raise self._unexpected("'=', '!=', '==', 'in', notin'")
        self._place += 1
        if operator in (LabelOperator.IN, LabelOperator.NOT_IN):
            return LabelRequirement(key, operator, self._listed_values())
        value = "" if self._next in ("", ",") else self._word("identifier")
        return LabelRequirement(key, operator, frozenset({value}))

    def _listed_values(self) -> frozenset[str]:
        """Values in parentheses; nothing between two separators is the empty value."""
        self._expect("(", "'('")
        values: set[str] = set()
        while True:
            if _is_word(self._next):
                values.add(self._word("identifier"))
            elif self._next in (",", ")"):
                values.add("")
            else:
                raise self._unexpected("',', ')' or identifier")
            if self._accept(")"):
                return frozenset(values)
            self._expect(",", "',' or ')'")

    @property
    def _next(self) -> str:
        return self._tokens[self._place]

    def _accept(self, token: str) -> bool:
        if self._next != token:
            return False
        self._place += 1
        return True

    def _expect(self, token: str, expected: str) -> None:
        if not self._accept(token):
            raise self._unexpected(expected)

    def _word(self, expected: str) -> str:
        word = self._next
        if not _is_word(word):
            raise self._unexpected(expected)
        self._place += 1
        return word

    def _unexpected(self, expected: str) -> BadRequest:
        return BadRequest(f"unable to parse requirement: found '{self._next}', expected: {expected}")


def _is_word(token: str) -> bool:
    return token != "" and token[0] not in "=!(),<>"


def _checked(requirement: LabelRequirement) -> LabelRequirement:
    if faults := label_key(requirement.key):
        raise BadRequest(f'unable to parse requirement: key: Invalid value: "{requirement.key}": {"; ".join(faults)}')
    for value in sorted(requirement.values):
        if faults := label_value(value):
            raise BadRequest(f'unable to parse requirement: values: Invalid value: "{value}": {"; ".join(faults)}')
        if requirement.operator in (LabelOperator.GREATER, LabelOperator.LESS) and _integer(value) is None:
            raise BadRequest(
                f"unable to parse requirement: values: Invalid value: \"{value}\": for 'Gt', 'Lt' operators, the value must be an integer"
            )
    return requirement


def _integer(text: str) -> int | None:
    return int(text) if len(text) < 20 and re.fullmatch(r"[+-]?[0-9]+", text) else None


# --- fields -------------------------------------------------------------------------------------------------

FieldGetter = Callable[[Document], str]


class FieldQuery:
    """Terms on fields, all of which must match."""

    __slots__ = ("_terms",)

    def __init__(self, terms: Sequence[tuple[FieldTerm, FieldGetter]]) -> None:
        self._terms = terms

    @property
    def fields(self) -> frozenset[str]:
        """The fields that terms are about."""
        return frozenset(term.field for term, _ in self._terms)

    def matches(self, document: Document) -> bool:
        return all((get(document) == term.value) is not term.negated for term, get in self._terms)

    def exact(self, field: str) -> str | None:
        """A value that the field must have, or `None`; lets callers look up a key directly."""
        return next((term.value for term, _ in self._terms if term.field == field and not term.negated), None)


def parse_field_selector(text: str, group: str, kind: str) -> FieldQuery:
    """Parse a kind's `fieldSelector` parameter, such as `spec.nodeName=n1,status.phase!=Failed`."""
    fields = _FIELDS.get((group, kind), _METADATA_FIELDS)
    terms: list[tuple[FieldTerm, FieldGetter]] = []
    for term in read_field_terms(text):
        get = fields.get(term.field)
        if get is None:
            raise BadRequest(_not_supported(term.field, fields, kind))
        terms.append((term, get))
    return FieldQuery(terms)


def _not_supported(field: str, fields: Mapping[str, FieldGetter], kind: str) -> str:
    if fields is _METADATA_FIELDS:
        return f'"{field}" is not a known field selector: only "metadata.name", "metadata.namespace"'
    return f"field label not supported for {kind}: {field} (supported: {', '.join(sorted(fields))})"


def _at(*path: str, absent: str = "") -> FieldGetter:
    """A function that returns the value at a path as text."""

    def get(document: Document) -> str:
        value: Any = document
        for step in path:
            value = value.get(step) if isinstance(value, dict) else None
        if value is None:
            return absent
        if isinstance(value, bool):
            return "true" if value else "false"
        return str(value)

    return get


def _event_source(document: Document) -> str:
    return _at("source", "component")(document) or _at("reportingComponent")(document)


_METADATA_FIELDS: Final[Mapping[str, FieldGetter]] = {
    "metadata.name": _at("metadata", "name"),
    "metadata.namespace": _at("metadata", "namespace"),
}


def _plain(*fields: str) -> dict[str, FieldGetter]:
    return {**_METADATA_FIELDS, **{field: _at(*field.split(".")) for field in fields}}


# Kubernetes' selectable fields of kinds that have more than name and namespace.
_FIELDS: Final[Mapping[tuple[str, str], Mapping[str, FieldGetter]]] = {
    ("resource.k8s.io", "ResourceSlice"): _plain("spec.nodeName", "spec.driver", "spec.pool.name"),
    ("", "Pod"): {
        **_plain(
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "status.phase",
            "status.podIP",
            "status.nominatedNodeName",
        ),
        "spec.hostNetwork": _at("spec", "hostNetwork", absent="false"),
    },
    ("", "Node"): {**_METADATA_FIELDS, "spec.unschedulable": _at("spec", "unschedulable", absent="false")},
    ("", "Namespace"): _plain("status.phase"),
    ("", "Event"): {
        **_plain(
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "type",
        ),
        "source": _event_source,
    },
    # Stored as core events.
    ("events.k8s.io", "Event"): {
        **_METADATA_FIELDS,
        **{
            f"regarding.{name}": _at("involvedObject", name)
            for name in ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
        },
        "reason": _at("reason"),
        "reportingController": _event_source,
        "type": _at("type"),
    },
    ("apps", "ReplicaSet"): {**_METADATA_FIELDS, "status.replicas": _at("status", "replicas", absent="0")},
    ("", "ReplicationController"): {**_METADATA_FIELDS, "status.replicas": _at("status", "replicas", absent="0")},
    ("certificates.k8s.io", "PodCertificateRequest"): _plain("spec.signerName", "spec.podName", "spec.nodeName"),
    ("", "Secret"): _plain("type"),
    ("", "Service"): _plain("spec.clusterIP", "spec.type"),
    ("batch", "Job"): {**_METADATA_FIELDS, "status.successful": _at("status", "succeeded", absent="0")},
}
