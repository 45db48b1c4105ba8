"""Objects on their way to a server: where each belongs, and what became of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from dralloc.cli.manifest_records import ManifestRecord
from dralloc.cli.object_printer import objects_in
from dralloc.cli.output import FINDINGS, fail, paint, say
from dralloc.cli.server_objects import Document, Target
from dralloc.client.api_calls import PatchType
from dralloc.client.discovery import Discovery, UnknownKind
from dralloc.client.status_errors import send_request
from dralloc.client.transport import Transport
from dralloc.primitives.decoders import UNREADABLE
from dralloc.primitives.errors import ApiError, Conflict, NotFound
from dralloc.primitives.quantity import Quantity

FIELD_MANAGER: Final = "dralloc"
# How a server says that a field cannot be changed.
IMMUTABLE: Final = "field is immutable"
# What can become of an object, and the colour of it.
OUTCOMES: Final = {"created": "green", "configured": "yellow", "unchanged": "white"}


@dataclass(frozen=True, slots=True)
class Wanted:
    """An object of a manifest, and where it belongs."""

    target: Target
    body: bytes

    @property
    def called(self) -> str:
        return self.target.called(self.target.name)


class _Metadata(msgspec.Struct, rename="camel"):
    name: str = ""
    generate_name: str = ""
    namespace: str = ""


class _Head(msgspec.Struct):
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)


class _WithStatus(msgspec.Struct):
    status: Any = None


_HEAD: Final = msgspec.json.Decoder(_Head)
_STATUS: Final = msgspec.json.Decoder(_WithStatus)


def in_order(discovery: Discovery, records: Iterable[ManifestRecord], namespace: str) -> list[Wanted]:
    """Where each object belongs, namespaces first. Ends the command where that cannot be told."""
    wanted = [_wanted(discovery, record, namespace) for record in records]
    # The sort is stable: everything else stays in the order of the files.
    return sorted(wanted, key=lambda each: each.target.resource.full_name != "namespaces")


def _wanted(discovery: Discovery, record: ManifestRecord, namespace: str) -> Wanted:
    try:
        resource = discovery.of_kind(record.api_version, record.kind)
        metadata = _HEAD.decode(record.body).metadata
    except UnknownKind as error:
        fail(f"{record.file}: {error}; nothing was sent")
    except UNREADABLE as error:
        fail(f"{record.file}: {record.kind}: {error}; nothing was sent")
    if not metadata.name and metadata.generate_name:
        fail(
            f"{record.file}: a {record.kind} has metadata.generateName and no metadata.name, and so it is another object each time: "
            "give it a name, or use kubectl create; nothing was sent",
            FINDINGS,
        )
    if not metadata.name:
        fail(f"{record.file}: a {record.kind} has no metadata.name; nothing was sent")
    place = (metadata.namespace or namespace) if resource.namespaced else ""
    return Wanted(Target(resource, place, metadata.name), record.body)


@dataclass(frozen=True, slots=True)
class Applied:
    """An object as the server has it now, or why it refused it."""

    subject: str
    body: bytes = b""
    refusal: str = ""
    # The kind, if the server ignored the status in the manifest.
    without_status: str = ""


class ObjectApplier:
    """Applies objects one after the other, and tells what became of each."""

    def __init__(self, transport: Transport, *, is_dry: bool, is_forced: bool, warned: frozenset[str]) -> None:
        self._transport = transport
        self._is_dry = is_dry
        self._is_forced = is_forced
        self._warned = warned

    async def apply(self, wanted: Wanted, *, tell: bool) -> Applied:
        """What became of the object; that it was refused is told in any case."""
        before: Document | None = None
        try:
            before = await self._stored(wanted.target)
            answer = await self._send(wanted)
        except ApiError as error:
            reason = f"{error}{_hint(error, wanted, before)}"
            say(f"{wanted.called} {paint('refused', 'red')}: {reason}", err=True)
            return Applied(wanted.called, refusal=reason)
        if tell:
            outcome = _outcome(answer, before)
            say(f"{wanted.called} {paint(outcome, OUTCOMES[outcome])}{' (dry run)' if self._is_dry else ''}")
        body = next(objects_in(wanted.target, answer))
        return Applied(wanted.called, body, without_status=self._without_status(wanted, body, before))

    def _without_status(self, wanted: Wanted, body: bytes, before: Document | None) -> str:
        stated, stored = _STATUS.decode(wanted.body).status, _STATUS.decode(body).status
        kind = wanted.target.resource.kind
        if kind != "Node":
            return kind if is_left_out(stated, stored) else ""
        if differences := list(node_differences(stated, stored)):
            why = "a server takes the status of a new node only" if before else "the server did not take the status"
            lines = (*told(differences), *([_anew(wanted.target)] if before else []))
            say("\n  ".join((f"warning: {wanted.called}: {why}", *lines)), err=True)
        return ""

    async def _send(self, wanted: Wanted) -> bytes:
        query = {"fieldManager": FIELD_MANAGER, "fieldValidation": "Strict"}
        query |= {"force": "true"} if self._is_forced else {}
        query |= {"dryRun": "All"} if self._is_dry else {}
        headers = {"Content-Type": PatchType.APPLY.value}
        answer = await send_request(
            self._transport, "PATCH", wanted.target.path, query, body=wanted.body, headers=headers
        )
        for warning in answer.warnings:
            if not any(told in warning for told in self._warned):
                say(f"warning: {wanted.called}: {warning}", err=True)
        return answer.body

    async def _stored(self, target: Target) -> Document | None:
        try:
            return _content((await send_request(self._transport, "GET", target.path)).body)
        except NotFound:
            return None


def _outcome(answer: bytes, before: Document | None) -> str:
    if before is None:
        return "created"
    return "unchanged" if _content(answer) == before else "configured"


def _hint(error: ApiError, wanted: Wanted, before: Document | None) -> str:
    """What more there is to know about a refusal, and to do about it."""
    if isinstance(error, Conflict):
        return "; use --force-conflicts to take them over"
    fixed = [cause.field for cause in error.details.causes if IMMUTABLE in cause.message] if error.details else []
    if not fixed or before is None:
        return ""
    stated = msgspec.json.decode(wanted.body)
    differences = [each for field in fixed for each in find_differences(before, stated, tuple(field.split(".")))]
    return "".join(f"\n  {line}" for line in (*told(differences), _anew(wanted.target)))


def _anew(target: Target) -> str:
    place = f" -n {target.namespace}" if target.namespace else ""
    return f"to replace it: dralloc delete {target.resource.plural} {target.name}{place}, then apply again"


def _content(body: bytes) -> Document:
    """The object without what a server counts and notes for itself."""
    document: Document = msgspec.json.decode(body)
    for name in ("managedFields", "resourceVersion", "generation"):
        document["metadata"].pop(name, None)
    return document


# --- Differences ----------------------------------------------------------------------------------------------------
# In what a manifest differs from the object that a server has: for refusals that say no more than that it must not.


Steps = tuple[str | int, ...]

SHOWN_MAX: Final = 5
SHOWN_LENGTH_MAX: Final = 60


class _Absent:
    """Stands where one side says nothing."""


ABSENT: Final = _Absent()


@dataclass(frozen=True, slots=True)
class Difference:
    steps: Steps
    stored: Any
    stated: Any

    def __str__(self) -> str:
        path = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in self.steps).removeprefix(".")
        if self.stored is ABSENT:
            return f"{path} is not there, and cannot become {_shown(self.stated)}"
        if self.stated is ABSENT:
            return f"{path} is {_shown(self.stored)}, and the manifest leaves it out"
        return f"{path} is {_shown(self.stored)}, and cannot become {_shown(self.stated)}"


def find_differences(stored: Any, stated: Any, within: Steps = ()) -> list[Difference]:
    """Where the manifest says something else. What it leaves out counts only if that is all: a server fills in defaults."""
    found = list(_walk(_at(stored, within), _at(stated, within), within))
    return [each for each in found if each.stated is not ABSENT] or found


def told(differences: Sequence[Difference | str]) -> Iterator[str]:
    """The first few in words, and how many more there are."""
    yield from map(str, differences[:SHOWN_MAX])
    if (more := len(differences) - SHOWN_MAX) > 0:
        yield f"and {more} more"


def _walk(stored: Any, stated: Any, within: Steps) -> Iterator[Difference]:
    pending = [(stored, stated, within)]
    while pending:
        one, other, steps = pending.pop()
        if isinstance(one, dict) and isinstance(other, dict):
            names = [*other, *(name for name in one if name not in other)]
            pairs = [(one.get(name, ABSENT), other.get(name, ABSENT), (*steps, name)) for name in names]
        elif isinstance(one, list) and isinstance(other, list):
            indices = range(max(len(one), len(other)))
            pairs = [(_item(one, index), _item(other, index), (*steps, index)) for index in indices]
        else:
            pairs = []
            if one != other:
                yield Difference(steps, one, other)
        pending.extend(reversed(pairs))


def _item(values: list[Any], index: int) -> Any:
    return values[index] if index < len(values) else ABSENT


def _at(document: Any, steps: Steps) -> Any:
    for step in steps:
        document = document.get(step, ABSENT) if isinstance(document, dict) else ABSENT
    return document


def _shown(value: Any) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= SHOWN_LENGTH_MAX else f"{text[:SHOWN_LENGTH_MAX]}…"


# --- Stated status --------------------------------------------------------------------------------------------------
# What a server did not take of the status in a manifest.
#
# As in Kubernetes, a new node keeps it, because a node describes itself: that is how a manifest says what a
# simulated node has. Everything else of a status is written by the components of a cluster, so a server ignores it
# in what users send, and says nothing.


# What users state of a node; the rest is the node's own report.
_AMOUNTS: Final = ("capacity", "allocatable")


def node_differences(stated: Any, stored: Any) -> Iterator[str]:
    """The amounts of a node that are not those of its manifest."""
    for member in _AMOUNTS:
        had = _members(_members(stored).get(member))
        for name, amount in _members(_members(stated).get(member)).items():
            if not _is_same_amount(amount, had.get(name)):
                yield f"status.{member}.{name} is {had.get(name, 'not there')}, and not {amount}"


def is_left_out(stated: Any, stored: Any) -> bool:
    """True if the server has something else than the manifest states. A manifest without a status states nothing."""
    pending = [(_members(stated), stored)]
    while pending:
        one, other = pending.pop()
        if isinstance(one, dict) and (isinstance(other, dict) or not one):
            pending.extend((value, _members(other).get(name)) for name, value in one.items())
        elif one != other:
            return True
    return False


def sentence(kinds: Iterable[str]) -> str:
    """Of which kinds, and of how many objects, the status was left out; empty for none."""
    counted = ", ".join(f"{kind} ({count})" if count > 1 else kind for kind, count in Counter(kinds).items())
    return f"the status of {counted} was not applied: components write it, not manifests" if counted else ""


def _members(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _is_same_amount(one: Any, other: Any) -> bool:
    try:
        return Quantity.parse(str(one)) == Quantity.parse(str(other))
    except ValueError:
        return bool(one == other)
