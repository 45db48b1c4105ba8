"""Claims that hold devices for no user: allocated and not reserved, or reserved for what is gone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from dralloc.api.diagnostics import Severity
from dralloc.api.pod_v1 import Pod
from dralloc.api.resource_v1 import ResourceClaim
from dralloc.api.timestamps import stated_time
from dralloc.devices.identity import ClaimId
from dralloc.doctor.check import Finding, HealthCheck, Observation
from dralloc.doctor.checks.claim_holders import WORKLOADS, ClaimHolders, devices_text, reference_text
from dralloc.doctor.cluster_facts import ClusterFacts, write_of, written_at
from dralloc.doctor.shell import json_patch
from dralloc.doctor.unchecked import Unchecked
from dralloc.primitives.phrases import counted


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
