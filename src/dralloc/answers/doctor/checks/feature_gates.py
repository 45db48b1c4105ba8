"""Feature gates that are on in one component and off in another."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Final

from dralloc.answers.doctor.check import Finding, HealthCheck, Observation
from dralloc.answers.doctor.cluster_facts import ClusterFacts, Fact, Unchecked
from dralloc.answers.side_facts import ComponentGates
from dralloc.kube.core_v1 import ConfigMap
from dralloc.kube.diagnostics import Severity
from dralloc.primitives.features import GATES

API_SERVER: Final = "apiserver"


def _look(facts: ClusterFacts) -> Iterator[Observation]:
    known = facts.components
    if (unread := facts.unread(Fact.GATES)) is not None:
        yield unread
    elif len(known) < 2:
        only = f"only those of {known[0].component} are known" if known else "those of no component are known"
        yield Unchecked(f"gates are compared between components, and {only}; name others with --metrics", True)
    for gate in GATES:
        on = [each for each in known if each.gates.get(gate) is True]
        off = [each for each in known if each.gates.get(gate) is False]
        if on and off:
            yield _finding(gate, on, off)


def _finding(gate: str, on: list[ComponentGates], off: list[ComponentGates]) -> Finding:
    server_has_it = any(each.component == API_SERVER for each in on)
    server_is_known = server_has_it or any(each.component == API_SERVER for each in off)
    wrong, value = (off, "true") if server_has_it or not server_is_known else (on, "false")
    return Finding(
        subject=f"feature gate {gate}",
        severity=Severity.ERROR if server_has_it else Severity.WARNING,
        message=f"on in {_names(on)}, off in {_names(off)}",
        evidence=tuple(
            f"{each.component}: {gate} is {'on' if each in on else 'off'}, from {each.known_from}"
            for each in (*on, *off)
        ),
        advice="Restart the component with the gates of the API server: add this to its other options. Claims with fields of a gate "
        "that the server has and the scheduler lacks wait for ever; fields that only the scheduler knows are dropped by the server.",
        commands=tuple(_command(each.component, gate, value) for each in wrong),
    )


def _names(components: list[ComponentGates]) -> str:
    return ", ".join(each.component for each in components)


def _command(component: str, gate: str, value: str) -> str:
    """The start of the component; components of Kubernetes have the option, too."""
    first = component.partition(" ")[0]
    program = f"dralloc {first}" if first in ("apiserver", "scheduler", "controllers", "node") else shlex.quote(first)
    return f"{program} --feature-gates {gate}={value}"


FEATURE_GATES: Final = HealthCheck(
    id="feature-gates",
    title="feature gates that differ between components",
    why="One component writes fields that another one drops or does not understand.",
    look=_look,
    uses=(ConfigMap,),
    facts=(Fact.GATES,),
)
