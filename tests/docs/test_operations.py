"""The figures in docs/operations.md equal the constants in the code."""

from __future__ import annotations

from pathlib import Path

import pytest

from dralloc.api.validation.resource_claim_status import RESERVED_FOR_COUNT_MAX, RESULTS_COUNT_MAX
from dralloc.api.validation.resource_slice import ADVANCED_DEVICES_COUNT_MAX, DEVICES_COUNT_MAX
from dralloc.apiserver.credentials.certificate_authorities import AUTHORITY_LIFETIME
from dralloc.apiserver.credentials.certificates import RENEW_BEFORE, SERVER_LIFETIME
from dralloc.apiserver.http.body_reader import BODY_BYTES_MAX, BODY_TIME_MAX_S
from dralloc.apiserver.http.listener_limits import CONNECTIONS_MAX, HEAD_BYTES_MAX, STALLED_READER_S
from dralloc.client.lease_terms import DEFAULT
from dralloc.scheduler.queue.parked_pods import PARKED_MAX_S
from dralloc.scheduler.queue.scheduling_queue import BACKOFF_FIRST_S, BACKOFF_MAX_S
from dralloc.store.interface import HistoryLimits

PAGE = " ".join((Path(__file__).parents[2] / "docs" / "operations.md").read_text().split())
HISTORY = HistoryLimits()


@pytest.mark.parametrize(
    "sentence",
    [
        f"one request to the server | {BODY_BYTES_MAX >> 20} MiB, {HEAD_BYTES_MAX >> 10} KiB of headers; {BODY_TIME_MAX_S:.0f} s to send it",
        f"connections | {CONNECTIONS_MAX:,}; readers that take nothing for {STALLED_READER_S:.0f} s",
        f"{HISTORY.events_max:,} changes or {HISTORY.bytes_max >> 20} MiB",
        f"`status.reservedFor` | {RESERVED_FOR_COUNT_MAX};",
        f"devices of a claim | {RESULTS_COUNT_MAX}",
        f"devices of a slice | {DEVICES_COUNT_MAX}, or {ADVANCED_DEVICES_COUNT_MAX} with",
        f"after {PARKED_MAX_S / 60:.0f} minutes at the latest; back-off of {BACKOFF_FIRST_S:.0f} to {BACKOFF_MAX_S:.0f} s",
        f"renews the lease every {DEFAULT.retry_s:.0f} seconds and stops when it could not renew it for {DEFAULT.renew_deadline_s:.0f} seconds",
        f"takes over after {DEFAULT.lease_s} seconds.",
        f"blocks it for {DEFAULT.lease_s} seconds",
    ],
)
def test_figures(sentence: str) -> None:
    assert sentence in PAGE


def test_certificate_lifetimes() -> None:
    assert (AUTHORITY_LIFETIME.days, SERVER_LIFETIME.days, RENEW_BEFORE.days) == (3650, 365, 30)
    assert "creates a certificate authority (valid for ten years) and a server certificate (one year)" in PAGE
    assert "if it expires within thirty days" in PAGE
