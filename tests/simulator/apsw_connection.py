"""A connection of `apsw` with the interface of `sqlite3` that the store uses, down to the names of errors."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator, Sequence
from typing import Any, Final, cast

import apsw

AUTOCHECKPOINT: Final = "PRAGMA wal_autocheckpoint = "


class ApswConnection:
    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self.closed = False

    def execute(self, statement: str, values: Sequence[Any] = ()) -> ApswCursor:
        with as_sqlite3_errors():
            cursor = ApswCursor(self._connection.execute(statement, tuple(values)))
            if statement.startswith(AUTOCHECKPOINT):
                self._connection.set_wal_hook(_Checkpoints(int(statement.removeprefix(AUTOCHECKPOINT))))
            return cursor

    def interrupt(self) -> None:
        self._connection.interrupt()

    def executescript(self, script: str) -> None:
        with as_sqlite3_errors():
            for _ in self._connection.execute(script):
                continue

    def close(self) -> None:
        # The disk may be gone.
        with contextlib.suppress(apsw.Error):
            self._connection.close()
        self.closed = True


class _Checkpoints:
    """Moves a log of this many pages into the database after a commit, as SQLite does: if that fails, the log is used on.

    SQLite's own hook ignores the failure, too, but `apsw` raises every error of a simulated file, so that the commit seemed to have failed.
    """

    def __init__(self, pages_max: int) -> None:
        self._pages_max = pages_max

    def __call__(self, connection: apsw.Connection, database: str, pages: int) -> int:
        if pages >= self._pages_max:
            with contextlib.suppress(apsw.Error):
                connection.wal_checkpoint(database)
        return apsw.SQLITE_OK


class ApswCursor:
    def __init__(self, cursor: apsw.Cursor) -> None:
        self._rows = iter(cursor)

    def __iter__(self) -> Iterator[Any]:
        with as_sqlite3_errors():
            yield from self._rows

    def fetchone(self) -> Any:
        with as_sqlite3_errors():
            return next(self._rows, None)

    def fetchall(self) -> list[Any]:
        with as_sqlite3_errors():
            return list(self._rows)


@contextlib.contextmanager
def as_sqlite3_errors() -> Iterator[None]:
    try:
        yield
    except apsw.Error as error:
        code = int(getattr(error, "extendedresult", 0) or getattr(error, "result", apsw.SQLITE_ERROR))
        names: dict[int, str] = {**_named(apsw.mapping_result_codes), **_named(apsw.mapping_extended_result_codes)}
        translated = sqlite3.OperationalError(str(error))
        translated.sqlite_errorname = names.get(code, "SQLITE_ERROR")
        raise translated from error


def _named(codes: Any) -> dict[int, str]:
    return {code: name for code, name in codes.items() if isinstance(code, int)}


def sqlite_error(name: str) -> BaseException:
    return cast(BaseException, apsw.exception_for(getattr(apsw, name)))
