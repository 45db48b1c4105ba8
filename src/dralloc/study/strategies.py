"""The strategies that can be studied: those of the scheduler by name, and strategies of one's own.

A strategy of one's own is an object, or is named by its file and name, `FILE.py:NAME`, so that other processes can load it.
"""

from __future__ import annotations

from functools import cache
from hashlib import sha256
from pathlib import Path
from runpy import run_path
from typing import Any, Final

from dralloc.scheduler.decide.placement_strategy import PlacementStrategy
from dralloc.scheduler.decide.strategies import STRATEGIES
from dralloc.study.comparison import BadInput

STRATEGY_NAMES: Final = tuple(STRATEGIES)


def strategy_of(strategy: str | PlacementStrategy) -> PlacementStrategy:
    """The strategy that a text names. Raises BadInput."""
    if not isinstance(strategy, str):
        return strategy
    if ":" in strategy:
        return _loaded(strategy)
    if strategy not in STRATEGIES:
        raise BadInput(f"unknown strategy {strategy!r}; known: {', '.join(STRATEGIES)}, or FILE.py:NAME for your own")
    return STRATEGIES[strategy]


def strategy_digest(strategy: str) -> str:
    """Equal for strategies that decide alike: the name, for one of a file its content. Raises BadInput."""
    file, colon, name = strategy.rpartition(":")
    return f"{sha256(_content(file)).hexdigest()}:{name}" if colon else strategy


@cache
def _loaded(text: str) -> PlacementStrategy:
    file, _, name = text.rpartition(":")
    _content(file)
    try:
        found = run_path(file).get(name)
    except Exception as error:  # noqa: BLE001  # whatever the program of a user raises
        raise BadInput(f"{file}: {type(error).__name__}: {error}") from None
    made: Any = found() if isinstance(found, type) else found
    if not hasattr(made, "scorer") or not hasattr(made, "name"):
        raise BadInput(f"{file}: {name} is not a strategy: it has no scorer and name; see docs/simulation.md")
    return made  # type: ignore[no-any-return]  # a protocol, checked by its members


def _content(file: str) -> bytes:
    try:
        return Path(file).read_bytes()
    except OSError as error:
        raise BadInput(f"{file}: {error.strerror}") from None
