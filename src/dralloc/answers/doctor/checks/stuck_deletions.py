"""Claims that are being deleted and do not go away, and what holds them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any, Final

from dralloc.answers.doctor.check import Finding, HealthCheck, Observation, delete, json_patch
from dralloc.answers.doctor.checks.leaked_claims import (
    WORKLOADS,
    ClaimHolders,
    devices_text,
    reference_text,
    release_steps,
)
from dralloc.answers.doctor.checks.node_readiness import unready_since
from dralloc.answers.doctor.cluster_facts import ClusterFacts, Unchecked
from dralloc.devices.identity import ClaimId
from dralloc.kube.core_v1 import Node
from dralloc.kube.diagnostics import Severity
from dralloc.kube.pod_claims import CLAIM_FINALIZER
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.resource_v1 import ConsumerReference, ResourceClaim
from dralloc.kube.timestamps import stated_time
from dralloc.primitives.phrases import counted


def _look(facts: ClusterFacts) -> Iterator[Observation]:
    holders = ClaimHolders(facts)
    for claim in facts.objects.all(ResourceClaim).values():
        since = stated_time(claim.metadata.deletion_timestamp)
        if since is None or not facts.is_lasting(since):
            continue
        if not facts.knows(Pod, claim.metadata.namespace):
            yield Unchecked(f"who holds claim {ClaimId.of(claim)}: pods of its namespace were not read")
            continue
        users = holders.users(claim)
        if not users or not all(pod.is_terminating and not _is_lost(facts, pod) for pod in users):
            yield _finding(facts, holders, claim, since)


def _finding(facts: ClusterFacts, holders: ClaimHolders, claim: ResourceClaim, since: datetime) -> Finding:
    users = holders.users(claim)
    gone = {index for index, _, _ in holders.gone(claim)}
    kept = [each for index, each in enumerate(claim.status.reserved_for) if index not in gone]
    finalizers = claim.metadata.finalizers
    evidence = [
        f"deleted {facts.ago(since)}; finalizers: {', '.join(finalizers) or 'none'}",
        devices_text(claim),
        *(_user_text(facts, pod) for pod in users),
        *(
            f"status.reservedFor has {reference_text(each)} (uid {each.uid}): {why}"
            for _, each, why in holders.gone(claim)
        ),
    ]
    if users:
        message, advice, commands = _held_by_pods(facts, claim, users)
    elif kept:
        names = ", ".join(map(reference_text, kept))
        message = f"being deleted, but reserved for {names}"
        advice = "The claim goes away with its users."
        commands = [delete(_kind(each), [each.name], namespace=claim.metadata.namespace) for each in kept]
    else:
        message = "being deleted; no pod uses it, and its finalizers stay"
        advice = (
            f"The controller of claims removes {CLAIM_FINALIZER} by itself: see whether it runs. Another finalizer belongs to "
            "another program, which may still have to clean up."
        )
        commands = _free(claim, holders)
    return Finding(
        subject=f"resourceclaim {ClaimId.of(claim)}",
        severity=Severity.ERROR,
        message=message,
        evidence=tuple(evidence),
        advice=advice,
        commands=tuple(commands),
    )


def _kind(reference: ConsumerReference) -> str:
    """As kubectl finds it, whatever other groups have a resource of that name."""
    return f"{reference.resource}.{reference.api_group}" if reference.api_group else reference.resource


def _held_by_pods(facts: ClusterFacts, claim: ResourceClaim, users: list[Pod]) -> tuple[str, str, list[str]]:
    """Message, advice and commands for a claim that pods use."""
    lost = [pod for pod in users if _is_lost(facts, pod)]
    running = [pod for pod in users if not pod.is_terminating]
    commands = []
    if running:
        commands.append(
            delete("pod", [pod.metadata.name for pod in running], "--wait=false", namespace=claim.metadata.namespace)
        )
    if lost:
        names = [pod.metadata.name for pod in lost]
        commands.append(delete("pod", names, "--force", "--grace-period=0", namespace=claim.metadata.namespace))
    advice = "The claim goes away with the last pod that uses it."
    if lost:
        advice += (
            " Make sure that the machine of a pod that is deleted by force is off, or the pod is not running there."
        )
    ending = f", of which {len(lost)} should have ended" if lost else ""
    return f"being deleted, but in use by {counted(len(users), 'pod')}{ending}", advice, commands


def _is_lost(facts: ClusterFacts, pod: Pod) -> bool:
    """True if the pod should have ended long ago: no node ends it. The time of a deletion includes the grace period."""
    deleted = stated_time(pod.metadata.deletion_timestamp)
    return deleted is not None and facts.is_lasting(deleted)


def _user_text(facts: ClusterFacts, pod: Pod) -> str:
    text = f"pod {pod.metadata.name} uses it: {pod.status.phase or 'Pending'}"
    if (deleted := stated_time(pod.metadata.deletion_timestamp)) is not None:
        text += f", terminating since {facts.ago(deleted)}"
    name = pod.spec.node_name
    if not name:
        return text
    node = facts.objects.all(Node).get(("", name))
    if node is None:
        return f"{text}, on node {name}" + (", which does not exist" if facts.knows(Node) else "")
    since = unready_since(node)
    return f"{text}, on node {name}" + (f", which is not ready since {facts.ago(since)}" if since is not None else "")


def _free(claim: ResourceClaim, holders: ClaimHolders) -> list[str]:
    """The commands that release the devices and remove the finalizers. Without finalizers, the server removes the claim."""
    commands = []
    if claim.status.allocation is not None:
        commands.append(json_patch("resourceclaim", claim.metadata, list(release_steps(claim, holders)), status=True))
    steps: list[dict[str, Any]] = [
        {"op": "test", "path": "/metadata/finalizers", "value": list(claim.metadata.finalizers)},
        {"op": "remove", "path": "/metadata/finalizers"},
    ]
    if claim.metadata.finalizers:
        commands.append(json_patch("resourceclaim", claim.metadata, steps))
    return commands


STUCK_DELETIONS: Final = HealthCheck(
    id="stuck-deletion",
    title="claims that are being deleted for long",
    why="A claim in deletion keeps its devices, and its namespace cannot go away.",
    look=_look,
    needs=(ResourceClaim, Pod),
    uses=(Node, *WORKLOADS),
)
