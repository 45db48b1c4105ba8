"""Which pods belong into the queue: pods with our scheduler name that have no node and no scheduling gates."""

from __future__ import annotations

from collections.abc import Collection

from dralloc.client.informer import Informer
from dralloc.kube.pod_v1 import Pod

QueueKey = tuple[str, str, str]


def queue_key(pod: Pod) -> QueueKey:
    """Namespace, name and UID: a pod that was created again under the same name is another pod."""
    return (pod.metadata.namespace, pod.metadata.name, pod.metadata.uid)


class PendingPods:
    def __init__(self, pods: Informer[Pod], scheduler_names: Collection[str]) -> None:
        self._pods = pods
        self._scheduler_names = scheduler_names
        self._gated: set[QueueKey] = set()

    @property
    def gated_count(self) -> int:
        """The number of our pods with scheduling gates. They are not in the queue."""
        return len(self._gated)

    def pod_changed(self, before: Pod | None, after: Pod | None) -> None:
        if before is not None and before.spec.scheduling_gates:
            self._gated.discard(queue_key(before))
        if after is not None and after.spec.scheduling_gates and after.spec.scheduler_name in self._scheduler_names:
            self._gated.add(queue_key(after))

    def is_pending(self, pod: Pod) -> bool:
        spec = pod.spec
        is_waiting = not spec.node_name and not spec.scheduling_gates and not pod.is_finished and not pod.is_terminating
        return is_waiting and spec.scheduler_name in self._scheduler_names

    def find(self, key: QueueKey) -> Pod | None:
        """The pod as it is now; None if it is gone, was replaced, or is not pending any more."""
        namespace, name, uid = key
        pod = self._pods.get(name, namespace)
        return pod if pod is not None and pod.metadata.uid == uid and self.is_pending(pod) else None


def may_change_outcome(before: Pod, after: Pod) -> bool:
    """True if the pod changed in a way that can change the outcome of an attempt."""
    return (
        before.spec != after.spec
        or before.metadata.labels != after.metadata.labels
        or before.status.resource_claim_statuses != after.status.resource_claim_statuses
    )
