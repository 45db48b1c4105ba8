"""Label and field selectors of lists, watches and collection deletions."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

from dralloc.primitives.errors import BadRequest
from dralloc.primitives.names import label_key, label_value
from dralloc.server.documents.json_documents import Document
from dralloc.server.http.access_requests import read_field_terms

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


@dataclass(slots=True)
class _KeyRule:
    """All requirements on one key, so that a key is looked at once, whatever the number of requirements."""

    # Without the key, an object does not match.
    is_required: bool = False
    is_forbidden: bool = False
    allowed: frozenset[str] | None = None
    excluded: set[str] = field(default_factory=set)
    above: int | None = None
    below: int | None = None

    def add(self, requirement: LabelRequirement) -> None:
        operator, values = requirement.operator, requirement.values
        self.is_required |= operator not in (
            LabelOperator.DOES_NOT_EXIST,
            LabelOperator.NOT_EQUALS,
            LabelOperator.NOT_IN,
        )
        match operator:
            case LabelOperator.EXISTS:
                pass
            case LabelOperator.DOES_NOT_EXIST:
                self.is_forbidden = True
            case LabelOperator.EQUALS | LabelOperator.IN:
                self.allowed = values if self.allowed is None else self.allowed & values
            case LabelOperator.NOT_EQUALS | LabelOperator.NOT_IN:
                self.excluded |= values
            case LabelOperator.GREATER:
                limit = _limit(values)
                self.above = limit if self.above is None else max(self.above, limit)
            case LabelOperator.LESS:
                limit = _limit(values)
                self.below = limit if self.below is None else min(self.below, limit)

    def takes(self, value: str) -> bool:
        """True if an object whose label has this value matches."""
        if self.is_forbidden or value in self.excluded or (self.allowed is not None and value not in self.allowed):
            return False
        if self.above is None and self.below is None:
            return True
        number = _integer(value)
        return (
            number is not None
            and (self.above is None or number > self.above)
            and (self.below is None or number < self.below)
        )


class LabelQuery:
    """Requirements on labels, all of which must match."""

    __slots__ = ("_required", "_rules", "requirements")

    def __init__(self, requirements: tuple[LabelRequirement, ...] = ()) -> None:
        self.requirements = requirements
        self._rules: dict[str, _KeyRule] = {}
        for requirement in requirements:
            self._rules.setdefault(requirement.key, _KeyRule()).add(requirement)
        self._required = frozenset(key for key, rule in self._rules.items() if rule.is_required)

    def matches(self, labels: Mapping[str, str] | None) -> bool:
        """Takes a time that depends on the labels, not on the requirements, of which a request may have thousands."""
        present = labels or {}
        if len(self._required) > len(present) or not self._required <= present.keys():
            return False
        if len(present) < len(self._rules):
            return all(key not in self._rules or self._rules[key].takes(value) for key, value in present.items())
        return all(key not in present or rule.takes(present[key]) for key, rule in self._rules.items())


def parse_label_selector(text: str) -> LabelQuery:
    """Parse a `labelSelector` parameter, such as `app=a,tier in (x, y),!old`."""
    return LabelQuery(tuple(_LabelParser(text).requirements()))


# Nothing optional before a token: spaces at the end would be tried from each of them on, a megabyte for hours.
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


def _limit(values: frozenset[str]) -> int:
    (limit,) = map(_integer, values)
    assert limit is not None, "the value of a comparison was checked"
    return limit


def _integer(text: str) -> int | None:
    return int(text) if len(text) < 20 and re.fullmatch(r"[+-]?[0-9]+", text) else None


# --- fields -------------------------------------------------------------------------------------------------

FieldGetter = Callable[[Document], str]


@dataclass(slots=True)
class _FieldRule:
    """All terms on one field, so that it is read once, whatever the number of terms."""

    get: FieldGetter
    wanted: set[str] = field(default_factory=set)
    excluded: set[str] = field(default_factory=set)

    def matches(self, document: Document) -> bool:
        value = self.get(document)
        return value not in self.excluded and not (self.wanted and self.wanted != {value})


class FieldQuery:
    """Terms on fields, all of which must match."""

    __slots__ = ("_rules",)

    def __init__(self, rules: dict[str, _FieldRule]) -> None:
        self._rules = rules

    @property
    def fields(self) -> Collection[str]:
        """The fields that terms are about."""
        return self._rules.keys()

    def matches(self, document: Document) -> bool:
        return all(rule.matches(document) for rule in self._rules.values())

    def exact(self, field: str) -> str | None:
        """A value that the field must have, or `None`; lets callers look up a key directly."""
        rule = self._rules.get(field)
        return next(iter(rule.wanted), None) if rule is not None else None


def parse_field_selector(text: str, group: str, kind: str) -> FieldQuery:
    """Parse a kind's `fieldSelector` parameter, such as `spec.nodeName=n1,status.phase!=Failed`."""
    fields = _FIELDS.get((group, kind), _METADATA_FIELDS)
    rules: dict[str, _FieldRule] = {}
    for term in read_field_terms(text):
        get = fields.get(term.field)
        if get is None:
            raise BadRequest(_not_supported(term.field, fields, kind))
        rule = rules.setdefault(term.field, _FieldRule(get))
        (rule.excluded if term.negated else rule.wanted).add(term.value)
    return FieldQuery(rules)


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
