"""The EvictionInProgress condition of a DeviceTaintRule: the progress of evictions, or a preview for the effect None."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from dralloc.api.meta_v1 import Condition
from dralloc.api.resource_v1 import EFFECT_NONE, NO_EXECUTE, DeviceTaintRule
from dralloc.api.timestamps import parse_timestamp, print_timestamp
from dralloc.primitives.phrases import counted

EVICTION_IN_PROGRESS: Final = "EvictionInProgress"
# The minimum between two writes for the same spec: 10 s, and one because written times are whole seconds.
WRITE_PAUSE: Final = timedelta(seconds=10 + 1)


@dataclass(frozen=True, slots=True)
class AffectedPods:
    pods: int = 0
    namespaces: int = 0

    def __str__(self) -> str:
        return f"{counted(self.pods, 'pod')} in {counted(self.namespaces, 'namespace')}"


@dataclass(frozen=True, slots=True)
class EvictionPreview:
    """What a rule with the effect None would do with the effect NoExecute."""

    published: int
    allocated: int
    affected: AffectedPods


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleFacts:
    """What the condition depends on. The preview scans all claims and slices, so it is computed only when needed."""

    pending: AffectedPods
    evicted: int
    preview: Callable[[], EvictionPreview]


@dataclass(frozen=True, slots=True)
class WriteRuleCondition:
    rule: DeviceTaintRule
    condition: Condition


def plan_rule(rule: DeviceTaintRule, facts: RuleFacts, now: datetime) -> WriteRuleCondition | timedelta | None:
    """The condition to write, the time to wait before it may be written, or None if it is up to date."""
    written = next((entry for entry in rule.status.conditions if entry.type == EVICTION_IN_PROGRESS), None)
    is_described = written is not None and written.observed_generation == rule.metadata.generation
    if is_described and rule.spec.taint.effect == EFFECT_NONE:
        # The preview is computed once for each spec, and not kept up to date.
        return None
    status, reason, message = _describe(rule, facts)
    if written is not None and is_described:
        if (written.status, written.reason, written.message) == (status, reason, message):
            return None
        pause = _pause_left(written, now)
        if pause > timedelta():
            return pause
    condition = Condition(
        type=EVICTION_IN_PROGRESS,
        status=status,
        reason=reason,
        message=message,
        observed_generation=rule.metadata.generation,
        last_transition_time=print_timestamp(now),
    )
    return WriteRuleCondition(rule, condition)


def _pause_left(written: Condition, now: datetime) -> timedelta:
    if written.last_transition_time is None:
        return timedelta()
    return parse_timestamp(written.last_transition_time) + WRITE_PAUSE - now


def _describe(rule: DeviceTaintRule, facts: RuleFacts) -> tuple[str, str, str]:
    """Status, reason and message of the condition."""
    so_far = f" {counted(facts.evicted, 'pod')} evicted since the controller started." if facts.evicted else ""
    match rule.spec.taint.effect:
        case "NoExecute" if facts.pending.pods:
            return "True", "PodsPendingEviction", f"{facts.pending} pending eviction.{so_far}"
        case "NoExecute" if facts.evicted:
            return "False", "Completed", f"No pods are pending eviction.{so_far}"
        case "NoExecute":
            return "False", "NotStarted", "No pods need to be evicted."
        case "None":
            return "False", "NoEffect", _describe_preview(facts.preview())
        case effect:
            return "False", "OtherEffect", f"The effect {effect} evicts no pods.{so_far}"


def _describe_preview(preview: EvictionPreview) -> str:
    return (
        f"The rule selects {counted(preview.published, 'published device')}; "
        f"{counted(preview.allocated, 'selected device')} allocated. "
        f"With the effect {NO_EXECUTE}, {preview.affected} would be evicted. Computed when the rule was last changed."
    )
