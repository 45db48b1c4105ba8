"""How many random cases a test tries: few in `make test`, which runs all the time, and twenty times as many in `make fuzz`."""

from __future__ import annotations

import os
from typing import Final

_FACTOR: Final = 20 if os.environ.get("HYPOTHESIS_PROFILE") == "fuzz" else 1


def seeds(count: int) -> range:
    """So many seeds, or twenty times as many; the test is marked `fuzz`."""
    return range(count * _FACTOR)
