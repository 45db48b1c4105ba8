"""Write slots: a bound on concurrent writes, with slots that are lent during long waits."""

from __future__ import annotations

import asyncio

import pytest

from dralloc.scheduler.bind.write_slots import WriteSlots
from dralloc.testing.virtual_time import run_virtual


async def lend(slots: WriteSlots, until: asyncio.Event) -> None:
    async with slots.lent():
        await until.wait()


async def settle() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


def test_a_lent_slot_can_be_taken_by_another_pod() -> None:
    async def main() -> None:
        freed: list[None] = []
        slots = WriteSlots(1, lambda: freed.append(None))
        slots.take()
        until = asyncio.Event()
        lender = asyncio.ensure_future(lend(slots, until))
        await settle()
        assert (bool(slots), len(freed)) == (True, 1)
        until.set()
        await lender
        assert not slots

    run_virtual(main())


def test_a_pod_that_reclaims_its_slot_comes_before_new_pods() -> None:
    async def main() -> None:
        freed: list[None] = []
        slots = WriteSlots(1, lambda: freed.append(None))
        slots.take()
        until = asyncio.Event()
        lender = asyncio.ensure_future(lend(slots, until))
        await settle()
        slots.take()
        until.set()
        await settle()
        assert not lender.done()
        slots.give_back()
        await lender
        assert (bool(slots), len(freed)) == (False, 1)

    run_virtual(main())


def test_a_cancelled_pod_does_not_wait_for_a_slot() -> None:
    async def main() -> None:
        slots = WriteSlots(1, lambda: None)
        slots.take()
        lender = asyncio.ensure_future(lend(slots, asyncio.Event()))
        await settle()
        slots.take()
        lender.cancel()
        with pytest.raises(asyncio.CancelledError):
            await lender

    run_virtual(main())
