"""Repeatedly kills a process that writes to a store, and checks that acknowledged writes survive.

Run as a program: `crashing_writer.py FILE ROUNDS SEED`. Each round forks a child that opens the store, tells what is in it,
then writes from many tasks and tells each write after it was acknowledged. The parent kills it with SIGKILL at a random moment,
sometimes while it opens. The store is never closed, so the write-ahead log lives through the crashes.
"""

from __future__ import annotations

import asyncio
import os
import random
import select
import signal
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path

from dralloc.server.store.errors import KeyExists, RevisionConflict
from dralloc.server.store.interface import HistoryLimits, Store
from dralloc.server.store.records import Record
from dralloc.server.store.sqlite import SqliteStore

WRITERS = 16
KEYS = 40
LIMITS = HistoryLimits(events_max=300)
GONE = -1
"""The value of a deleted key."""


def main(path: Path, rounds: int, seed: int) -> None:
    rng = random.Random(seed)
    acknowledged: dict[int, tuple[str, int]] = {}
    writes = revision = 0
    for number in range(rounds):
        lines = run_and_kill(path, seed + number, rng)
        told = check_opening(lines, acknowledged, revision)
        if told is None:
            continue  # Killed before it was open: the next round shows the contents.
        revision = told
        acknowledged = dict(check_writes(lines, revision))
        writes += len(acknowledged)
        revision = max([revision, *acknowledged])
    sys.stdout.write(f"{rounds} kills, {writes} acknowledged writes, revision {revision}\n")


def run_and_kill(path: Path, seed: int, rng: random.Random) -> Iterator[str]:
    """Yields the lines that a child wrote until it was killed."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        try:
            asyncio.run(write_until_killed(path, seed, writing))
        finally:
            os._exit(1)
    os.close(writing)
    heard = b""
    patience_s = rng.uniform(0, 0.02) if rng.random() < 0.2 else 10.0
    writes_max = rng.randrange(100)
    while heard.count(b"\nwrote ") < writes_max or b"\nopen " not in heard:
        if not select.select([reading], [], [], patience_s)[0]:
            break
        part = os.read(reading, 1 << 16)
        assert part, "the child lives until it is killed"
        heard += part
    os.kill(child, signal.SIGKILL)
    while part := os.read(reading, 1 << 16):
        heard += part
    os.close(reading)
    os.waitpid(child, 0)
    # The last line may be cut off.
    return iter(heard.decode().split("\n")[1:-1])


async def write_until_killed(path: Path, seed: int, pipe: int) -> None:
    store = await SqliteStore.open(path, limits=LIMITS)
    page = await store.list_prefix("")
    lines = [f"has {record.key} {record.revision} {zlib.crc32(record.value)}" for record in page.records]
    events = store._map.log.between(0, page.revision)
    lines += [f"past {event.key} {event.revision} {digest(event.record)}" for event in events]
    os.write(pipe, "\n".join(["", *lines, f"open {page.revision}", ""]).encode())
    await asyncio.gather(*(write_for_ever(store, random.Random(seed * WRITERS + n), pipe) for n in range(WRITERS)))


async def write_for_ever(store: Store, rng: random.Random, pipe: int) -> None:
    while True:
        key, value = f"/{rng.randrange(KEYS)}", rng.randbytes(rng.randrange(12_000))
        try:
            record = await store.get(key)
            if record is None:
                written: Record | None = await store.create(key, value)
            elif rng.random() < 0.2:
                deletion = await store.delete(key, expected_revision=record.revision)
                os.write(pipe, f"wrote {key} {deletion} {GONE}\n".encode())
                continue
            else:
                written = await store.update(key, value, expected_revision=record.revision)
        except (KeyExists, RevisionConflict):
            continue
        assert written is not None
        os.write(pipe, f"wrote {key} {written.revision} {digest(written)}\n".encode())


def digest(record: Record | None) -> int:
    return zlib.crc32(record.value) if record else GONE


def check_opening(lines: Iterator[str], acknowledged: dict[int, tuple[str, int]], before: int) -> int | None:
    """Returns the revision at which the store was opened, with all acknowledged writes in it; None if it was not
    opened.
    """
    present: dict[str, int] = {}
    past: dict[int, tuple[str, int]] = {}
    for line in lines:
        kind, *rest = line.split(" ")
        if kind == "has":
            present[rest[0]] = int(rest[1])
        elif kind == "past":
            past[int(rest[1])] = (rest[0], int(rest[2]))
        else:
            assert kind == "open", line
            revision = int(rest[0])
            assert revision >= before, f"revision {revision} after {before}"
            # A child on a busy machine writes more than the log keeps before it is killed.
            assert revision in past or not present, "the log ends before the newest revision"
            oldest = min(past, default=0)
            kept = {number: write for number, write in acknowledged.items() if number >= oldest}
            lost = {number: write for number, write in kept.items() if past.get(number) != write}
            assert not lost, f"acknowledged and lost: {lost}"
            past = {**acknowledged, **past}
            for number, (key, value) in past.items():
                newest = max(other for other, (other_key, _) in past.items() if other_key == key)
                assert number < newest or present.get(key, GONE) == (GONE if value == GONE else number)
            return revision
    return None


def check_writes(lines: Iterator[str], opened_at: int) -> Iterator[tuple[int, tuple[str, int]]]:
    for line in lines:
        _, key, revision, value = line.split(" ")
        assert int(revision) > opened_at, f"revision {revision} was given before"
        yield int(revision), (key, int(value))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
