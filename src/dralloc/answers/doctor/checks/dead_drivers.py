"""Slices of drivers that do not run: their node is gone or not ready, or says that it does not know the driver."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from typing import Final

from dralloc.answers.blockers import UNREGISTERED, is_starting
from dralloc.answers.doctor.check import Finding, HealthCheck, Observation, delete
from dralloc.answers.doctor.checks.node_readiness import unready_since, unready_text
from dralloc.answers.doctor.cluster_facts import ClusterFacts, write_of
from dralloc.kube.core_v1 import Event, Node
from dralloc.kube.diagnostics import Severity
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.resource_v1 import ResourceSlice
from dralloc.kube.timestamps import stated_time
from dralloc.primitives.phrases import counted

# A driver within a sentence.
_WORD: Final = re.compile(r"[\w-]+(?:\.[\w-]+)*")
_ADVICE: Final = (
    "A driver that runs publishes its slices again at once, so that deleting them is safe. Claims that have devices of them keep "
    "them: see which pods still use them with dralloc top devices."
)


def _look(facts: ClusterFacts) -> Iterator[Observation]:
    places: dict[tuple[str, str], list[ResourceSlice]] = {}
    for each in facts.objects.all(ResourceSlice).values():
        if each.spec.node_name:
            places.setdefault((each.spec.driver, each.spec.node_name), []).append(each)
    reports = dict(_missing_drivers(facts))
    for (driver, name), slices in sorted(places.items()):
        finding = _state_of(facts, driver, name, slices, reports.get((driver, name)))
        if finding is not None:
            yield finding


def _state_of(
    facts: ClusterFacts, driver: str, name: str, slices: list[ResourceSlice], report: tuple[datetime, str] | None
) -> Finding | None:
    node = facts.objects.all(Node).get(("", name))
    devices = sum(len(each.spec.devices or ()) for each in slices)
    if node is None:
        newest = max(slices, key=lambda each: str(each.metadata.creation_timestamp or ""))
        if not facts.knows(Node) or not facts.is_lasting(stated_time(newest.metadata.creation_timestamp)):
            # The node could not be read, or may have been created after nodes were listed.
            return None
        severity, message, seen = Severity.ERROR, f"node {name} does not exist", f"there is no node {name}"
    elif (since := unready_since(node)) is not None and facts.is_lasting(since):
        severity, message = Severity.WARNING, f"node {name} is not ready"
        seen = f"node {name} has not been ready since {facts.ago(since)}: {unready_text(node)}"
    elif report is not None:
        severity, message = Severity.ERROR, f"node {name} does not know the driver"
        seen = f"{facts.ago(report[0])}, node {name} said: {report[1]}"
    else:
        return None
    names = sorted(each.metadata.name for each in slices)
    return Finding(
        subject=f"driver {driver} on node {name}",
        severity=severity,
        message=f"{message}, but {counted(len(slices), 'slice')} of it with {counted(devices, 'device')} remain",
        evidence=(seen, *(f"resourceslice {each.metadata.name}: {write_of(facts, each.metadata)}" for each in slices)),
        advice=_ADVICE,
        commands=(delete("resourceslice", names),),
    )


def _missing_drivers(facts: ClusterFacts) -> Iterator[tuple[tuple[str, str], tuple[datetime, str]]]:
    """By driver and node: the newest report of a node that it does not know the driver, while its pod waits."""
    drivers = {each.spec.driver for each in facts.objects.all(ResourceSlice).values()}
    pods = facts.objects.all(Pod)
    newest: dict[tuple[str, str], tuple[datetime, str]] = {}
    for event in facts.objects.all(Event).values():
        if event.type != "Warning" or not any(words in event.message for words in UNREGISTERED):
            continue
        subject = event.involved_object
        pod = pods.get((subject.namespace, subject.name))
        time = stated_time(event.last_timestamp or event.event_time or event.first_timestamp)
        # The pod that waits for the driver proves that it is still missing.
        if time is None or pod is None or not is_starting(pod):
            continue
        for driver in drivers & set(_WORD.findall(event.message)):
            place = (driver, pod.spec.node_name)
            newest[place] = max(newest.get(place, (time, "")), (time, event.message))
    yield from newest.items()


DEAD_DRIVERS: Final = HealthCheck(
    id="dead-driver",
    title="slices of drivers that do not run",
    why="The scheduler allocates devices that no driver can prepare, and the pods that get them never start.",
    look=_look,
    needs=(ResourceSlice, Node),
    uses=(Event, Pod),
)
