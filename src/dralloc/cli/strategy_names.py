"""The scheduler's strategies by the names that options and files give."""

from __future__ import annotations

from dralloc.cli.output import fail
from dralloc.scheduler.decide.placement_strategy import PlacementStrategy
from dralloc.scheduler.decide.strategies import STRATEGIES


def strategy_named(name: str, where: str = "--strategy") -> PlacementStrategy:
    """Ends the command if there is none."""
    if name not in STRATEGIES:
        fail(f"{where}: {name!r} is not one of {', '.join(STRATEGIES)}")
    return STRATEGIES[name]
