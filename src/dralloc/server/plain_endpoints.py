"""Paths outside of the API groups: health, metrics, a backup, keys, descriptions."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Iterator
from typing import Final

from dralloc.kube.codec import encode
from dralloc.primitives.errors import ErrorDetails, NotAcceptable
from dralloc.server.describe.description_endpoints import DescriptionEndpoints
from dralloc.server.documents.json_documents import Document
from dralloc.server.http.messages import JSON, TEXT, HttpRequest, HttpResponse
from dralloc.server.http.request_metrics import ServerMetrics
from dralloc.server.store.backup import backup_pieces
from dralloc.server.store.errors import StoreError
from dralloc.server.store.interface import Store
from dralloc.server.write.service_account_tokens import ServiceAccountTokens

# The server is not ready if the store takes longer than this.
STORE_ANSWERS_WITHIN_S: Final = 2.0
JWK_SET: Final = "application/jwk-set+json"


class PlainEndpoints:
    def __init__(
        self, store: Store, description: DescriptionEndpoints, accounts: ServiceAccountTokens, metrics: ServerMetrics
    ) -> None:
        self._store = store
        self._description = description
        self._accounts = accounts
        self._metrics = metrics

    async def answer(self, request: HttpRequest, path: str, *, is_ready: bool) -> HttpResponse | None:
        """The response; `None` if there is nothing at the path. `is_ready`: the server has started and is not about to stop."""
        match path:
            case "/healthz/ping" | "/livez/ping" | "/readyz/ping":
                return _health()
            case "/healthz" | "/livez":
                return _health(self._store_failure())
            case "/readyz" | "/readyz/etcd" | "/healthz/etcd":
                answers = is_ready and await self._store_answers()
                return _health(self._store_failure() if answers else "not ready")
            case "/backup":
                return HttpResponse(stream=backup_pieces(self._store), content_type="application/jsonl")
            case "/debug/pprof":
                return HttpResponse(body=task_stacks().encode(), content_type=TEXT)
            case "/metrics":
                text = await self._metrics.text()
                return HttpResponse(body=text.encode(), content_type="text/plain; version=0.0.4; charset=utf-8")
            case "/.well-known/openid-configuration":
                return _with_media_type(request, JSON, self._accounts.openid_configuration())
            case "/openid/v1/jwks":
                return _with_media_type(request, JWK_SET, self._accounts.public_keys())
        return self._description.plain(request, path)

    def _store_failure(self) -> str:
        """Why the server must be started again; empty if it need not. A full disk is no reason: reads go on, and writes do when there is room."""
        failure = self._store.failure
        return f"start the server again: {failure}" if failure is not None else ""

    async def _store_answers(self) -> bool:
        try:
            async with asyncio.timeout(STORE_ANSWERS_WITHIN_S):
                await self._store.current_revision()
        except (StoreError, TimeoutError):
            return False
        return True


def _health(fault: str = "") -> HttpResponse:
    return HttpResponse(503 if fault else 200, (fault or "ok").encode(), TEXT)


def _with_media_type(request: HttpRequest, media_type: str, document: Document) -> HttpResponse:
    """The document in the one form that it has."""
    accepted = request.header(b"accept") or "*/*"
    if not any(part.partition(";")[0].strip() in (media_type, "*/*", "application/*") for part in accepted.split(",")):
        message = f"406: Not Acceptable\n\nAvailable representations: {media_type}"
        raise NotAcceptable(message, details=ErrorDetails())
    return HttpResponse(body=encode(document), content_type=media_type)


# --- Task stacks ----------------------------------------------------------------------------------------------------
# What the server is doing: the stacks of its tasks, as text. Served under `/debug/pprof/`, where Kubernetes has its
# profiles.


def task_stacks() -> str:
    """The stack of every task of the running loop, the innermost call last."""
    tasks = sorted(asyncio.all_tasks(), key=lambda task: task.get_name())
    return "\n".join((f"{len(tasks)} tasks\n", *map("".join, map(_stack, tasks))))


def _stack(task: asyncio.Task[object]) -> Iterator[str]:
    yield f"{task.get_name()}:\n"
    yield from traceback.format_list(
        traceback.StackSummary.extract(((frame, frame.f_lineno) for frame in task.get_stack()), lookup_lines=False)
    )
