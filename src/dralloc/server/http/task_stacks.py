"""What the server is doing: the stacks of its tasks, as text. Served under `/debug/pprof/`, where Kubernetes has its profiles."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Iterator
from typing import Final

TASKS_MAX: Final = 1000


def task_stacks() -> str:
    """The stack of every task of the running loop, the innermost call last; of the first tasks if there are many."""
    tasks = sorted(asyncio.all_tasks(), key=lambda task: task.get_name())
    return "\n".join((f"{len(tasks)} tasks\n", *map("".join, map(_stack, tasks[:TASKS_MAX]))))


def _stack(task: asyncio.Task[object]) -> Iterator[str]:
    yield f"{task.get_name()}:\n"
    yield from traceback.format_list(
        traceback.StackSummary.extract(((frame, frame.f_lineno) for frame in task.get_stack()), lookup_lines=False)
    )
