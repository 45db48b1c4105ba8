"""The event loop that a cluster lives on while an ordinary test function calls it: always running, or only while it is called.

In virtual time nothing may happen between two calls: the loop runs just as long as somebody waits for an answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from dralloc.simulator.virtual_time import VirtualTimeLoop

Result = TypeVar("Result")


class VirtualLoop:
    """Runs coroutines in the caller's thread, in time that jumps. Time stands still between calls."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner(loop_factory=VirtualTimeLoop)

    def run(self, coroutine: Coroutine[Any, Any, Result]) -> Result:
        return self._runner.run(coroutine)

    def close(self) -> None:
        self._runner.close()
