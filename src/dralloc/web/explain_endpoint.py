"""`GET /dralloc/v1/explain/pods|claims|podgroups/NAMESPACE/NAME`: the answer of `dralloc explain` from the server's own objects.

    {"explanation": …, "text": "…", "notes": […]}

`explanation` is what `dralloc explain -o json` prints, `text` what it prints for people, and `notes` say what the caller may
not read. Objects are read through the API as the caller, so an answer contains nothing that the caller could not list.

`GET /dralloc/v1/story/claims/NAMESPACE/NAME`: what happened to a claim, from its events and its status: `{"steps": […]}`. Unlike an
explanation it needs no search, so it is answered at once.

`GET /dralloc/v1/fragmentation`: idle and stranded devices over time, for callers who may list ResourceSlices; no samples where no scheduler
was started with the server.

An answer on thousands of nodes takes seconds. It is computed in a thread, a few at a time, while the server handles
other requests.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Final

import msgspec

from dralloc.client.api_calls import ApiCalls
from dralloc.client.in_process_transport import InProcessTransport
from dralloc.client.transport import ClientRequest, ClientResponse
from dralloc.primitives.errors import ErrorDetails, MethodNotAllowed, NotFound, Timeout, TooManyRequests
from dralloc.primitives.features import FeatureGates
from dralloc.primitives.work_allowance import WorkExceeded, work_allowance
from dralloc.scheduler.report.fragmentation import FragmentationHistory
from dralloc.server.access.users import User
from dralloc.server.http.messages import HttpRequest, HttpResponse
from dralloc.server.server import HandleRequest

PREFIX: Final = "/dralloc/"
SLICES: Final = "/apis/resource.k8s.io/v1/resourceslices"
ANSWERS_WITHIN_S: Final = 30.0
RUNNING_MAX: Final = 1
WAITING_MAX: Final = 16
# A thread cannot be stopped from outside: it ends after about so much work, in some tens of seconds.
WORK_MAX: Final = 200_000_000

_SOON: Final = ErrorDetails(retry_after_s=2)


class ExplainEndpoint:
    """An extension of the API server (`dralloc.server.server.ServerExtension`). `gates` are those of the server."""

    prefix = PREFIX

    def __init__(self, gates: FeatureGates, history: FragmentationHistory | None = None) -> None:
        self._gates = gates
        self._history = history
        self._slots = asyncio.Semaphore(RUNNING_MAX)
        self._waiting = 0
        self._running: set[asyncio.Task[bytes]] = set()

    async def answer(self, request: HttpRequest, api: HandleRequest) -> HttpResponse:
        """Raises ApiError."""
        match request.path.strip("/").split("/"):
            case ["dralloc", "v1", "explain", "pods" | "claims" | "podgroups" as kind, namespace, name] if (
                namespace and name
            ):
                answer = self._explain(request, api, kind, namespace, name)
            case ["dralloc", "v1", "story", "claims", namespace, name] if namespace and name:
                answer = _story(_CallersApi(api, request.user), namespace, name)
            case ["dralloc", "v1", "fragmentation"]:
                answer = self._fragmentation(request, api)
            case _:
                raise NotFound(
                    f"{request.path} not found: the paths are {PREFIX}v1/explain/pods|claims|podgroups/NAMESPACE/NAME "
                    f"and {PREFIX}v1/story/claims/NAMESPACE/NAME"
                )
        if request.method != "GET":
            answer.close()
            raise MethodNotAllowed(f"{request.path} only supports GET")
        return await answer

    async def _explain(
        self, request: HttpRequest, api: HandleRequest, kind: str, namespace: str, name: str
    ) -> HttpResponse:
        transport = _HomeLoopTransport(_CallersApi(api, request.user))
        body = await self._compute(lambda: _explain(transport, kind.removesuffix("s"), namespace, name, self._gates))
        return HttpResponse(body=body)

    async def _fragmentation(self, request: HttpRequest, api: HandleRequest) -> HttpResponse:
        allowed = await api(HttpRequest("GET", SLICES, {"limit": "1"}, {}, b"", request.user))
        if allowed.status != HTTPStatus.OK:
            return allowed
        values = await self._history.values() if self._history is not None else {"samples": []}
        return HttpResponse(body=msgspec.json.encode(values))

    async def _compute(self, work: Callable[[], bytes]) -> bytes:
        """The result of the work, done in a thread when one is available."""
        if self._waiting >= WAITING_MAX:
            raise TooManyRequests("too many explanations are being computed, please try again later", details=_SOON)
        self._waiting += 1
        try:
            async with asyncio.timeout(ANSWERS_WITHIN_S):
                await self._slots.acquire()
                running = asyncio.ensure_future(self._run(work))
                self._running.add(running)
                running.add_done_callback(self._end)
                # A thread cannot be stopped, so it keeps its slot after a timeout.
                return await asyncio.shield(running)
        except TimeoutError:
            raise Timeout(f"the explanation was not ready within {ANSWERS_WITHIN_S:.0f} seconds") from None
        finally:
            self._waiting -= 1

    def _end(self, running: asyncio.Task[bytes]) -> None:
        self._running.discard(running)
        # After a timeout, no request waits for the result, nor for its error.
        if not running.cancelled():
            running.exception()

    async def _run(self, work: Callable[[], bytes]) -> bytes:
        try:
            return await asyncio.to_thread(work)
        finally:
            self._slots.release()


class _CallersApi:
    """The API for an in-process client, as one user and read-only."""

    def __init__(self, api: HandleRequest, user: User) -> None:
        self._api = api
        self._user = user

    async def answer(
        self, method: str, path: str, query: Mapping[str, str], headers: Mapping[bytes, bytes], body: bytes
    ) -> HttpResponse:
        assert method == "GET", "explanations only read"
        return await self._api(HttpRequest(method, path, query, headers, body, self._user))


class _HomeLoopTransport(InProcessTransport):
    """Sends the requests of another thread on the loop where it was made, which runs the server."""

    def __init__(self, api: _CallersApi) -> None:
        super().__init__(api)
        self._home = asyncio.get_running_loop()

    async def send(self, request: ClientRequest) -> ClientResponse:
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(super().send(request), self._home))


async def _story(api: _CallersApi, namespace: str, name: str) -> HttpResponse:
    """Raises ApiError if the caller may not read the claim or events."""
    from dralloc.answers.claim_story import read_claim_story

    steps = await read_claim_story(ApiCalls(InProcessTransport(api)), namespace, name)
    return HttpResponse(body=msgspec.json.encode({"steps": [step.values() for step in steps]}))


def _explain(transport: _HomeLoopTransport, kind: str, namespace: str, name: str, gates: FeatureGates) -> bytes:
    # Slow to import, and not needed before the first question.
    from dralloc.answers.pod_explanation import SubjectQuestion, ask_cluster

    question = SubjectQuestion(kind, f"{namespace}/{name}")
    try:
        with work_allowance(WORK_MAX):
            found, notes = asyncio.run(ask_cluster(question, transport, namespace, gates))
    except WorkExceeded:
        raise Timeout("the explanation takes too long; `dralloc explain` has no limit") from None
    return msgspec.json.encode({"explanation": found.values(), "text": "\n".join(found.lines()), "notes": notes})
