"""Settings of hypothesis, the rule that CI skips no test, and the fixture of a small disk."""

from __future__ import annotations

import os
import signal
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.support.small_disk import SmallDisk

# `make test` generates few examples, `make fuzz` (HYPOTHESIS_PROFILE=fuzz) many. There is no deadline: machines are shared.
settings.register_profile(
    "default",
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=bool(os.environ.get("CI")),
)
settings.register_profile(
    "fuzz",
    max_examples=20_000,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))

# If the machine has no kubectl, pages and tests use Debian's from `make system`.
os.environ["PATH"] += f":{Path(__file__).parents[1] / '.tools' / 'kubectl-debian' / 'usr' / 'bin'}"

# A shell starts background jobs with SIGINT ignored, which programs that tests start and interrupt would inherit.
signal.signal(signal.SIGINT, signal.default_int_handler)

IN_CI = os.environ.get("CI", "").lower() in ("1", "true")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """`-n auto`: three workers on two cores, because tests wait a third of their time for programs, sockets and disks."""
    return max(1, (os.cpu_count() or 1) * 3 // 2)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """With CI=true a skipped test counts as failed."""
    report = yield
    if IN_CI and report.skipped and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"skipped, but CI=true allows no skips: {report.longrepr}"
    return report


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[SmallDisk]:
    disk = SmallDisk(tmp_path / "disk")
    try:
        yield disk
    finally:
        disk.remove()
