"""DeviceTaintRules whose selector is empty: they taint every device of every driver."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from dralloc.answers.doctor.check import Finding, HealthCheck, Observation, delete
from dralloc.answers.doctor.cluster_facts import ClusterFacts, write_of
from dralloc.kube.diagnostics import Severity
from dralloc.kube.pod_claims import claims_of
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.resource_v1 import NO_EXECUTE, NO_SCHEDULE, DeviceTaintRule, ResourceSlice
from dralloc.primitives.phrases import counted


def _look(facts: ClusterFacts) -> Iterator[Observation]:
    for rule in facts.objects.all(DeviceTaintRule).values():
        selector, effect = rule.spec.device_selector, rule.spec.taint.effect
        if selector is None or effect not in (NO_SCHEDULE, NO_EXECUTE):
            continue
        if selector.driver is None and selector.pool is None and selector.device is None:
            yield _finding(facts, rule)


def _finding(facts: ClusterFacts, rule: DeviceTaintRule) -> Finding:
    evicts = rule.spec.taint.effect == NO_EXECUTE
    devices = sum(len(each.spec.devices or ()) for each in facts.objects.all(ResourceSlice).values())
    pods = [pod for pod in facts.objects.all(Pod).values() if pod.spec.node_name and not pod.is_finished]
    users = sum(1 for pod in pods if next(claims_of(pod), None) is not None)
    name = rule.metadata.name
    return Finding(
        subject=f"devicetaintrule {name}",
        severity=Severity.ERROR if evicts else Severity.WARNING,
        message="taints every device of every driver, and "
        + ("evicts all pods that have one" if evicts else "no pod gets a device"),
        evidence=(
            f"spec.deviceSelector is empty, the effect is {rule.spec.taint.effect}",
            f"{counted(devices, 'device')} of the cluster; {counted(users, 'pod')} with claims on nodes",
            write_of(facts, rule.metadata),
        ),
        advice="If one driver, pool or device is meant, create a rule that names it. The effect None shows what a rule would do, without doing it.",
        commands=(delete("devicetaintrule", [name]),),
    )


BROAD_TAINT_RULES: Final = HealthCheck(
    id="broad-taint-rule",
    title="taint rules for every device",
    why="An empty selector selects all devices: a mistake in one rule stops every pod that uses devices.",
    look=_look,
    # Most clusters do not serve them; then there are none.
    uses=(DeviceTaintRule, ResourceSlice, Pod),
)
