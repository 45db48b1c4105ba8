"""Which pods belong into the queue, and which of their changes can change an outcome."""

from __future__ import annotations

from typing import Any

import pytest

from dralloc.client.informer import Informer
from dralloc.kube.pod_v1 import Pod
from dralloc.scheduler.queue.pending_pods import PendingPods, may_change_outcome
from tests.support.workloads import pod, seen


def made(status: dict[str, Any] | None = None, *, labels: dict[str, str] | None = None, **spec: Any) -> Pod:
    document = pod("p", scheduler="dralloc", labels=labels)
    return seen({**document, "spec": {**document["spec"], **spec}}, **(status or {}))


@pytest.mark.parametrize(
    ("subject", "want"),
    [
        pytest.param(made(), True, id="no node"),
        pytest.param(made(nodeName="node-a"), False, id="has a node"),
        pytest.param(made(schedulingGates=[{"name": "wait"}]), False, id="has a scheduling gate"),
        pytest.param(made(schedulerName="other"), False, id="for another scheduler"),
        pytest.param(made({"phase": "Failed"}), False, id="finished"),
    ],
)
def test_which_pods_are_pending(subject: Pod, want: bool) -> None:
    assert PendingPods(Informer(), {"dralloc"}).is_pending(subject) is want


def test_pods_with_scheduling_gates_are_counted_until_the_gate_is_removed() -> None:
    pending = PendingPods(Informer(), {"dralloc"})
    gated = made(schedulingGates=[{"name": "wait"}])
    pending.pod_changed(None, gated)
    pending.pod_changed(None, made(schedulerName="other", schedulingGates=[{"name": "wait"}]))
    assert pending.gated_count == 1
    pending.pod_changed(gated, made())
    assert pending.gated_count == 0


@pytest.mark.parametrize(
    ("after", "want"),
    [
        pytest.param(made(), False, id="nothing"),
        pytest.param(made({"phase": "Pending"}), False, id="phase"),
        pytest.param(made(labels={"app": "x"}), True, id="labels"),
        pytest.param(made(nodeSelector={"zone": "a"}), True, id="spec"),
        pytest.param(made({"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "c"}]}), True, id="claims"),
    ],
)
def test_which_changes_may_change_the_outcome(after: Pod, want: bool) -> None:
    assert may_change_outcome(made(), after) is want
