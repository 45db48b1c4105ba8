"""What a DeviceTaintRule says about itself: how far its evictions are, or what it would do if it were one that evicts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from dralloc.api.meta_v1 import Condition
from dralloc.api.resource_v1 import EFFECT_NONE, NO_EXECUTE, DeviceTaintRule
from dralloc.api.timestamps import parse_timestamp, print_timestamp

EVICTION_IN_PROGRESS: Final = "EvictionInProgress"
# Between two writes about the same spec. Written times are whole seconds, so one more makes sure of it.
WRITE_PAUSE: Final = timedelta(seconds=10 + 1)


@dataclass(frozen=True, slots=True)
class AffectedPods:
    """Pods, and in how many namespaces they are."""

    pods: int = 0
    namespaces: int = 0

    def __str__(self) -> str:
        return f"{counted(self.pods, 'pod')} in {counted(self.namespaces, 'namespace')}"


@dataclass(frozen=True, slots=True)
class EvictionPreview:
    """What a rule without effect would do if it evicted."""

    published: int
    allocated: int
    struck: AffectedPods


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleFacts:
    """What is known about a rule. The preview costs a look at everything, so it is made only when it is wanted."""

    pending: AffectedPods
    evicted: int
    preview: Callable[[], EvictionPreview]


@dataclass(frozen=True, slots=True)
class WriteRuleCondition:
    """Write the condition into the rule's status."""

    rule: DeviceTaintRule
    condition: Condition


def plan_rule(rule: DeviceTaintRule, facts: RuleFacts, now: datetime) -> WriteRuleCondition | timedelta | None:
    """The status to write, or how long to wait until it may be written, or nothing."""
    written = next((entry for entry in rule.status.conditions if entry.type == EVICTION_IN_PROGRESS), None)
    is_described = written is not None and written.observed_generation == rule.metadata.generation
    if is_described and rule.spec.taint.effect == EFFECT_NONE:
        # Made once for each spec: it is a look ahead, and not a count that is kept.
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
            return "True", "PodsPendingEviction", f"{facts.pending} still to be evicted.{so_far}"
        case "NoExecute" if facts.evicted:
            return "False", "Completed", f"No pod is left to be evicted.{so_far}"
        case "NoExecute":
            return "False", "NotStarted", "No pod has to be evicted."
        case "None":
            return "False", "NoEffect", _describe_preview(facts.preview())
        case effect:
            return "False", "OtherEffect", f"Pods stay: the effect is {effect}.{so_far}"


def _describe_preview(preview: EvictionPreview) -> str:
    return (
        f"The rule selects {counted(preview.published, 'published device')}; "
        f"{counted(preview.allocated, 'selected device')} allocated. "
        f"With the effect {NO_EXECUTE}, {preview.struck} would be evicted. This was so when the rule was last changed."
    )


def counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
