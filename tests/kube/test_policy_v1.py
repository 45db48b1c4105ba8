"""Which evictions a disruption budget allows."""

from __future__ import annotations

from typing import Any

import pytest

from dralloc.kube.codec import convert
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.policy_v1 import PodDisruptionBudget, budgets_of

READY = [{"type": "Ready", "status": "True"}]


def budget(status: dict[str, Any] | None = None, **spec: Any) -> PodDisruptionBudget:
    metadata = {"name": "b", "namespace": "default", "generation": 2}
    selector = {"matchLabels": {"app": "web"}}
    return convert(
        {"metadata": metadata, "spec": {"selector": selector, **spec}, "status": status or {}}, PodDisruptionBudget
    )


def pod(number: int = 0, *, app: str = "web", ready: bool = True, node: str = "n", phase: str = "Running") -> Pod:
    metadata = {"name": f"p{number}", "namespace": "default", "labels": {"app": app}}
    status = {"phase": phase, "conditions": READY if ready else []}
    return convert({"metadata": metadata, "spec": {"nodeName": node}, "status": status}, Pod)


def test_which_pods_have_a_budget() -> None:
    found = budget()
    assert budgets_of(pod(), [found]) == [found]
    assert budgets_of(pod(app="other"), [found]) == []
    assert budgets_of(pod(phase="Pending"), [found]) == [], "a pod that does not run disrupts nothing"
    assert budgets_of(pod(), [budget(selector=None)]) == []
    assert budgets_of(pod(app="other"), [everything := budget(selector={})]) == [everything]


def test_what_the_controller_counted_holds() -> None:
    assert budget({"observedGeneration": 2, "disruptionsAllowed": 3}).allowed_of([]) == 3
    assert budget({"observedGeneration": 1, "disruptionsAllowed": 3}).allowed_of([]) == 0, "the count is stale"


@pytest.mark.parametrize(
    ("spec", "allowed"),
    [
        ({"minAvailable": 2}, 2),
        ({"minAvailable": "50%"}, 1),
        ({"minAvailable": "9" * 5000 + "%"}, 0),
        ({"maxUnavailable": 1}, 0),
        ({"maxUnavailable": "50%"}, 2),
        ({"minAvailable": 9}, 0),
        ({}, 4),
    ],
)
def test_without_a_controller_the_specification_and_the_pods_count(spec: dict[str, Any], allowed: int) -> None:
    """Four of five pods have a node; percentages are rounded up."""
    pods = [*(pod(number) for number in range(4)), pod(4, node=""), pod(5, app="other")]
    assert budget(**spec).allowed_of(pods) == allowed


def test_pods_that_are_not_ready_are_protected_while_too_few_are_healthy() -> None:
    healthy = {"observedGeneration": 2, "currentHealthy": 2, "desiredHealthy": 2}
    assert budget(healthy).protects(pod())
    assert not budget(healthy).protects(pod(ready=False))
    assert budget({**healthy, "currentHealthy": 1}).protects(pod(ready=False))
    assert not budget(unhealthyPodEvictionPolicy="AlwaysAllow").protects(pod(ready=False))
