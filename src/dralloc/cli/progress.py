"""A progress bar on standard error for long work, if standard error is a terminal."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Final, TypeVar

Item = TypeVar("Item")

# Who waits no longer than this does not begin to wonder.
PATIENCE_S: Final = 1.0


def progress(items: Iterable[Item], *, total: int, what: str) -> Iterator[Item]:
    """The items, one after the other. What the caller prints meanwhile stands above the bar."""
    with progress_bar(total, what) as advance:
        for item in items:
            yield item
            if advance is not None:
                advance(1)


@contextmanager
def progress_bar(total: int, what: str) -> Iterator[Callable[[int], None] | None]:
    """A bar, and what moves it on by a number of steps; None if standard error is no terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task(what, total=total)
        yield lambda steps: shown.advance(task, steps)


@asynccontextmanager
async def patience(what: str) -> AsyncIterator[None]:
    """Says what takes so long, from the moment on that it does."""
    if not what or not sys.stderr.isatty():
        yield
        return
    telling = asyncio.ensure_future(_tell_later(what))
    try:
        yield
    finally:
        telling.cancel()
        await asyncio.wait((telling,))


async def _tell_later(what: str) -> None:
    from rich.console import Console

    await asyncio.sleep(PATIENCE_S)
    with Console(stderr=True).status(what):
        await asyncio.Event().wait()
