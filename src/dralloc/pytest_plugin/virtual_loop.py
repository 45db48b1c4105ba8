"""The event loop of a cluster with virtual time: it runs only during a call, so nothing happens between two calls."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from dralloc.simulator.virtual_time import VirtualTimeLoop

Result = TypeVar("Result")


class VirtualLoop:
    """Runs coroutines in the thread of the caller, in virtual time. Between calls the time stands still."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner(loop_factory=VirtualTimeLoop)

    def run(self, coroutine: Coroutine[Any, Any, Result]) -> Result:
        return self._runner.run(coroutine)

    def close(self) -> None:
        self._runner.close()
