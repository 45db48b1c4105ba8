"""What a controller plans for one key. Apart from the loop, so that pure plans do not import it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

Action = TypeVar("Action")


@dataclass(frozen=True, slots=True)
class PlannedActions(Generic[Action]):
    """Actions in their order, and after how long to plan again even if nothing changes."""

    actions: Sequence[Action] = ()
    look_again_s: float | None = None
