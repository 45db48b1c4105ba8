"""Settings of Python's garbage collector for long-running servers."""

from __future__ import annotations

import gc
from typing import Final

# Allocations before a collection of the youngest generation; Python's default of 700 is for small programs.
YOUNG_MAX: Final = 10_000


def collect_rarely() -> None:
    """Freeze the existing objects and collect less often. Call it when the process is ready.

    API objects have no cycles, so reference counts free nearly everything, and collections only cost pauses.
    """
    gc.freeze()
    gc.set_threshold(YOUNG_MAX, *gc.get_threshold()[1:])
