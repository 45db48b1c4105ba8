"""The blocking client for scripts and notebooks: no `await`.

It runs the asynchronous client on an event loop in a thread of its own. A notebook already runs a loop, which therefore
cannot be used.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator
from pathlib import Path
from typing import Any, Protocol, Self, TypeVar

from dralloc.client.api_calls import PatchType, WatchEvent
from dralloc.client.async_client import AsyncClient, Item, Propagation, connect_async
from dralloc.client.typed_resource import Object

__all__ = ["Client"]

Result = TypeVar("Result")


class Runner(Protocol):
    """Runs coroutines for synchronous callers."""

    def run(self, coroutine: Coroutine[Any, Any, Result]) -> Result: ...

    def close(self) -> None: ...


class LoopThread:
    """An event loop in a thread of its own; background tasks keep running between calls."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="dralloc-loop", daemon=True)
        self._thread.start()

    def run(self, coroutine: Coroutine[Any, Any, Result]) -> Result:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def close(self) -> None:
        if self._loop.is_closed():
            return
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class Client:
    """A client of one server. Use it in a `with` block, or close it; that closes the runner, too."""

    def __init__(self, client: AsyncClient, runner: Runner | None = None) -> None:
        self._client = client
        self._runner = runner or LoopThread()
        self._is_closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the connections; a `with` block does it."""
        if not self._is_closed:
            self._is_closed = True
            self._run(self._client.__aexit__())
            self._runner.close()

    def get(self, object_type: type[Object], name: str, *, namespace: str | None = None) -> Object:
        """The object of this name. Raises NotFound."""
        return self._run(self._client.get(object_type, name, namespace=namespace))

    def list(
        self, object_type: type[Object], *, namespace: str | None = "", labels: str = "", fields: str = ""
    ) -> tuple[Object, ...]:
        """The objects of a type, in a namespace or in all; selectors as for kubectl."""
        return self._run(self._client.list(object_type, namespace=namespace, labels=labels, fields=fields))

    def create(self, item: Item) -> Any:
        """Creates an object or a manifest, and returns it as stored."""
        return self._run(self._client.create(item))

    def replace(self, item: Item) -> Any:
        """Replaces an object; raises Conflict if it was changed since it was read."""
        return self._run(self._client.replace(item))

    def replace_status(self, item: Item) -> Any:
        """Replaces the status of an object."""
        return self._run(self._client.replace_status(item))

    def apply(self, item: Item, *, force: bool = False) -> Any:
        """Applies an object (server-side apply), which creates it or changes the fields that it has."""
        return self._run(self._client.apply(item, force=force))

    def patch(
        self,
        object_type: type[Object],
        name: str,
        patch: Any,
        *,
        namespace: str | None = None,
        type: PatchType = PatchType.MERGE,
        subresource: str | None = None,
    ) -> Object:
        """Changes an object by a patch."""
        return self._run(
            self._client.patch(object_type, name, patch, namespace=namespace, type=type, subresource=subresource)
        )

    def delete(
        self,
        object_type: type[Object],
        name: str,
        *,
        namespace: str | None = None,
        propagation: Propagation = "Background",
    ) -> None:
        """Deletes an object. Raises NotFound."""
        self._run(self._client.delete(object_type, name, namespace=namespace, propagation=propagation))

    def watch(
        self, object_type: type[Object], *, namespace: str = "", labels: str = "", fields: str = ""
    ) -> Iterator[WatchEvent[Object]]:
        """Yields every existing object and then every change; leaving the loop ends the watch."""
        events = self._client.watch(object_type, namespace=namespace, labels=labels, fields=fields)
        try:
            while True:
                yield self._run(_next(events))
        finally:
            self._run(events.aclose())  # type: ignore[attr-defined]

    def _run(self, coroutine: Coroutine[Any, Any, Result]) -> Result:
        return self._runner.run(coroutine)


def connect(target: str | Path | None = None, *, token: str | None = None, context: str | None = None) -> Client:
    """Returns a client for kubectl's current server, for the given kubeconfig, or for a URL."""
    return Client(connect_async(target, token=token, context=context))


async def _next(events: AsyncIterator[WatchEvent[Object]]) -> WatchEvent[Object]:
    return await anext(events)
