"""Patterns that select the pools of a scheduler."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from dralloc.devices.identity import PoolId
from dralloc.scheduler.state.pool_ownership import owner_of


@pytest.mark.parametrize(
    ("patterns", "driver", "pool", "want"),
    [
        pytest.param((), "gpu.example.com", "a", True, id="no pattern owns every pool"),
        pytest.param(("gpu.example.com",), "gpu.example.com", "a", True, id="driver"),
        pytest.param(("gpu.example.com",), "nic.example.com", "a", False, id="other driver"),
        pytest.param(("*.example.com/rack-1-*",), "nic.example.com", "rack-1-b", True, id="wildcards"),
        pytest.param(("*.example.com/rack-1-*",), "nic.example.com", "rack-2-b", False, id="other pool"),
        pytest.param(("x", "gpu.example.com/a"), "gpu.example.com", "a", True, id="one of several"),
    ],
)
def test_patterns_select_pools(patterns: Sequence[str], driver: str, pool: str, want: bool) -> None:
    assert owner_of(patterns)(PoolId(driver, pool)) is want
