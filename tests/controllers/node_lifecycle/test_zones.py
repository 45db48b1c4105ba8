"""Zones: when evictions slow down or stop."""

from __future__ import annotations

import pytest

from dralloc.controllers.node_lifecycle.plan import DEFAULT_SETTINGS, TokenBucket, ZoneCount, ZoneId, zone_rates

A, B = ZoneId("r", "a"), ZoneId("r", "b")


@pytest.mark.parametrize(
    ("ready", "unready", "rate"),
    [
        (10, 0, 0.1),
        (1, 2, 0.1),  # two of three are no disruption
        (2, 3, 0.0),
        (46, 54, 0.1),
        (45, 55, 0.01),
        (20, 30, 0.0),  # 50 nodes are not large
        (20, 31, 0.01),
        (0, 5, 0.1),  # all of a zone, but not of the cluster
    ],
)
def test_the_rate_of_a_zone_beside_a_healthy_one(ready: int, unready: int, rate: float) -> None:
    rates = zone_rates({A: ZoneCount(ready, unready), B: ZoneCount(3, 0)}, DEFAULT_SETTINGS)
    assert (rates.of(A, DEFAULT_SETTINGS), rates.of(B, DEFAULT_SETTINGS), rates.is_halted) == (rate, 0.1, False)


def test_nothing_is_evicted_if_all_zones_are_gone() -> None:
    rates = zone_rates({A: ZoneCount(0, 5), B: ZoneCount(0, 1)}, DEFAULT_SETTINGS)
    assert rates.is_halted
    assert rates.of(A, DEFAULT_SETTINGS) == 0
    assert not zone_rates({}, DEFAULT_SETTINGS).is_halted


def test_tokens() -> None:
    bucket = TokenBucket()
    assert bucket.wait_s(0.1, now_s=100) == 0
    bucket.taken_s = 100
    assert bucket.wait_s(0.1, now_s=104) == 6
    assert bucket.wait_s(0.01, now_s=104) == 96
    assert bucket.wait_s(0.1, now_s=200) == 0
    assert bucket.wait_s(0, now_s=200) is None
