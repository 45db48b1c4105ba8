"""Who holds claims: which entries of `status.reservedFor` still exist, and which pods use a claim."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from dralloc.api.apps_v1 import DaemonSet, Deployment
from dralloc.api.batch_v1 import Job
from dralloc.api.meta_v1 import ApiObject
from dralloc.api.pod_claims import claims_of, is_pod, may_use
from dralloc.api.pod_v1 import Pod
from dralloc.api.resource_v1 import ConsumerReference, ResourceClaim
from dralloc.api.scheduling_v1beta1 import PodGroup
from dralloc.controllers.claim_users import is_done
from dralloc.doctor.cluster_facts import ClusterFacts

_KINDS: Final[dict[tuple[str, str], type[ApiObject]]] = {
    ("batch", "jobs"): Job,
    ("apps", "deployments"): Deployment,
    ("apps", "daemonsets"): DaemonSet,
    ("scheduling.k8s.io", "podgroups"): PodGroup,
}
# Other kinds are taken to exist.
WORKLOADS: Final = tuple(_KINDS.values())


class ClaimHolders:
    """The pods of a cluster by the claims that they use."""

    def __init__(self, facts: ClusterFacts) -> None:
        self._facts = facts
        self._users: dict[tuple[str, str], list[Pod]] = {}
        for pod in facts.objects.all(Pod).values():
            for use in claims_of(pod):
                claim = facts.objects.all(ResourceClaim).get((pod.metadata.namespace, use.claim))
                if claim is not None and not is_done(pod) and may_use(use, claim, pod):
                    self._users.setdefault((pod.metadata.namespace, use.claim), []).append(pod)

    def users(self, claim: ResourceClaim) -> list[Pod]:
        """The pods that use the claim, listed or not, and have not finished."""
        return self._users.get((claim.metadata.namespace, claim.metadata.name), [])

    def gone(self, claim: ResourceClaim) -> Iterator[tuple[int, ConsumerReference, str]]:
        """The entries that hold the claim for no user: position, entry, and why. A workload has its claim while pods use it."""
        for index, reference in enumerate(claim.status.reserved_for):
            if why := self._why_gone(claim, reference):
                yield index, reference, why

    def _why_gone(self, claim: ResourceClaim, reference: ConsumerReference) -> str:
        key = (claim.metadata.namespace, reference.name)
        if is_pod(reference):
            pod = self._facts.objects.all(Pod).get(key)
            if pod is not None and pod.metadata.uid == reference.uid:
                return f"it has finished ({pod.status.phase or 'deleted'})" if is_done(pod) else ""
            return "it does not exist" if self._facts.knows(Pod, key[0]) else ""
        kind = _KINDS.get((reference.api_group or "", reference.resource))
        if kind is None or not self._facts.knows(kind, key[0]) or self.users(claim):
            return ""
        workload = self._facts.objects.all(kind).get(key)
        return "" if workload is not None and workload.metadata.uid == reference.uid else "it does not exist"


def reference_text(reference: ConsumerReference) -> str:
    return f"{reference.resource}/{reference.name}"


def devices_text(claim: ResourceClaim) -> str:
    """What the claim holds, as evidence."""
    allocation = claim.status.allocation
    results = allocation.devices.results if allocation is not None else ()
    shown = [f"{each.driver} {each.pool}/{each.device}" for each in results]
    more = f" and {len(shown) - 3} more" if len(shown) > 3 else ""
    return f"holds {', '.join(shown[:3]) or 'no devices'}{more}"
