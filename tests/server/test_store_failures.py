"""Writes that the store refuses: users get 503, and log and health say why."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from dralloc.server.store.interface import HistoryLimits
from dralloc.server.store.sqlite import SqliteStore
from dralloc.server.store.sqlite_file import SqliteFile
from tests.support.api_server import api_server
from tests.support.local_api import CLAIMS, LocalApi, claim_document
from tests.support.small_disk import SmallDisk


def test_a_full_disk_is_in_the_log(small_disk: SmallDisk, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> list[int]:
        async with (
            await SqliteStore.open(small_disk.directory / "state.db") as store,
            api_server(store=store) as server,
        ):
            api = LocalApi(server)
            small_disk.fill()
            documents = [claim_document(f"c{number}", annotations={"a": "x" * 4000}) for number in range(400)]
            return [(await api.call("POST", CLAIMS, document)).code for document in documents]

    codes = asyncio.run(main())
    refused = codes.count(503)
    assert codes.count(201) == len(codes) - refused
    assert refused > 1
    messages = [record.message for record in caplog.records if "the store refused a request" in record.message]
    assert len(messages) == refused
    assert all("disk is full" in message for message in messages)


def test_a_server_that_must_be_started_again_is_not_healthy(tmp_path: Path) -> None:
    path = tmp_path / "state.db"

    async def health(api: LocalApi) -> dict[str, int]:
        return {path: (await api.call("GET", path)).code for path in ("/livez", "/healthz", "/readyz", "/livez/ping")}

    async def main() -> None:
        file = SqliteFile(path)
        async with SqliteStore(file, file.load(HistoryLimits())) as store, api_server(store=store) as server:
            api = LocalApi(server)
            assert set((await health(api)).values()) == {200}
            # A stand-in for a disk that fails: what a failed commit left behind is not known.
            file._connection.execute("ALTER TABLE version RENAME TO gone")
            assert (await api.call("POST", CLAIMS, claim_document("c"))).code == 500
            assert (await api.call("POST", CLAIMS, claim_document("c"))).code == 503
            assert await health(api) == {"/livez": 503, "/healthz": 503, "/readyz": 503, "/livez/ping": 200}
            assert "start the server again" in (await api.call("GET", "/livez")).document
            assert (await api.call("GET", CLAIMS)).code == 200

    asyncio.run(main())
    with closing(sqlite3.connect(path)) as database:
        assert database.execute("SELECT count(*) FROM gone").fetchone()[0]
