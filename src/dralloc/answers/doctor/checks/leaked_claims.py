"""Claims that hold devices for no user: allocated and not reserved, or reserved for what is gone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from dralloc.answers.doctor.check import Finding, HealthCheck, Observation, json_patch
from dralloc.answers.doctor.cluster_facts import ClusterFacts, Unchecked, write_of, written_at
from dralloc.controllers.claim_creation import is_done
from dralloc.devices.identity import ClaimId
from dralloc.kube.apps_v1 import DaemonSet, Deployment
from dralloc.kube.batch_v1 import Job
from dralloc.kube.diagnostics import Severity
from dralloc.kube.meta_v1 import ApiObject
from dralloc.kube.pod_claims import claims_of, is_pod, may_use
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.resource_v1 import ConsumerReference, ResourceClaim
from dralloc.kube.scheduling_v1beta1 import PodGroup
from dralloc.kube.timestamps import stated_time
from dralloc.primitives.phrases import counted

# --- Claim holders --------------------------------------------------------------------------------------------------
# Who holds claims: which entries of `status.reservedFor` still exist, and which pods use a claim.


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


def _look(facts: ClusterFacts) -> Iterator[Observation]:
    holders = ClaimHolders(facts)
    unknown: set[str] = set()
    for claim in facts.objects.all(ResourceClaim).values():
        if claim.status.allocation is None or claim.metadata.deletion_timestamp is not None:
            continue
        if not facts.knows(Pod, claim.metadata.namespace):
            unknown.add(claim.metadata.namespace)
        elif facts.is_lasting(written_at(claim.metadata)):
            yield from _leak(facts, holders, claim)
    if unknown:
        reason = facts.why_unknown(Pod) or f"no pods were read of namespace {', '.join(sorted(unknown))}"
        yield Unchecked(f"claims with devices in {counted(len(unknown), 'namespace')}: {reason}")


def _leak(facts: ClusterFacts, holders: ClaimHolders, claim: ResourceClaim) -> Iterator[Finding]:
    listed, gone = claim.status.reserved_for, list(holders.gone(claim))
    if holders.users(claim) and len(gone) == len(listed):
        # A pod that is not listed uses it, or will be listed when it is scheduled.
        return
    if len(gone) < len(listed):
        if not gone:
            return
        message = f"reserved for {len(gone)} of {counted(len(listed), 'user')} that are gone: they count against the limit of users"
        severity = Severity.WARNING
    else:
        message = "allocated, and no user holds it" if not listed else "allocated for users that are all gone"
        severity = Severity.ERROR
    yield Finding(
        subject=f"resourceclaim {ClaimId.of(claim)}",
        severity=severity,
        message=message,
        evidence=tuple(_evidence(facts, holders, claim)),
        advice="First see whether the controller of claims runs (kube-controller-manager, or dralloc controllers): it does this by "
        "itself, except for claims that were allocated by hand. The command does nothing if the claim has changed.",
        commands=(json_patch("resourceclaim", claim.metadata, list(release_steps(claim, holders)), status=True),),
    )


def _evidence(facts: ClusterFacts, holders: ClaimHolders, claim: ResourceClaim) -> Iterator[str]:
    yield devices_text(claim)
    assert claim.status.allocation is not None, "only allocated claims are looked at"
    if (allocated := stated_time(claim.status.allocation.allocation_timestamp)) is not None:
        yield f"allocated {facts.ago(allocated)}"
    yield write_of(facts, claim.metadata)
    if not claim.status.reserved_for:
        yield "status.reservedFor is empty, and no pod that runs uses the claim"
    for _, reference, why in holders.gone(claim):
        yield f"status.reservedFor has {reference_text(reference)} (uid {reference.uid}): {why}"


def release_steps(claim: ResourceClaim, holders: ClaimHolders) -> Iterator[dict[str, Any]]:
    """The steps of a JSON patch that removes users that are gone, and the allocation if no user is left.

    A server refuses to remove an allocation while a user is listed, so that a pod that came in between keeps its devices.
    """
    gone = list(holders.gone(claim))
    for index, reference, _ in gone:
        yield {"op": "test", "path": f"/status/reservedFor/{index}/uid", "value": reference.uid}
    for index, _, _ in reversed(gone):
        yield {"op": "remove", "path": f"/status/reservedFor/{index}"}
    if len(gone) == len(claim.status.reserved_for):
        yield {"op": "remove", "path": "/status/allocation"}
        if claim.status.devices:
            yield {"op": "remove", "path": "/status/devices"}


LEAKED_CLAIMS: Final = HealthCheck(
    id="leaked-claim",
    title="claims that are allocated and that no user holds",
    why="Their devices are idle, and no pod can get them.",
    look=_look,
    needs=(ResourceClaim, Pod),
    uses=WORKLOADS,
)
