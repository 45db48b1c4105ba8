"""Some hours of random life with faults, in seconds. `make soak` runs more seeds for longer; docs/track-record.md tells what they found."""

from __future__ import annotations

import pytest

from dralloc.simulator.soak import CALM, HARSH, soak
from dralloc.testing.faults import Faults
from dralloc.testing.virtual_time import run_virtual


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seed", "faults", "schedulers"), [(0, HARSH, 2), (1, HARSH, 1), (2, CALM, 2)], ids=["harsh", "one", "calm"]
)
def test_nothing_is_violated_and_nothing_leaks(seed: int, faults: Faults, schedulers: int) -> None:
    assert run_virtual(soak(seed, hours=1, faults=faults, schedulers=schedulers)) > 50
