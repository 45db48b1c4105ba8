"""Recorded writes, sent to a server: their setup is created before and deleted afterwards."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from dralloc.conformance.server_connection import ServerAnswer, ServerConnection
from dralloc.conformance.write_outcome import WriteOutcome, compare_outcome
from dralloc.kube.registry import find_kind

_JSON = {"Content-Type": "application/json"}


def compare_over_http(line: Mapping[str, Any], connection: ServerConnection) -> Iterator[str]:
    """Yields the differences between the server's answer and the recorded one."""
    prepared = [(_collection(body), body) for body in line.get("setup") or ()]
    try:
        for path, body in prepared:
            answer = connection.send("POST", path, _JSON, json.dumps(body).encode())
            if answer.code != 201:
                yield f"the setup of the line was refused: {answer.code} {answer.body.decode(errors='replace')}"
                return
        sent = connection.send(line["method"], line["path"], _JSON, json.dumps(line["body"]).encode())
        yield from compare_outcome(line, _outcome(sent))
    finally:
        for path, body in prepared:
            connection.send("DELETE", f"{path}/{body['metadata']['name']}", {}, None)


def _collection(body: Mapping[str, Any]) -> str:
    kind = find_kind(body["apiVersion"], body["kind"])
    assert kind is not None, f"a kind that is not served here: {body['kind']}"
    namespace = f"/namespaces/{body['metadata']['namespace']}" if kind.namespaced else ""
    return f"/apis/{body['apiVersion']}{namespace}/{kind.plural}"


def _outcome(answer: ServerAnswer) -> WriteOutcome:
    document = answer.document
    if answer.code < 300 or not isinstance(document, dict):
        return WriteOutcome(answer.code, object=document)
    causes = (document.get("details") or {}).get("causes") or []
    pairs = tuple((cause.get("reason", ""), cause.get("field", "")) for cause in causes)
    return WriteOutcome(answer.code, document.get("message", ""), pairs)
