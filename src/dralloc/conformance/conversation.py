"""Replays a recorded conversation with an API server, step by step, and reports where its answers differ.

Each step names what to compare (`compare`): the whole answer, the Status, the Table, or the code alone. `"<any>"`
matches any server-generated value.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from dralloc.conformance.server_connection import ServerAnswer, connect
from dralloc.conformance.vector_family import BadVectors, VectorOptions, VectorVerdict
from dralloc.primitives.decoders import UNREADABLE

ANY: Final = "<any>"
# The recorded server has an alpha version that is not served here.
NOT_SERVED: Final = "v1alpha3"

_REVISION_OF_STEP: Final = re.compile(r"\{rv:([^}]*)\}")


class ConversationStep(msgspec.Struct, frozen=True, rename="camel"):
    """One request and its recorded answer."""

    name: str
    method: str
    path: str
    code: int
    compare: str
    headers: dict[str, str] = {}
    body: Any = None
    content_type: str = ""
    warnings: tuple[str, ...] = ()
    response: Any = None


class Conversation:
    """The family whose lines are the steps of one conversation."""

    def run(self, lines: Iterable[bytes], options: VectorOptions) -> Iterator[VectorVerdict]:
        """Yields one verdict for each step. Steps depend on each other, so the server must be empty at the start."""
        steps = read_steps(lines)
        with connect(options) as connection:
            revisions: dict[str, str] = {}
            for step in steps:
                answer = connection.send(step.method, *_request(step, revisions))
                if isinstance(document := answer.document, dict):
                    revisions[step.name] = (document.get("metadata") or {}).get("resourceVersion", "")
                yield VectorVerdict(step.name, tuple(differences_of(step, answer)))


FAMILY: Final = Conversation()


def read_steps(lines: Iterable[bytes]) -> list[ConversationStep]:
    decoder = msgspec.json.Decoder(ConversationStep)
    try:
        return [decoder.decode(line) for line in lines]
    except UNREADABLE as error:
        raise BadVectors(str(error)) from None


def _request(step: ConversationStep, revisions: Mapping[str, str]) -> tuple[str, dict[str, str], bytes | None]:
    def revision(match: re.Match[str]) -> str:
        return revisions.get(match[1], match[0])

    headers = dict(step.headers)
    if step.body is None:
        return step.path, headers, None
    text = step.body if isinstance(step.body, str) else msgspec.json.encode(step.body).decode()
    headers.setdefault("Content-Type", "application/json")
    return step.path, headers, _REVISION_OF_STEP.sub(revision, text).encode()


def differences_of(step: ConversationStep, answer: ServerAnswer) -> Iterator[str]:
    """Yields all differences that the step compares."""
    if answer.code != step.code:
        yield f"code: expected {step.code}, got {answer.code}: {answer.body[:300].decode(errors='replace')}"
        return
    if step.content_type and answer.content_type != step.content_type:
        yield f"content type: expected {step.content_type}, got {answer.content_type}"
    if step.warnings != answer.warnings:
        yield f"warnings: expected {list(step.warnings)}, got {list(answer.warnings)}"
    match step.compare:
        case "code":
            return
        case "exact":
            yield from compare_values("", _served_here(step.response), _comparable(answer.document))
        case "status":
            yield from _compare_status(step.response, answer.document)
        case "table":
            yield from _compare_table(step.response, answer.document)
        case unknown:
            yield f"unknown comparison {unknown!r}"


def compare_values(path: str, expected: Any, got: Any) -> Iterator[str]:
    """Yields every difference between two JSON values."""
    if expected == ANY and got is not None:
        return
    if isinstance(expected, dict) and isinstance(got, dict):
        for name in [*expected, *(name for name in got if name not in expected)]:
            if name not in got:
                yield f"{path}.{name}: expected {_shown(expected[name])}, got nothing"
            elif name not in expected:
                yield f"{path}.{name}: expected nothing, got {_shown(got[name])}"
            else:
                yield from compare_values(f"{path}.{name}", expected[name], got[name])
    elif isinstance(expected, list) and isinstance(got, list) and len(expected) == len(got):
        for index, (one, other) in enumerate(zip(expected, got, strict=True)):
            yield from compare_values(f"{path}[{index}]", one, other)
    elif type(expected) is not type(got) or expected != got:
        yield f"{path or 'answer'}: expected {_shown(expected)}, got {_shown(got)}"


def _comparable(document: Any) -> Any:
    """Returns the answer without managedFields, which recorded answers omit."""
    if isinstance(document, list):
        return [_comparable(item) for item in document]
    if not isinstance(document, dict):
        return document
    return {name: _comparable(value) for name, value in document.items() if name != "managedFields"}


def _served_here(expected: Any) -> Any:
    if isinstance(expected, dict) and expected.get("kind") == "APIGroup":
        versions = [version for version in expected["versions"] if version["version"] != NOT_SERVED]
        return {**expected, "versions": versions}
    return expected


def _compare_status(expected: Mapping[str, Any], got: Any) -> Iterator[str]:
    if not isinstance(got, dict):
        yield f"expected a {expected['kind']}, got {_shown(got)}"
        return
    if got.get("kind") != expected["kind"]:
        yield f"kind: expected {expected['kind']}, got {got.get('kind')}"
    if (got.get("reason") or None) != expected["reason"]:
        yield f"reason: expected {expected['reason']}, got {got.get('reason')}"
    causes = sorted(
        [cause.get("reason", ""), cause.get("field", "")] for cause in (got.get("details") or {}).get("causes") or []
    )
    if causes != expected["causes"]:
        yield f"causes: expected {expected['causes']}, got {causes}"


def _compare_table(expected: Mapping[str, Any], got: Any) -> Iterator[str]:
    if not isinstance(got, dict) or got.get("kind") != "Table":
        yield f"expected a Table, got {_shown(got)}"
        return
    columns = [column["name"] for column in got["columnDefinitions"]]
    missing = [name for name in expected["columns"] if name not in columns]
    if missing:
        yield f"columns: {missing} missing in {columns}"
        return
    positions = [columns.index(name) for name in expected["columns"]]
    rows = [[row["cells"][position] for position in positions] for row in got["rows"]]
    yield from compare_values("rows", expected["rows"], rows)


def _shown(value: Any) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= 200 else text[:200] + "…"
