"""Validation of pod affinity and topology spread constraints."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.admission import Causes, causes, create

BASE = "spec.affinity.podAffinity"
REQUIRED = f"{BASE}.requiredDuringSchedulingIgnoredDuringExecution[0]"
PREFERRED = f"{BASE}.preferredDuringSchedulingIgnoredDuringExecution[0]"
SPREAD = "spec.topologySpreadConstraints"


def pod(**spec: Any) -> dict[str, Any]:
    containers = [{"name": "main", "image": "registry.example/main:1"}]
    metadata = {"name": "p", "namespace": "default"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": containers, **spec}}


def near(**term: Any) -> dict[str, Any]:
    terms = [{"topologyKey": "zone", **term}]
    return pod(affinity={"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}})


def preferred(weight: int, **term: Any) -> dict[str, Any]:
    terms = [{"weight": weight, "podAffinityTerm": {"topologyKey": "zone", **term}}]
    return pod(affinity={"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": terms}})


def spread(*others: dict[str, Any], **members: Any) -> dict[str, Any]:
    first = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", **members}
    return pod(topologySpreadConstraints=[first, *others])


CASES: list[tuple[dict[str, Any], Causes]] = [
    (near(), []),
    (near(topologyKey=""), [("Required", f"{REQUIRED}.topologyKey")]),
    (near(topologyKey="a b"), [("Invalid", f"{REQUIRED}.topologyKey")]),
    (near(namespaces=["A"]), [("Invalid", f"{REQUIRED}.namespaces[0]")]),
    (near(matchLabelKeys=["k"]), [("Forbidden", f"{REQUIRED}.matchLabelKeys")]),
    (
        near(matchLabelKeys=["k"], mismatchLabelKeys=["k"], labelSelector={}),
        [("Invalid", f"{REQUIRED}.matchLabelKeys[0]")],
    ),
    (
        near(labelSelector={"matchExpressions": [{"key": "k", "operator": "In"}]}),
        [("Required", f"{REQUIRED}.labelSelector.matchExpressions[0].values")],
    ),
    (
        near(namespaceSelector={"matchExpressions": [{"key": "k", "operator": "Exists", "values": ["v"]}]}),
        [("Forbidden", f"{REQUIRED}.namespaceSelector.matchExpressions[0].values")],
    ),
    (
        near(labelSelector={"matchExpressions": [{"key": "k", "operator": "Gt", "values": ["1"]}]}),
        [("Invalid", f"{REQUIRED}.labelSelector.matchExpressions[0].operator")],
    ),
    (preferred(1), []),
    (preferred(0), [("Invalid", f"{PREFERRED}.weight")]),
    (
        preferred(101, topologyKey=""),
        [("Invalid", f"{PREFERRED}.weight"), ("Required", f"{PREFERRED}.podAffinityTerm.topologyKey")],
    ),
    (spread(), []),
    (spread(maxSkew=0), [("Invalid", f"{SPREAD}[0].maxSkew")]),
    (spread(topologyKey=""), [("Required", f"{SPREAD}[0].topologyKey")]),
    (spread(whenUnsatisfiable="Never"), [("NotSupported", f"{SPREAD}[0].whenUnsatisfiable")]),
    (spread(minDomains=0), [("Invalid", f"{SPREAD}[0].minDomains")]),
    (spread(minDomains=1, whenUnsatisfiable="ScheduleAnyway"), [("Invalid", f"{SPREAD}[0].minDomains")]),
    (spread(nodeTaintsPolicy="Maybe"), [("NotSupported", f"{SPREAD}[0].nodeTaintsPolicy")]),
    (
        spread({"maxSkew": 2, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}),
        [("Duplicate", f"{SPREAD}[1].{{topologyKey, whenUnsatisfiable}}")],
    ),
]


@pytest.mark.parametrize(("document", "want"), CASES)
def test_pods_with_invalid_rules_are_refused(document: dict[str, Any], want: Causes) -> None:
    assert causes(create(document)) == want
