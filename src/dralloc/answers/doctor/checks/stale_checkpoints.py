"""Checkpoints that keep claims which are gone: the node, or the driver, still has their devices prepared."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Final

from dralloc.answers.doctor.check import Finding, HealthCheck, Observation
from dralloc.answers.doctor.cluster_facts import (
    CheckpointForm,
    CheckpointRecords,
    ClusterFacts,
    PreparedClaim,
    Unchecked,
)
from dralloc.kube.diagnostics import Severity
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.resource_v1 import ResourceClaim

_NO_FILES: Final = (
    "a checkpoint is a file on a node, which no API shows: name it with --checkpoint (a kubelet's is "
    "/var/lib/kubelet/dra_manager_state)"
)


def _look(facts: ClusterFacts) -> Iterator[Observation]:
    if not facts.checkpoints:
        yield Unchecked(_NO_FILES, True)
        return
    pods = {pod.metadata.uid: pod for pod in facts.objects.all(Pod).values()}
    for file in facts.checkpoints:
        for record in file.claims:
            if not facts.knows(ResourceClaim, record.namespace):
                yield Unchecked(
                    f"claim {record.namespace}/{record.name} of {file.file}: claims of its namespace were not read"
                )
            elif facts.is_lasting(file.written) and (state := _state(facts, record, pods)) is not None:
                yield _finding(facts, file, record, *state)


def _state(facts: ClusterFacts, record: PreparedClaim, pods: dict[str, Pod]) -> tuple[Severity, str] | None:
    """Why the record is stale; None if it is not."""
    claim = facts.objects.all(ResourceClaim).get((record.namespace, record.name))
    if claim is None:
        return Severity.ERROR, "the claim does not exist"
    if claim.metadata.uid != record.uid:
        return Severity.ERROR, f"the claim of that name is another one (uid {claim.metadata.uid})"
    if claim.status.allocation is None:
        return Severity.ERROR, "the claim is not allocated any more"
    if record.pods and facts.knows(Pod, record.namespace):
        left = [pods[uid] for uid in record.pods if uid in pods and not pods[uid].is_finished]
        if not left:
            return Severity.WARNING, "the pods that it was prepared for are gone"
    return None


def _finding(
    facts: ClusterFacts, file: CheckpointRecords, record: PreparedClaim, severity: Severity, why: str
) -> Finding:
    assert file.written is not None, "what lasts has a beginning"
    path = shlex.quote(file.file)
    is_node = file.form is CheckpointForm.NODE
    drivers = ", ".join(record.drivers) or "its driver"
    return Finding(
        subject=f"claim {record.namespace}/{record.name} in {file.file}",
        severity=severity,
        message=f"still prepared by {drivers}, but {why}",
        evidence=(
            f"the record has uid {record.uid}, drivers: {drivers}"
            + (f", pods: {', '.join(sorted(record.pods))}" if record.pods else ""),
            f"the file was last written {facts.ago(file.written)}",
        ),
        advice=f"Start {drivers} on the node: a kubelet or agent unprepares such claims by itself, again and again. If the driver is gone "
        "for good, stop the "
        + ("kubelet or agent" if is_node else "driver")
        + ", run the command, and start it again.",
        commands=(f"dralloc forget --checkpoint {path} {shlex.quote(record.uid)}" if is_node else f"rm {path}",),
    )


STALE_CHECKPOINTS: Final = HealthCheck(
    id="stale-checkpoint",
    title="checkpoints of nodes and drivers that keep claims which are gone",
    why="Their devices stay prepared, and the next pod that gets one may fail to start.",
    look=_look,
    needs=(ResourceClaim,),
    uses=(Pod,),
)
