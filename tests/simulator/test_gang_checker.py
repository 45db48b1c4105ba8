"""The gang checker reports gangs that are half placed for too long, and no others."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.simulator.change_checker import CLAIMS, PODS
from tests.simulator.gang_checker import GROUPS, MIN_COUNT, TORN_MAX_S, GangChecker
from tests.simulator.history import CommittedChange

Change = tuple[str, dict[str, Any] | None]
LONG_S = TORN_MAX_S + 1


def group(min_count: int = 2, *, was_scheduled: bool = False) -> Change:
    conditions = [{"type": "PodGroupInitiallyScheduled", "status": "True"}] if was_scheduled else []
    return f"{GROUPS}default/g", {
        "metadata": {"name": "g", "namespace": "default", "uid": "uid-g"},
        "spec": {"schedulingPolicy": {"gang": {"minCount": min_count}}},
        "status": {"conditions": conditions},
    }


def member(name: str, node: str = "", *, claim: str = "", phase: str = "Pending", **more: Any) -> Change:
    spec: dict[str, Any] = {"schedulerName": "s", "schedulingGroup": {"podGroupName": "g"}, **more}
    if node:
        spec["nodeName"] = node
    if claim:
        spec["resourceClaims"] = [{"name": "c", "resourceClaimName": claim}]
    metadata = {"name": name, "namespace": "default", "uid": f"uid-{name}"}
    return f"{PODS}default/{name}", {"metadata": metadata, "spec": spec, "status": {"phase": phase}}


def claim(name: str, *consumers: str) -> Change:
    status = {"allocation": {}, "reservedFor": [{"uid": each, "resource": "x", "name": "y"} for each in consumers]}
    return f"{CLAIMS}default/{name}", {"metadata": {"name": name}, "spec": {}, "status": status if consumers else {}}


def gone(name: str) -> Change:
    return f"{PODS}default/{name}", None


def told(checker: GangChecker, *changes: Change) -> GangChecker:
    for key, stored in changes:
        checker.on_change(CommittedChange(1, key, None if stored is None else msgspec.json.encode(stored), None))
    return checker


BOTH = (group(), member("a"), member("b"))
HALF = (*BOTH, member("a", "node-a"))

TORN: dict[str, tuple[tuple[Change, ...], str]] = {
    "no member has a node": (BOTH, ""),
    "one of two has a node": (HALF, "1 of 2 members have nodes"),
    "both have nodes": ((*HALF, member("b", "node-a")), ""),
    "a group whose pods are placed one by one": ((group(1), *HALF[1:]), ""),
    "a gang that had all its members": ((*HALF, member("b", "node-a"), gone("b"), member("c")), ""),
    "a gang that lost the member with a node": ((*HALF, gone("a"), member("c")), ""),
    "a gang that begins anew after it lost all": (
        (*HALF, gone("a"), member("c"), member("c", "node-a")),
        "1 of 2 members have nodes",
    ),
    "a gang that was resized meanwhile": ((*HALF, group(3)), ""),
    "a finished member does not count": (
        (*BOTH, member("a", "node-a", phase="Succeeded"), member("c"), member("b", "node-a")),
        "1 of 2 members have nodes",
    ),
    "devices for members without nodes": (
        (group(), member("a", claim="x"), member("b"), claim("x", "uid-a")),
        "no member has a node, and default/x are allocated",
    ),
    "devices that another pod may use": (
        (group(), member("a", claim="x"), member("b"), claim("x", "uid-a", "uid-other")),
        "",
    ),
    "devices of the group for members without nodes": (
        (group(), member("a", claim="x"), member("b"), claim("x", "uid-g")),
        "default/x are allocated",
    ),
    "devices that the group keeps until it has members again": (
        (group(was_scheduled=True), member("a", claim="x"), claim("x", "uid-g")),
        "",
    ),
    "devices of a group that never was scheduled and has too few members": (
        (group(), member("a", claim="x"), claim("x", "uid-g")),
        "default/x are allocated",
    ),
}


@pytest.mark.parametrize("case", TORN)
def test_gangs_that_are_torn(case: str) -> None:
    changes, says = TORN[case]
    checker = told(GangChecker(), *changes)
    found = "; ".join(checker.torn())
    assert (says in found) if says else not found
    checker.tick(LONG_S, lambda _: True)
    assert bool(checker.violations) is bool(says)


def test_time_counts_only_while_the_scheduler_can_work() -> None:
    checker = told(GangChecker(), *HALF)
    checker.tick(LONG_S, lambda _: False)
    checker.tick(TORN_MAX_S - 1, lambda name: name == "s")
    assert not checker.violations
    checker.tick(2, lambda name: name == "s")
    assert checker.violations == ["PodGroup/default/g is half placed for 60 s: 1 of 2 members have nodes"]


def test_a_scheduler_that_begins_anew_may_find_no_room_for_the_rest() -> None:
    checker = told(GangChecker(), *HALF)
    checker.restarted("s")
    checker.tick(LONG_S, lambda _: True)
    assert not checker.violations


def test_pods_with_an_annotation_are_the_gang_of_an_owner() -> None:
    checker = GangChecker()
    key, stored = claim("x")
    assert stored is not None
    stored["spec"] = {"reservedFor": {"uid": "uid-owner", "name": "o", "resource": "trainings"}}
    told(checker, (key, stored))
    for name, node in (("a", "node-a"), ("b", "")):
        key, pod = member(name, node, claim="x", schedulingGroup={})
        assert pod is not None
        pod["metadata"]["annotations"] = {MIN_COUNT: "2"}
        told(checker, (key, pod))
    assert "; ".join(checker.torn()) == "owner/default/uid-owner is half placed: 1 of 2 members have nodes"
