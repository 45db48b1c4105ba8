"""What the tasks of a program hold: the entries of its containers, by the attribute or variable that has them.

Two such counts, before and after objects of the API came and went, show what a component does not forget.
"""

from __future__ import annotations

import asyncio
import gc
from collections import Counter, deque
from collections.abc import Collection, Iterator
from functools import partial
from types import (
    AsyncGeneratorType,
    BuiltinFunctionType,
    CoroutineType,
    FunctionType,
    GeneratorType,
    MethodType,
    ModuleType,
)
from typing import Any, Final
from weakref import WeakKeyDictionary, WeakSet, WeakValueDictionary

_ENDS: Final = (str, bytes, int, float, type, ModuleType, type(None), WeakKeyDictionary, WeakSet, WeakValueDictionary)
_IMMUTABLE: Final = (tuple, frozenset)
_MUTABLE: Final = (list, set, deque)


def held_by_tasks(left_out: Collection[str] = ()) -> Counter[str]:
    """How many entries the containers have that the tasks and timers of the running loop can reach, by name: `Class.attribute` or
    `function(variable)`, and with `[]` for what is in it.

    What the attributes and variables `left_out` have does not count.
    """
    counts: Counter[str] = Counter()
    current = asyncio.current_task()
    pending: list[tuple[str, Any]] = [("loop", asyncio.get_running_loop())]
    pending += [("task", task) for task in asyncio.all_tasks() if task is not current]
    # With the objects themselves, so that no address is used again.
    seen = {id(each): each for each in (current, pending)}
    while pending:
        name, item = pending.pop()
        if name in left_out or isinstance(item, _ENDS) or id(item) in seen:
            continue
        seen[id(item)] = item
        if isinstance(item, (dict, *_MUTABLE)):
            counts[name] += len(item)
        pending.extend(_parts(name, item))
    return counts


def _parts(name: str, item: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(item, dict):
        yield from ((f"{name}[]", each) for entry in item.items() for each in entry)
    elif isinstance(item, (*_MUTABLE, *_IMMUTABLE)):
        yield from ((f"{name}[]", each) for each in item)
    if isinstance(item, CoroutineType):
        yield from _variables(item.__qualname__, item.cr_frame, item.cr_await)
    elif isinstance(item, AsyncGeneratorType):
        yield from _variables(item.__qualname__, item.ag_frame, item.ag_await)
    elif isinstance(item, GeneratorType):
        yield from _variables(item.__qualname__, item.gi_frame, item.gi_yieldfrom)
    elif isinstance(item, FunctionType):
        cells = (each for each in gc.get_referents(item) if type(each) is tuple)
        yield from ((item.__qualname__, each) for each in cells)
    elif isinstance(item, MethodType | BuiltinFunctionType):
        yield name, item.__self__
    elif isinstance(item, partial):
        yield from ((name, each) for each in (item.func, *item.args, *item.keywords.values()))
    elif attributes := dict(_attributes(item)):
        yield from ((f"{type(item).__qualname__}.{attribute}", value) for attribute, value in attributes.items())
    else:
        # Objects of C, such as tasks, futures and cells.
        yield from ((name, each) for each in gc.get_referents(item))


def _variables(function: str, frame: Any, awaited: Any) -> Iterator[tuple[str, Any]]:
    if frame is not None:
        yield from ((f"{function}({name})", value) for name, value in frame.f_locals.items())
    yield function, awaited


def _attributes(item: Any) -> Iterator[tuple[str, Any]]:
    """Those that are set, in a dictionary or in slots."""
    yield from getattr(item, "__dict__", {}).items()
    slots = [slot for base in type(item).__mro__ for slot in vars(base).get("__slots__", ())]
    for slot in (*slots, *getattr(type(item), "__struct_fields__", ())):
        if slot != "__dict__" and hasattr(item, slot):
            yield slot, getattr(item, slot)
