"""What a server remembers of an etcd is what it has seen last."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from dralloc.server.store import etcd_history
from dralloc.server.store.disk import Disk
from dralloc.server.store.etcd_history import EtcdHistory, EtcdMemory, SeenRevision


class SlowDisk(Disk):
    """The first file is written when it is told so."""

    def __init__(self) -> None:
        self.has_begun = threading.Event()
        self.may_end = threading.Event()

    def replace(self, path: Path, content: bytes) -> None:
        if not self.has_begun.is_set():
            self.has_begun.set()
            self.may_end.wait()
        super().replace(path, content)


def test_a_server_that_stops_while_its_memory_is_written_remembers_all_that_it_has_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(etcd_history, "WRITE_EVERY_S", 0)
    history, disk, newest = EtcdHistory(1, 0), SlowDisk(), 1

    async def main() -> None:
        nonlocal newest
        memory = EtcdMemory(tmp_path / "seen", disk)
        writing = asyncio.create_task(memory.write_regularly(lambda: SeenRevision(history, newest)))
        await asyncio.to_thread(disk.has_begun.wait)
        newest = 2
        writing.cancel()
        # Long enough for the task to write the file again, if it does not wait.
        for _ in range(3):
            await asyncio.sleep(0)
        disk.may_end.set()
        await asyncio.wait((writing,))

    asyncio.run(main())
    assert EtcdMemory(tmp_path / "seen").read() == SeenRevision(history, 2)
