"""A component that ends by itself is reported; one that is ended on purpose is not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from dralloc.testing.components import ComponentDied, Components
from dralloc.testing.virtual_time import run_virtual


async def live() -> None:
    await asyncio.Event().wait()


async def die_soon() -> None:
    await asyncio.sleep(5)
    raise ValueError("out of ideas")


async def return_soon() -> None:
    await asyncio.sleep(5)


async def lose_a_task() -> None:
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(die_soon())
        tasks.create_task(live())


async def check_later(components: Components) -> None:
    await asyncio.sleep(10)
    components.check()


async def guarded(components: Components) -> None:
    await components.guard(live())


async def leave_the_block(_: Components) -> None:
    await asyncio.sleep(10)


async def end_it(components: Components) -> None:
    await asyncio.sleep(10)
    await components.end("scheduler")


@pytest.mark.parametrize("look", [Components.died, check_later, guarded, leave_the_block, end_it])
@pytest.mark.parametrize(
    ("run", "message"),
    [
        (die_soon, "the scheduler died: ValueError: out of ideas"),
        (lose_a_task, "the scheduler died: ValueError: out of ideas"),
        (return_soon, "the scheduler died: it returned"),
    ],
)
def test_a_dead_component_is_reported(
    run: Callable[[], Coroutine[Any, Any, None]],
    message: str,
    look: Callable[[Components], Coroutine[Any, Any, None]],
) -> None:
    async def main() -> None:
        async with Components() as components:
            components.start("controllers", live)
            components.start("scheduler", run)
            await look(components)

    with pytest.raises(ComponentDied, match=message):
        run_virtual(main())


def test_an_error_in_the_block_notes_the_dead_component() -> None:
    async def main() -> None:
        async with Components() as components:
            components.start("scheduler", die_soon)
            await asyncio.sleep(10)
            raise TimeoutError("no pod runs")

    with pytest.raises(TimeoutError, match="no pod runs") as caught:
        run_virtual(main())
    assert caught.value.__notes__ == ["meanwhile the scheduler died: ValueError: out of ideas"]


def test_guarded_work_gives_its_result_and_its_failure() -> None:
    async def count() -> int:
        await asyncio.sleep(1)
        return 7

    async def main() -> None:
        async with Components() as components:
            components.start("scheduler", live)
            assert await components.guard(count()) == 7
            with pytest.raises(ValueError, match="out of ideas"):
                await components.guard(die_soon())

    run_virtual(main())


def test_components_restart_and_end_with_the_block() -> None:
    ended: list[int] = []
    started = 0

    async def note_the_end() -> None:
        nonlocal started
        started += 1
        number = started
        try:
            await live()
        finally:
            ended.append(number)

    async def main() -> None:
        async with Components() as components:
            await components.restart("scheduler", note_the_end)
            await asyncio.sleep(0)
            await components.restart("scheduler", note_the_end)
            assert ended == [1]
            await asyncio.sleep(0)
            components.check()

    run_virtual(main())
    assert ended == [1, 2]
