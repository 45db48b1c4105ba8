"""The reference is up to date."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.reference.docstrings import undocumented
from scripts.reference.python import LIBRARY
from scripts.write_reference import pages

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "docs" / "reference"


@pytest.mark.slow
def test_the_reference_is_up_to_date() -> None:
    written = {path.name: path.read_text() for path in REFERENCE.glob("*.md")}
    for name, text in pages():
        assert written.pop(name) == text, f"docs/reference/{name} is out of date: run `make reference`"
    assert not written, "pages that nothing writes"


DOCUMENTED = ("dralloc.driver", *(name for _, _, modules in LIBRARY for name in modules))


@pytest.mark.parametrize("module", DOCUMENTED)
def test_every_public_name_has_a_docstring(module: str) -> None:
    assert undocumented(module) == []


# Metrics that the KEPs name for operators.
NAMED = (
    "apiserver_request_total",
    "scheduler_unschedulable_pods",
    "scheduler_plugin_execution_duration_seconds",
    "scheduler_pending_pods",
    "resourceclaim_controller_create_total",
    "resourceclaim_controller_create_failures_total",
    "resourceclaim_controller_resource_claims",
    "resourceclaim_controller_allocated_resource_claims",
    "workqueue_depth",
    "kubelet_started_containers_errors_total",
)


@pytest.mark.parametrize("name", NAMED)
def test_the_metrics_that_the_design_documents_name_exist(name: str) -> None:
    assert f"| `{name}` |" in (REFERENCE / "metrics.md").read_text()
