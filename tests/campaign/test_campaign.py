"""A short campaign of kills; `make soak` runs a long one."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.campaign.campaign import run_campaign

KILLS = 5


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("on_etcd", [False, True], ids=["sqlite", "etcd"])
def test_kills_lose_no_write_give_no_device_twice_and_leave_no_gap(tmp_path: Path, on_etcd: bool) -> None:
    figures = asyncio.run(run_campaign(tmp_path, kills=KILLS, seed=14, on_etcd=on_etcd))
    assert sum(figures.kills.values()) == KILLS
    assert figures.acknowledged > KILLS
    assert figures.allocations > 0
