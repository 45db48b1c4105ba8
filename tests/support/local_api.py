"""An API server in this process, called with plain documents and without sockets.

`async with local_api(clock) as api:` and then `await api.create(path, {...})`.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import wraps
from typing import Any, Final

import msgspec

from dralloc.primitives.clock import Clock
from dralloc.primitives.features import FeatureGates
from dralloc.server.access.users import ADMINISTRATOR, User
from dralloc.server.http.messages import HttpRequest, HttpResponse
from dralloc.server.server import ApiServer
from dralloc.server.store.interface import HistoryLimits
from dralloc.testing.virtual_time import VirtualClock, run_virtual
from tests.support.api_server import api_server

RESOURCE: Final = "/apis/resource.k8s.io/v1"
MERGE_PATCH: Final = "application/merge-patch+json"
JSON_PATCH: Final = "application/json-patch+json"
APPLY_PATCH: Final = "application/apply-patch+yaml"
AS_TABLE: Final = "application/json;as=Table;v=v1;g=meta.k8s.io"


CLAIMS: Final = f"{RESOURCE}/namespaces/default/resourceclaims"
PODS: Final = "/api/v1/namespaces/default/pods"


def claim_document(name: str = "c", **metadata: Any) -> dict[str, Any]:
    """A claim for one device, as a client sends it."""
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu"}}
    return {"metadata": {"name": name, **metadata}, "spec": {"devices": {"requests": [request]}}}


def pod_document(name: str = "p", **metadata: Any) -> dict[str, Any]:
    """A pod, as a client sends it."""
    return {"metadata": {"name": name, **metadata}, "spec": {"containers": [{"name": "c", "image": "x"}]}}


class FixedClock:
    """A clock that stands still until a test sets it."""

    def __init__(self, now: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> None:
        self.time = now

    def now(self) -> datetime:
        return self.time


class Refused(AssertionError):
    """The server refused a request."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(f"{answer.code}: {answer.document}")
        self.answer = answer


@dataclass(frozen=True, slots=True)
class Answer:
    code: int
    document: Any
    warnings: tuple[str, ...] = ()

    @property
    def causes(self) -> list[tuple[str, str]]:
        """Reason and field of each cause of a refusal."""
        return [(cause["reason"], cause.get("field", "")) for cause in self.document["details"]["causes"]]


class LocalApi:
    """Calls a server as clients do."""

    def __init__(self, server: ApiServer, user: User = ADMINISTRATOR) -> None:
        self.server = server
        self.user = user

    async def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        content_type: str = "application/json",
        accept: str = "application/json",
        **query: str,
    ) -> Answer:
        """Send any request, and read the whole answer."""
        response = await self._send(method, path, body, content_type, accept, query)
        pieces = [response.body]
        if response.stream is not None:
            async with aclosing(response.stream) as stream:
                pieces += [piece async for piece in stream]
        content = b"".join(pieces)
        is_json = response.content_type.startswith("application/json")
        warnings = tuple(value.decode() for name, value in response.headers if name == b"warning")
        return Answer(response.status, msgspec.json.decode(content) if is_json else content.decode(), warnings)

    async def get(self, path: str, **query: str) -> Any:
        return _accepted(await self.call("GET", path, **query))

    async def create(self, path: str, body: Mapping[str, Any], **query: str) -> Any:
        return _accepted(await self.call("POST", path, body, **query))

    async def update(self, path: str, body: Mapping[str, Any], **query: str) -> Any:
        return _accepted(await self.call("PUT", path, body, **query))

    async def patch(self, path: str, patch: Any, *, content_type: str = MERGE_PATCH, **query: str) -> Any:
        return _accepted(await self.call("PATCH", path, patch, content_type=content_type, **query))

    async def delete(self, path: str, options: Mapping[str, Any] | None = None, **query: str) -> Any:
        return _accepted(await self.call("DELETE", path, options, **query))

    async def exists(self, path: str) -> bool:
        return (await self.call("GET", path)).code == 200

    async def watch(self, path: str, *, accept: str = "application/json", **query: str) -> AsyncIterator[Any]:
        """The events of a watch, as they come."""
        response = await self._send("GET", path, None, "", accept, {"watch": "1", **query})
        assert response.stream is not None, f"{response.status}: {response.body.decode()}"
        async with aclosing(response.stream) as stream:
            async for piece in stream:
                for line in piece.splitlines():
                    yield msgspec.json.decode(line)

    async def _send(
        self, method: str, path: str, body: Any, content_type: str, accept: str, query: Mapping[str, str]
    ) -> HttpResponse:
        content = _bytes_of(body)
        headers = {b"content-type": content_type.encode(), b"accept": accept.encode()}
        return await self.server.handle(HttpRequest(method, path, query, headers, content, self.user))


def _bytes_of(body: Any) -> bytes:
    match body:
        case None:
            return b""
        case bytes():
            return body
        case str():
            return body.encode()
        case _:
            return msgspec.json.encode(body)


@asynccontextmanager
async def local_api(
    clock: Clock | None = None, gates: FeatureGates | None = None, limits: HistoryLimits | None = None
) -> AsyncIterator[LocalApi]:
    """A server inside the block."""
    async with api_server(clock=clock or FixedClock(), gates=gates, limits=limits) as server:
        yield LocalApi(server)


def with_api(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Decorates a test that runs in virtual time and gets a server as its first argument."""

    async def run(*args: Any, **kwargs: Any) -> None:
        async with local_api(VirtualClock(asyncio.get_running_loop())) as api:
            await test(api, *args, **kwargs)

    @wraps(test)
    def wrapper(*args: Any, **kwargs: Any) -> None:
        run_virtual(run(*args, **kwargs))

    # The server is not a fixture: hide the parameter from pytest.
    signature = inspect.signature(test)
    wrapper.__signature__ = signature.replace(parameters=list(signature.parameters.values())[1:])  # type: ignore[attr-defined]
    return wrapper


async def refusal(request: Awaitable[Any]) -> Answer:
    """The answer to a request that must be refused."""
    try:
        await request
    except Refused as refused:
        return refused.answer
    raise AssertionError("the request was accepted")


async def settle() -> None:
    """Let all tasks run that are ready."""
    await asyncio.sleep(0.001)


def _accepted(answer: Answer) -> Any:
    if answer.code >= 300:
        raise Refused(answer)
    return answer.document
