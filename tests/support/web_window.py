"""A browser window with the web page, which tests share."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from typing import Final

import uvloop

from tests.support.browser import Page, browser_page

LIVE: Final = "document.querySelector('.connection')?.dataset.phase === 'live'"


class Window:
    """A browser window that the tests share."""

    def __init__(self, runner: asyncio.Runner, page: Page) -> None:
        self._runner = runner
        self.page = page

    def run(self, look: Callable[[Page], Awaitable[None]]) -> None:
        async def looking() -> None:
            await look(self.page)

        self._runner.run(looking())


@contextmanager
def window(*options: str) -> Iterator[Window]:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        stack = AsyncExitStack()
        page = runner.run(stack.enter_async_context(browser_page(*options)))
        try:
            yield Window(runner, page)
        finally:
            runner.run(stack.aclose())
