"""How a process that serves for long looks for garbage."""

from __future__ import annotations

import gc
from typing import Final

# New containers before a look at the youngest; Python's own 700 is meant for small programs.
YOUNG_MAX: Final = 10_000


def collect_rarely() -> None:
    """To be called when a process is ready: what is there by then stays, and need not be looked through again.

    API objects have no cycles, so that nearly everything goes without the collector; its looks only cost pauses.
    """
    gc.freeze()
    gc.set_threshold(YOUNG_MAX, *gc.get_threshold()[1:])
