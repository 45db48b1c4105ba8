"""The EvictionInProgress condition of a taint rule."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from dralloc.controllers.taint_eviction.plan_eviction import (
    EVICTION_IN_PROGRESS,
    AffectedPods,
    EvictionPreview,
    RuleFacts,
    WriteRuleCondition,
    plan_rule,
)
from dralloc.kube.meta_v1 import Condition
from dralloc.kube.resource_v1 import (
    EFFECT_NONE,
    NO_EXECUTE,
    NO_SCHEDULE,
    DeviceTaintRule,
)
from dralloc.testing.builders import (
    taint,
    taint_rule,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def facts(pods: int = 0, namespaces: int = 0, evicted: int = 0) -> RuleFacts:
    return RuleFacts(
        pending=AffectedPods(pods, namespaces),
        evicted=evicted,
        preview=lambda: EvictionPreview(3, 1, AffectedPods(2, 1)),
    )


def a_rule(effect: str = NO_EXECUTE, *, generation: int = 1, condition: Condition | None = None) -> DeviceTaintRule:
    rule = taint_rule("r", taint("x", effect=effect))
    return replace(
        rule,
        metadata=replace(rule.metadata, generation=generation),
        status=replace(rule.status, conditions=() if condition is None else (condition,)),
    )


def written(rule: DeviceTaintRule, known: RuleFacts, now: datetime = NOW) -> Condition:
    planned = plan_rule(rule, known, now)
    assert isinstance(planned, WriteRuleCondition)
    return planned.condition


@pytest.mark.parametrize(
    ("effect", "known", "want"),
    [
        (NO_EXECUTE, facts(), ("False", "NotStarted", "No pods need to be evicted.")),
        (NO_EXECUTE, facts(3, 2), ("True", "PodsPendingEviction", "3 pods in 2 namespaces pending eviction.")),
        (
            NO_EXECUTE,
            facts(1, 1, evicted=2),
            (
                "True",
                "PodsPendingEviction",
                "1 pod in 1 namespace pending eviction. 2 pods evicted since the controller started.",
            ),
        ),
        (
            NO_EXECUTE,
            facts(evicted=1),
            ("False", "Completed", "No pods are pending eviction. 1 pod evicted since the controller started."),
        ),
        (NO_SCHEDULE, facts(), ("False", "OtherEffect", "The effect NoSchedule evicts no pods.")),
        (
            EFFECT_NONE,
            facts(),
            (
                "False",
                "NoEffect",
                "The rule selects 3 published devices; 1 selected device allocated. With the effect NoExecute, "
                "2 pods in 1 namespace would be evicted. Computed when the rule was last changed.",
            ),
        ),
    ],
    ids=["no pods", "pending", "pending and evicted", "completed", "another effect", "preview"],
)
def test_plan_rule(effect: str, known: RuleFacts, want: tuple[str, str, str]) -> None:
    condition = written(a_rule(effect), known)
    assert (condition.status, condition.reason, condition.message) == want
    assert (condition.type, condition.observed_generation) == (EVICTION_IN_PROGRESS, 1)
    assert plan_rule(a_rule(effect, condition=condition), known, NOW) is None


def test_an_update_of_the_same_spec_waits_and_a_new_spec_does_not() -> None:
    first = written(a_rule(), facts(3, 1))
    soon = plan_rule(a_rule(condition=first), facts(2, 1), NOW + timedelta(seconds=4))
    assert soon == timedelta(seconds=7)
    later = written(a_rule(condition=first), facts(2, 1), NOW + timedelta(seconds=11))
    assert later.last_transition_time == "2026-01-01T00:00:11Z"
    at_once = written(a_rule(NO_SCHEDULE, generation=2, condition=first), facts(2, 1), NOW + timedelta(seconds=4))
    assert (at_once.reason, at_once.observed_generation) == ("OtherEffect", 2)


def test_the_preview_is_computed_once_for_each_spec() -> None:
    condition = written(a_rule(EFFECT_NONE), facts())

    def again() -> EvictionPreview:
        raise AssertionError("the preview is computed once")

    known = RuleFacts(pending=AffectedPods(), evicted=0, preview=again)
    assert plan_rule(a_rule(EFFECT_NONE, condition=condition), known, NOW + timedelta(days=1)) is None
