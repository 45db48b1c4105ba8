"""Recorded requests of many users, sent to a server: the objects of each case are deleted after it.

The users get tokens in the server's token file (`--token-file`), because requests that impersonate need a credential of their own. Without that file, the
administrator impersonates them where the answer is the same.
"""

from __future__ import annotations

import csv
import os
import re
import secrets
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlsplit

import msgspec

from dralloc.conformance.conversation import compare_values
from dralloc.conformance.server_connection import CannotConnect, ServerAnswer, ServerConnection, connect
from dralloc.conformance.vector_family import VectorOptions, VectorVerdict

NAMESPACES: Final = ("ns1", "ns2", "ns3")
# A server reads its token file again within this time.
TOKENS_ACCEPTED_WITHIN_S: Final = 30.0

Headers = list[tuple[str, str]]

_UID_OF: Final = re.compile(r"\$uid:([^\"]+)")
_ANY_UID: Final = "<uid>"


class RecordedUser(msgspec.Struct, frozen=True):
    user: str
    uid: str = ""
    groups: tuple[str, ...] = ()


class RecordedRequest(msgspec.Struct, frozen=True, rename="camel"):
    """One request and, except in a setup, the answer to it."""

    method: str
    path: str
    code: int = 0
    # `None`: no valid credential.
    as_user: RecordedUser | None = msgspec.field(name="as", default=None)
    bearer: str = ""
    headers: Headers = []
    body: Any = None
    content_type: str = ""
    response: Any = None
    response_headers: dict[str, str] = {}
    message_unstable: bool = False

    @property
    def impersonates(self) -> bool:
        return any(name.lower().startswith("impersonate-") for name, _ in self.headers)

    @property
    def collection(self) -> str:
        """The URL path of all objects of the resource, in all namespaces."""
        parts = urlsplit(self.path).path.strip("/").split("/")
        head, rest = (parts[:2], parts[2:]) if parts[0] == "api" else (parts[:3], parts[3:])
        if rest[:1] == ["namespaces"] and len(rest) > 2:
            rest = rest[2:]
        return "/" + "/".join([*head, *rest[:1]])


class AccessCase(msgspec.Struct, frozen=True):
    case: str
    setup: tuple[RecordedRequest, ...]
    requests: tuple[RecordedRequest, ...]


def run_cases(cases: Sequence[AccessCase], options: VectorOptions) -> Iterator[VectorVerdict]:
    """Yields one verdict for each case. The server has no objects but its own at the start, and no controllers that change them."""
    with connect(options) as connection, _tokens(cases, options.token_file, connection) as tokens:
        for name in NAMESPACES:
            connection.send("POST", "/api/v1/namespaces", _JSON, msgspec.json.encode({"metadata": {"name": name}}))
        baseline: dict[str, _Objects] = {}
        for case in cases:
            touched = {sent.collection for sent in (*case.setup, *case.requests) if sent.method not in ("GET", "HEAD")}
            for path in touched - baseline.keys():
                baseline[path] = _list(connection, path)
            try:
                yield VectorVerdict(case.case, tuple(_differences(case, connection, tokens)))
            finally:
                for path in touched:
                    _restore(connection, path, baseline[path])


def _differences(
    case: AccessCase, connection: ServerConnection, tokens: Mapping[RecordedUser, str] | None
) -> Iterator[str]:
    for prepared in case.setup:
        answer = connection.send(prepared.method, prepared.path, _media_type(prepared), _body(prepared, connection))
        if answer.code >= 300:
            yield f"the setup was refused: {prepared.method} {prepared.path}: {answer.body.decode(errors='replace')}"
            return
    for number, request in enumerate(case.requests, start=1):
        if request.as_user is not None and tokens is None and request.impersonates:
            yield f"request {number} impersonates: its user needs a token of its own (--token-file)"
            return
        headers = [*_media_type(request), *_credential(request, tokens), *request.headers]
        body = _body(request, connection)
        is_anonymous = request.as_user is None
        answer = connection.send(request.method, request.path, headers, body, with_token=not is_anonymous)
        about = f"request {number}, {request.method} {request.path}"
        yield from (f"{about}: {difference}" for difference in _compare_answer(request, answer))


# --- The request -------------------------------------------------------------------------------------------------


_JSON: Final = [("Content-Type", "application/json")]


def _media_type(request: RecordedRequest) -> Headers:
    if request.body is None:
        return []
    return [("Content-Type", request.content_type)] if request.content_type else _JSON


def _credential(request: RecordedRequest, tokens: Mapping[RecordedUser, str] | None) -> Headers:
    if request.as_user is None:
        return [("Authorization", f"Bearer {request.bearer}")] if request.bearer else []
    if tokens is not None:
        return [("Authorization", f"Bearer {tokens[request.as_user]}")]
    user = request.as_user
    uid = [("Impersonate-Uid", user.uid)] if user.uid else []
    return [("Impersonate-User", user.user), *uid, *(("Impersonate-Group", group) for group in user.groups)]


def _body(request: RecordedRequest, connection: ServerConnection) -> bytes | None:
    """The body, with the UIDs of the objects that it names."""

    def uid(match: re.Match[str]) -> str:
        document = connection.send("GET", match[1], [], None).document
        return str(document["metadata"]["uid"])

    if request.body is None:
        return None
    text = request.body if isinstance(request.body, str) else msgspec.json.encode(request.body).decode()
    return _UID_OF.sub(uid, text).encode()


@contextmanager
def _tokens(
    cases: Iterable[AccessCase], file: Path | None, connection: ServerConnection
) -> Iterator[Mapping[RecordedUser, str] | None]:
    """Gives every recorded user a token while the cases run."""
    if file is None:
        yield None
        return
    before = file.read_text() if file.exists() else ""
    known = {
        RecordedUser(row[1], row[2], tuple(row[3].split(","))): row[0]
        for row in csv.reader(before.splitlines())
        if len(row) > 3
    }
    users = {request.as_user for case in cases for request in case.requests if request.as_user is not None}
    new = {user: secrets.token_urlsafe() for user in users - known.keys()}
    rows = [f'{token},{user.user},{user.uid},"{",".join(user.groups)}"\n' for user, token in new.items()]
    try:
        if rows:
            _write(file, before + "".join(rows))
            _wait_until_accepted(next(iter(new.values())), file, connection)
        yield known | new
    finally:
        if rows:
            _write(file, before)


def _write(file: Path, content: str) -> None:
    """Replace the file at once, so that the server never reads half of it."""
    new = file.with_name(f"{file.name}.new")
    new.touch(mode=0o600)
    new.write_text(content)
    os.replace(new, file)


def _wait_until_accepted(token: str, file: Path, connection: ServerConnection) -> None:
    deadline = time.monotonic() + TOKENS_ACCEPTED_WITHIN_S
    while connection.send("GET", "/apis", [("Authorization", f"Bearer {token}")], None).code == 401:
        if time.monotonic() > deadline:
            raise CannotConnect(f"the server does not accept the tokens in {file}: is it the server's token file?")
        time.sleep(0.1)


# --- The answer --------------------------------------------------------------------------------------------------


def _compare_answer(request: RecordedRequest, answer: ServerAnswer) -> Iterator[str]:
    if answer.code != request.code:
        yield f"code: expected {request.code}, got {answer.code}: {answer.body[:600].decode(errors='replace')}"
        return
    for name, value in request.response_headers.items():
        if answer.headers.get(name) != value:
            yield f"header {name}: expected {value}, got {answer.headers.get(name)}"
    expected = request.response
    if isinstance(expected, str):
        yield from compare_values("", expected, answer.body.decode(errors="replace"))
    elif expected is not None and answer.code >= 400:
        yield from _compare_status(expected, answer.document, is_message_stable=not request.message_unstable)
    elif expected is not None:
        yield from _compare_chosen("", expected, answer.document)


def _compare_status(expected: Mapping[str, Any], got: Any, *, is_message_stable: bool) -> Iterator[str]:
    if not isinstance(got, dict):
        yield f"expected a Status, got {got!r}"
    elif not is_message_stable:
        yield from compare_values(".reason", expected.get("reason"), got.get("reason"))
    else:
        message, recorded = got.get("message", ""), str(expected.get("message", ""))
        pattern = re.escape(recorded).replace(re.escape(_ANY_UID), "[0-9a-f-]{36}")
        if re.fullmatch(pattern, message, re.DOTALL):
            message = recorded
        yield from compare_values("", expected, {**got, "message": message})


def _compare_chosen(path: str, expected: Any, got: Any) -> Iterator[str]:
    """Compares the fields that were recorded; of `status`, every field except generated UIDs."""
    for name, value in expected.items():
        found = got.get(name) if isinstance(got, dict) else None
        if name == "metadata":
            yield from _compare_chosen(f"{path}.{name}", value, found)
        elif name == "status":
            if isinstance(found, dict) and "reason" not in value:
                # Not recorded: several bindings may allow the same.
                found = {field: each for field, each in found.items() if field != "reason"}
            yield from compare_values(f"{path}.{name}", _comparable(value), _comparable(found))
        else:
            yield from compare_values(f"{path}.{name}", value, found)


def _comparable(value: Any) -> Any:
    """The value without UIDs and in the order in which rules were recorded, which a server may give in any order."""
    if isinstance(value, list):
        return [_comparable(item) for item in value]
    if not isinstance(value, dict):
        return value
    kept = {name: _comparable(item) for name, item in value.items() if name != "uid"}
    for name in ("resourceRules", "nonResourceRules"):
        if isinstance(kept.get(name), list):
            kept[name] = sorted(kept[name], key=msgspec.json.Encoder(order="deterministic").encode)
    return kept


# --- Cleaning up -------------------------------------------------------------------------------------------------


_Objects = dict[tuple[str, str], dict[str, Any]]


def _list(connection: ServerConnection, path: str) -> _Objects:
    """The objects of a collection by namespace and name; none if it cannot be listed, such as reviews."""
    answer = connection.send("GET", path, [], None)
    document = answer.document if answer.code == 200 else None
    items = (document or {}).get("items") or []
    return {(item["metadata"].get("namespace", ""), item["metadata"]["name"]): item for item in items}


def _restore(connection: ServerConnection, path: str, baseline: _Objects) -> None:
    """Delete what a case created, and write again what it changed or deleted."""
    now = _list(connection, path)
    for key in now.keys() - baseline.keys():
        url = _url(path, *key)
        connection.send("DELETE", f"{url}?gracePeriodSeconds=0", [], None)
        if now[key]["metadata"].get("finalizers"):
            patch = b'{"metadata":{"finalizers":null}}'
            connection.send("PATCH", url, [("Content-Type", "application/merge-patch+json")], patch)
    for key, item in baseline.items():
        if key not in now:
            metadata = {name: value for name, value in item["metadata"].items() if name not in _GENERATED}
            body = msgspec.json.encode({**item, "metadata": metadata})
            connection.send("POST", _url(path, key[0], ""), _JSON, body)
        elif now[key]["metadata"]["resourceVersion"] != item["metadata"]["resourceVersion"]:
            metadata = {name: value for name, value in item["metadata"].items() if name != "resourceVersion"}
            connection.send("PUT", _url(path, *key), _JSON, msgspec.json.encode({**item, "metadata": metadata}))


_GENERATED: Final = ("uid", "resourceVersion", "creationTimestamp", "generation", "managedFields")


def _url(collection: str, namespace: str, name: str) -> str:
    head, _, resource = collection.rpartition("/")
    inside = f"/namespaces/{quote(namespace, safe='')}" if namespace else ""
    return f"{head}{inside}/{resource}" + (f"/{quote(name, safe='')}" if name else "")
