"""The sizes of the batches in which pods are created."""

from __future__ import annotations

from dralloc.controllers.jobs.pod_worker_pool import batches


def test_batches_start_small_and_double() -> None:
    assert list(batches(100, 32)) == [1, 2, 4, 8, 16, 32, 32, 5]
    assert list(batches(0, 32)) == []
