"""Defaults of absent values, applied once."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dralloc.kube import resource_v1 as v1
from dralloc.kube.registry import KINDS
from tests.support.admission import NOW_TEXT, admission_context, document_of, stored
from tests.support.wire_objects import wire_objects

GROUP_KINDS = [kind for kind in KINDS if kind.group == v1.GROUP]


@st.composite
def hub_objects(draw: st.DrawFn) -> tuple[Any, bool, Any]:
    kind = draw(st.sampled_from(GROUP_KINDS))
    return kind.strategy, draw(st.booleans()), draw(wire_objects(kind.hub))


@pytest.mark.slow
@pytest.mark.fuzz
@given(drawn=hub_objects())
def test_resource_defaults_is_idempotent(drawn: tuple[Any, bool, Any]) -> None:
    strategy_type, flattened, obj = drawn
    strategy = strategy_type(admission_context(), flattened=flattened)
    once = strategy.default(obj)
    assert strategy.default(once) is once


def _claim(version: str, *requests: dict[str, Any]) -> list[dict[str, Any]]:
    document = {
        "apiVersion": f"resource.k8s.io/{version}",
        "kind": "ResourceClaim",
        "metadata": {"name": "c", "namespace": "default"},
        "spec": {"devices": {"requests": list(requests)}},
    }
    requests_stored: list[dict[str, Any]] = document_of(stored(document))["spec"]["devices"]["requests"]
    return requests_stored


def test_a_request_defaults_to_one_device() -> None:
    [exact, every, prioritized] = _claim(
        "v1",
        {"name": "a", "exactly": {"deviceClassName": "x", "count": 0}},
        {"name": "b", "exactly": {"deviceClassName": "x", "allocationMode": "All"}},
        {"name": "c", "firstAvailable": [{"name": "s", "deviceClassName": "x"}]},
    )
    assert exact["exactly"] == {"deviceClassName": "x", "allocationMode": "ExactCount", "count": 1}
    assert every["exactly"] == {"deviceClassName": "x", "allocationMode": "All"}
    assert prioritized["firstAvailable"][0]["count"] == 1


def test_a_flat_request_becomes_an_exact_request() -> None:
    [request] = _claim("v1beta1", {"name": "a", "deviceClassName": "x"})
    assert request == {"name": "a", "exactly": {"deviceClassName": "x", "allocationMode": "ExactCount", "count": 1}}


def test_a_toleration_defaults_to_operator_equal() -> None:
    [request] = _claim("v1", {"name": "a", "exactly": {"deviceClassName": "x", "tolerations": [{"key": "k"}]}})
    assert request["exactly"]["tolerations"] == [{"key": "k", "operator": "Equal"}]


def test_a_new_taint_gets_the_current_time() -> None:
    taints = [
        {"key": "k", "effect": "NoSchedule"},
        {"key": "k", "effect": "NoExecute", "timeAdded": "2026-01-01T02:00:00.9+01:00"},
    ]
    document = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": "s"},
        "spec": {
            "driver": "d",
            "allNodes": True,
            "pool": {"name": "p", "resourceSliceCount": 1},
            "devices": [{"name": "x", "taints": taints}],
        },
    }
    shown = document_of(stored(document))["spec"]["devices"][0]["taints"]
    assert [taint["timeAdded"] for taint in shown] == [NOW_TEXT, "2026-01-01T01:00:00Z"]
