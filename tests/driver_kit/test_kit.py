"""The conformance kit: a good driver passes all checks, and each kind of violation is found by its check."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from dralloc.client.async_client import AsyncClient
from dralloc.driver import (
    Driver,
)
from dralloc.driver_kit.check import Check, CheckOutcome, CheckResult
from dralloc.driver_kit.checks import ALL
from dralloc.driver_kit.claim_maker import exactly
from dralloc.driver_kit.driver_under_test import DriverTraces, DriverUnderTest, InjectableFaults, Patience
from dralloc.driver_kit.findings import Finding, Remark
from dralloc.driver_kit.kit import run_checks
from dralloc.kube.resource_v1 import ResourceClaim
from dralloc.testing.driver_bench import NODE, bench_server, bench_settings
from tests.driver_kit.violations import CASES, PATIENT, QUICK, Case
from tests.support import spoilt_calls as spoilt
from tests.support.broken_driver import Broken, BrokenDriver, running_broken
from tests.support.kit_drivers import GoodDriver, Hardware

BY_ID = {check.id: check for check in ALL}


def results_of(
    directory: Path,
    checks: Iterable[Check],
    broken: Broken | None = None,
    *,
    make_driver: Callable[[Hardware, int], Driver] = lambda hardware, _: GoodDriver(hardware),
    settings: dict[str, Any] | None = None,
    patience: Patience = PATIENT,
) -> list[CheckResult]:
    """The results for a driver with this fault."""

    async def run() -> list[CheckResult]:
        usual = {"repair_delay_s": 0.05, "health_interval_s": 0.1, "cdi_dir": directory / "cdi"}
        inner = bench_settings(directory / "in", **{**usual, **(settings or {})})
        hardware = Hardware()
        front = directory / "front"
        front.mkdir()
        async with bench_server() as transport:
            tested = BrokenDriver(partial(make_driver, hardware), broken or Broken(), transport, inner, front)
            async with running_broken(tested):
                subject = DriverUnderTest(
                    place=front / "driver-reg.sock",
                    node_name=NODE,
                    patience=patience,
                    client=AsyncClient(transport),
                    restarter=tested,
                    traces=DriverTraces(cdi_dirs=(directory / "cdi",), checkpoint=(inner.plugins_dir,)),
                    faults=InjectableFaults(process=tested, api=tested.api, device=hardware),
                    is_alone=True,
                )
                await subject.connect()
                try:
                    return [result async for result in run_checks(subject, list(checks))]
                finally:
                    await subject.disconnect()

    return asyncio.run(run())


@pytest.mark.slow
def test_a_good_driver_passes_all_checks(directory: Path) -> None:
    results = results_of(directory, ALL, settings={"vanished_after_s": 0.2})
    assert [(result.check.id, result.findings, result.skipped) for result in results] == [
        (check.id, (), "") for check in ALL
    ]


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.check}: {case.id}")
def test_every_kind_of_violation_is_found(directory: Path, case: Case) -> None:
    (result,) = results_of(
        directory,
        [BY_ID[case.check]],
        case.broken,
        make_driver=case.make_driver,
        settings=case.settings,
        patience=case.patience,
    )
    assert result.outcome is CheckOutcome.FAILED, f"{result.skipped or 'it passed'}"
    assert any(case.want in finding.text for finding in result.findings), result.findings


# The checks that find a fault which real drivers have, and what else each broken driver fails.
KNOWN_FAULTS = [check for check in ALL if check.known_fault]
ALSO_FAILED = {"prepare.shares": {"prepare.two-shares"}}


@pytest.mark.slow
@pytest.mark.parametrize("check", KNOWN_FAULTS, ids=lambda check: check.id)
def test_a_known_fault_is_found_by_its_check_alone(directory: Path, check: Check) -> None:
    case = next(case for case in CASES if case.check == check.id)
    results = results_of(
        directory,
        KNOWN_FAULTS,
        case.broken,
        make_driver=case.make_driver,
        settings={"vanished_after_s": 600.0 if check.id == "checkpoint.deleted" else 0.1, **(case.settings or {})},
        patience=replace(QUICK, cleanup_s=0.5 if check.id == "checkpoint.deleted" else 10.0),
    )
    failed = {result.check.id for result in results if result.outcome is CheckOutcome.FAILED}
    assert failed == {check.id} | ALSO_FAILED.get(check.id, set()), [result.findings for result in results]
    assert all(result.findings or not result.skipped for result in results)


def test_the_faults_of_the_field_are_all_known() -> None:
    assert {check.known_fault for check in KNOWN_FAULTS} == {
        "stale prepare after unprepare",
        "deleted claims left in the checkpoint",
        "claims of several drivers pollute the checkpoint",
        "partial failure that blocks rollback",
        "zombie claims with finalizers",
        "wrong generation on republish",
        "slices of other nodes",
        "shareID ignored",
        "health that lies",
    }
    assert {check.injects for check in ALL} >= {
        "driver slow",
        "driver dead and restarted",
        "driver killed during a call",
        "disk full",
        "device lost",
        "API server away",
        "API server slow",
    }


def test_every_check_has_a_violation_that_it_finds() -> None:
    checked_apart = {"slices.published", "slices.history"}
    assert {case.check for case in CASES} | checked_apart == set(BY_ID)


@pytest.mark.slow
def test_failing_the_whole_call_as_the_kubernetes_helper_does_is_a_remark(directory: Path) -> None:
    (result,) = results_of(directory, [BY_ID["prepare.partial"]], Broken(prepare=spoilt.one_bad_apple_fails_the_call))
    assert result.outcome is CheckOutcome.REMARKED
    assert [type(finding) for finding in result.findings] == [Remark]


@pytest.mark.slow
def test_claims_are_deleted_if_the_driver_cannot_release_them(directory: Path) -> None:
    """A driver without a supported version cannot be called to release claims."""

    async def count_claims(subject: DriverUnderTest) -> Iterable[Finding]:
        return [Remark(f"{len(await subject.server.list(ResourceClaim))} claims")]

    none = Broken(
        get_info=spoilt.changed(lambda info: info.supported_versions.__setitem__(slice(None), ["v1alpha4.Node"]))
    )
    counting = replace(BY_ID["prepare.answer"], run=count_claims)
    first, second = results_of(directory, [BY_ID["prepare.answer"], counting], none)
    assert first.skipped == "the driver advertises no version that a kubelet supports"
    assert second.findings == (Remark("0 claims"),)


@pytest.mark.slow
def test_a_claim_that_cannot_be_allocated_is_explained(directory: Path) -> None:
    async def ask_for_many(subject: DriverUnderTest) -> Iterable[Finding]:
        await subject.claim([exactly("many", subject.claims.class_name, count=30)])
        return []

    async def look_for_many(subject: DriverUnderTest) -> Iterable[Finding]:
        await subject.claims.find(await subject.unallocated_claim([exactly("many", "driver-test-node-a", count=30)]))
        return []

    asked = [replace(BY_ID["prepare.answer"], run=each) for each in (ask_for_many, look_for_many)]
    for number, result in enumerate(results_of(directory, asked), start=1):
        assert result.outcome is CheckOutcome.NOT_TESTED
        assert result.skipped.startswith(f"no devices of gpu.example.com fit claim driver-test-{number}: ")
        assert "Impossible" not in result.skipped


@pytest.mark.slow
def test_checks_without_claims_run_without_an_api_server(directory: Path) -> None:
    async def run() -> list[CheckResult]:
        front = directory / "front"
        front.mkdir()
        async with bench_server() as transport:
            inner = bench_settings(directory / "in")
            tested = BrokenDriver(lambda _: GoodDriver(Hardware()), Broken(), transport, inner, front)
            async with running_broken(tested):
                # The service socket itself.
                subject = DriverUnderTest(place=front / "dra.sock", node_name=NODE)
                await subject.connect()
                try:
                    return [result async for result in run_checks(subject, ALL)]
                finally:
                    await subject.disconnect()

    outcomes = {result.check.id: result.outcome for result in asyncio.run(run())}
    assert {check for check, outcome in outcomes.items() if outcome is CheckOutcome.PASSED} == {
        "registration.versions",
        "prepare.unknown",
        "unprepare.unknown",
    }
    assert CheckOutcome.FAILED not in outcomes.values()
