"""Store URLs: their meaning, and helpful errors."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from dralloc.server.store.errors import BadStoreUrl, StoreUnavailable
from dralloc.server.store.memory import MemoryStore
from dralloc.server.store.sqlite import SqliteStore
from dralloc.server.store.store_url import open_store
from tests.support.ports import free_port

REFUSED = {
    "redis://localhost": "unknown store 'redis'",
    "memory://?size=3": "unknown option size",
    "sqlite://": "names no file",
    "sqlite:///": "names no file",
    "sqlite://host/path": "names no file",
    "sqlite:///x.db?synchronous=off": "synchronous must be full or normal",
    "sqlite:///x.db?sync=off&cache=1": "unknown option cache, sync",
    "etcd://": "not a host:port",
    "etcd:///root": "not a host:port",
    "etcd://a:2379,:2379": "':2379' is not a host:port",
    "etcd://host:port": "'host:port' is not a host:port",
    "etcd://user@host:2379": "not a host:port",
    "etcd://[::1": "not a URL",
    "etcd://a?cert=x": "both `cert` and `key`",
    "etcd://a?cert=x&key=y": "requires `ca`",
    "etcd://a?timeout=0": "timeout must be a number of seconds",
    "etcd://a?password=x": "unknown option password",
}


@pytest.mark.parametrize("url", REFUSED)
def test_invalid_store_urls_are_rejected(url: str) -> None:
    with pytest.raises(BadStoreUrl) as refusal:
        asyncio.run(open_store(url))
    assert REFUSED[url] in str(refusal.value)


def test_store_urls_open_their_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    async def opened(url: str) -> type:
        async with await open_store(url) as store:
            return type(store)

    assert asyncio.run(opened("memory://")) is MemoryStore
    assert asyncio.run(opened(f"sqlite://{tmp_path}/with%20space.db")) is SqliteStore
    assert asyncio.run(opened(f"sqlite://{tmp_path}/relaxed.db?synchronous=normal")) is SqliteStore
    assert asyncio.run(opened("plain.db")) is SqliteStore
    assert sorted(os.listdir(tmp_path)) == [
        f"{name}.db{suffix}" for name in ("plain", "relaxed", "with space") for suffix in ("", "-mark")
    ]


def test_unreadable_certificates_are_named() -> None:
    with pytest.raises(StoreUnavailable, match=r"cannot read /nowhere/ca\.pem: No such file"):
        asyncio.run(open_store("etcd://localhost:2379?ca=/nowhere/ca.pem"))


@pytest.mark.slow
def test_an_unreachable_etcd_is_named() -> None:
    endpoint = f"127.0.0.1:{free_port()}"
    with pytest.raises(StoreUnavailable, match=endpoint):
        asyncio.run(open_store(f"etcd://{endpoint}?timeout=1"))
