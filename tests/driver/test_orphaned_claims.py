"""Prepared claims that no longer exist and that no kubelet unprepares."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path

import pytest

from dralloc.client.api_calls import ApiCalls
from dralloc.driver import AllocatedClaim, Device, Driver, PreparedDevice, device
from dralloc.driver.checkpoint import Checkpoint
from dralloc.driver.claims import ClaimReference
from dralloc.driver.plugin import OrphanedClaims, gone_since
from dralloc.driver_kit.claim_maker import exactly
from dralloc.testing.driver_bench import bench_on, bench_server, bench_settings

A, B = ClaimReference("default", "a", "1"), ClaimReference("default", "b", "2")


def test_a_claim_is_missing_since_it_was_first_not_found() -> None:
    missing = gone_since([A], {}, 10.0)
    missing = gone_since([A, B], missing, 20.0)
    assert missing == {A: 10.0, B: 20.0}
    missing = gone_since([B], missing, 30.0)
    assert gone_since([A, B], missing, 40.0) == {A: 40.0, B: 20.0}, "it was there in between"


class Logging(Driver):
    name = "gpu.example.com"

    def __init__(self) -> None:
        self.released: list[str] = []

    def devices(self) -> Iterable[Device]:
        return [device(f"gpu-{number}") for number in range(3)]

    def prepare(self, claim: AllocatedClaim) -> Iterable[PreparedDevice]:
        return [found.prepared() for found in claim.devices]

    def unprepare(self, claim: AllocatedClaim) -> None:
        self.released.append(claim.name)


def test_an_orphaned_claim_is_released_after_the_delay(directory: Path) -> None:
    async def run() -> None:
        driver = Logging()
        async with bench_server() as transport, bench_on(transport, driver, bench_settings(directory)) as bench:
            claims = {
                name: await bench.claim(name, exactly("gpu", bench.class_name)) for name in ("gone", "there", "new")
            }
            await bench.caller.prepare(map(bench.name_of, claims.values()))
            await bench.claims.delete(claims["gone"])
            await bench.claims.delete(claims["new"])
            await bench.claims.create("new", [exactly("gpu", bench.class_name)])
            checkpoint = Checkpoint(bench.settings.data_dir(driver.name) / "claims")

            def looking(after_s: float) -> OrphanedClaims:
                return OrphanedClaims(
                    ApiCalls(transport),
                    checkpoint,
                    bench.plugin._preparer,
                    after_s=after_s,
                    on_problem=lambda problem: pytest.fail(str(problem)),
                )

            missing = await looking(1000.0).check({})
            assert {reference.name for reference in missing} == {"gone", "new"}
            assert driver.released == [], "not yet"
            await looking(0.0).check(missing)
            assert sorted(driver.released) == ["gone", "new"]
            assert [record.reference.name for record in checkpoint.all()] == ["there"]

    asyncio.run(run())
