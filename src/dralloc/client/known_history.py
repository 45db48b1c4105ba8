"""Whether the answers of an API server are of one history of its store: after a backup was restored, they are of another one.

What a component knows and has planned is then of objects that never were, so it ends, and starts again from what the server has.
"""

from __future__ import annotations

from typing import Final

from dralloc.store.new_history import HISTORY_GAP

# Two lists that are further apart are of two histories: a restored store goes on at much higher revisions, as does an etcd that was
# restored with the `--bump-revision` of etcd's guide. No client is away while a store writes that often.
HISTORY_STEP: Final = HISTORY_GAP // 2


class HistoryChanged(Exception):
    """A list shows that the store of the API server was restored from a backup. A component that reads it starts again, with new objects."""

    def __init__(self, before: int, after: int) -> None:
        super().__init__(before, after)
        self._before, self._after = before, after

    def __str__(self) -> str:
        return f"the API server was restored from a backup: it was at revision {self._before}, and now lists at {self._after}"


class KnownHistory:
    """What the lists and watches of one client have shown of the history."""

    def __init__(self) -> None:
        self._newest = 0

    def reach(self, revision: int) -> None:
        if revision > self._newest:
            self._newest = revision

    def check(self, revision: int, *, seen: int) -> None:
        """Take the revision of a list; `seen` is the newest one that its reader has seen before, or 0. Raises HistoryChanged."""
        before, self._newest = self._newest, max(revision, self._newest)
        if seen and not 0 <= revision - seen < HISTORY_STEP:
            raise HistoryChanged(seen, revision)
        # Lists of others may have been answered later, so that they do not show that revisions went back.
        if before and revision - before >= HISTORY_STEP:
            raise HistoryChanged(before, revision)


def history_change(error: BaseException) -> HistoryChanged | None:
    """The HistoryChanged that has ended a component, alone or in groups of tasks; None if there were other reasons."""
    if not isinstance(error, BaseExceptionGroup):
        return error if isinstance(error, HistoryChanged) else None
    found = [history_change(each) for each in error.exceptions]
    return found[0] if all(found) else None
