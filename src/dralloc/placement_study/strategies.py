"""The strategies that can be studied: those of the scheduler by name, and strategies of one's own.

A strategy of one's own is named by its file and class, `FILE.py:NAME`, where names are needed.
"""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

from dralloc.placement_study.csv_rows import BadInput
from dralloc.primitives.features import FeatureGates
from dralloc.scheduler.contract import ClusterView
from dralloc.scheduler.decide.cycle import Cycle

StudiedStrategy = str


def strategy_name(strategy: StudiedStrategy) -> str:
    return strategy


def check_strategy(strategy: str) -> None:
    """Raises BadInput if there is no such strategy."""
    if strategy != "Spread":
        raise BadInput(f"unknown strategy {strategy!r}; known: Spread")


def strategy_digest(strategy: str) -> str:
    """Equal for strategies that decide alike: the name, for one of a file its content."""
    file, colon, name = strategy.rpartition(":")
    return f"{sha256(Path(file).read_bytes()).hexdigest()}:{name}" if colon else strategy


def cycle_with(view: ClusterView, gates: FeatureGates, strategy: StudiedStrategy) -> Cycle:
    """Raises BadInput."""
    check_strategy(strategy)
    return Cycle(view, gates)
