"""Writes that the store refuses: users get 503, and the log says why, but not for each of them."""

from __future__ import annotations

import asyncio

import pytest

from dralloc.store.sqlite import SqliteStore
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
    (message,) = [record.message for record in caplog.records if "requests that the store refused" in record.message]
    assert message.startswith("requests that the store refused: 1 (")
    assert "disk is full" in message
