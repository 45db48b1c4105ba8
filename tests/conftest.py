"""How much the random tests draw, and the rule that continuous integration runs everything."""

from __future__ import annotations

import os
import signal
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# `make test` draws few examples, `make fuzz` (HYPOTHESIS_PROFILE=fuzz) many. The machine is shared: nothing is too slow.
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

# Where the machine has no kubectl of its own, pages and tests that call it find Debian's, from `make system`.
os.environ["PATH"] += f":{Path(__file__).parents[1] / '.tools' / 'kubectl-debian' / 'usr' / 'bin'}"

# Who starts the tests in the background leaves them deaf to Ctrl-C, and with them every program that they start and interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)

IN_CI = os.environ.get("CI", "").lower() in ("1", "true")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Where CI=true is set, a test that is skipped has failed: nothing may go unseen there."""
    report = yield
    if IN_CI and report.skipped and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"skipped, but CI=true allows no skips: {report.longrepr}"
    return report
