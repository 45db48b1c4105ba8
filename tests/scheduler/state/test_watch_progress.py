"""The progress of a watch: writers wait for a revision, whatever the order of their arrival."""

from __future__ import annotations

import asyncio

from dralloc.scheduler.state.watch_progress import WatchProgress
from dralloc.testing.virtual_time import run_virtual


def test_a_waiter_returns_when_its_revision_is_delivered() -> None:
    async def main() -> None:
        progress = WatchProgress()
        late, early = asyncio.ensure_future(progress.reach(7)), asyncio.ensure_future(progress.reach(3))
        await asyncio.sleep(0)
        progress.advance("5")
        await early
        assert not late.done()
        progress.advance("8")
        await late
        await progress.reach(8)

    run_virtual(main())


def test_older_and_opaque_revisions_are_ignored() -> None:
    progress = WatchProgress()
    for version in ("5", "3", "opaque"):
        progress.advance(version)
    assert progress.has_reached(5)
    assert not progress.has_reached(6)
