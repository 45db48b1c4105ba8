"""Settings of hypothesis, the rules that CI skips no test and that fast tests need no program, and the fixture of a small disk."""

from __future__ import annotations

import os
import signal
from collections.abc import Generator, Iterator
from contextlib import nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, settings

from tests.support.small_disk import SmallDisk
from tests.support.system_programs import SystemPrograms

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

# A shell starts background jobs with SIGINT ignored, which programs that tests start and interrupt would inherit.
signal.signal(signal.SIGINT, signal.default_int_handler)

SYSTEM_PROGRAMS = pytest.StashKey[SystemPrograms]()
IN_CI = os.environ.get("CI", "").lower() in ("1", "true")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """`-n auto`: three workers on two cores, because tests wait a third of their time for programs, sockets and disks."""
    return max(1, (os.cpu_count() or 1) * 3 // 2)


def pytest_configure(config: pytest.Config) -> None:
    directory = TemporaryDirectory(prefix="dralloc-absent-")
    config.add_cleanup(directory.cleanup)
    config.stash[SYSTEM_PROGRAMS] = SystemPrograms(Path(directory.name))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """A fast test, and what makes its fixtures, must not use what only `make system` installs."""
    is_fast = not any(map(item.get_closest_marker, ("real", "slow")))
    with item.config.stash[SYSTEM_PROGRAMS].hidden() if is_fast else nullcontext():
        return (yield)


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
