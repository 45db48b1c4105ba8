"""Which pods the scheduler would evict for a pod that does not fit: the plan of preemption, for people and programs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from dralloc.client.typed_resource import key_of
from dralloc.primitives.phrases import counted, first_few
from dralloc.scheduler.contract import PlannedVictim, PreemptionPlan
from dralloc.scheduler.decide.gang_preemption import GangPreemptionPlan


@dataclass(frozen=True, slots=True)
class PreemptionPreview:
    """`is_enabled`: the gate DRAPreemption is on, so the scheduler would do so."""

    plan: PreemptionPlan
    is_enabled: bool

    @property
    def summary(self) -> str:
        """Completes a sentence about the pod."""
        plan, condition = self.plan, "" if self.is_enabled else "with the gate DRAPreemption, "
        if not plan.victims:
            return f"{condition}would wait for pods that are leaving node {plan.node}"
        victims = first_few((str(key_of(victim.pod)) for victim in plan.victims), "pod")
        return f"{condition}would preempt {victims} on node {plan.node}"

    def lines(self) -> Iterator[str]:
        yield from map(_victim_line, self.plan.victims)
        if self.plan.leaving:
            yield f"wait for {counted(len(self.plan.leaving), 'pod')} to leave {self.plan.node}"
        if self._violations:
            yield f"this exceeds disruption budgets by {counted(self._violations, 'pod')}"
        if devices := self._devices():
            yield f"it then gets {first_few(devices, 'device')}"

    def values(self) -> dict[str, Any]:
        return {
            "enabled": self.is_enabled,
            "message": self.summary,
            "node": self.plan.node,
            "victims": list(map(_victim_values, self.plan.victims)),
            "leaving": ["/".join(key) for key in self.plan.leaving],
            "budgetViolations": self._violations,
            "devices": self._devices(),
            "isCheapest": self.plan.is_cheapest,
        }

    @property
    def _violations(self) -> int:
        return int(self.plan.cost[0]) if self.plan.cost else 0

    def _devices(self) -> list[str]:
        new = self.plan.placement.new.values()
        return [str(allocated.device) for claim in new for allocated in claim.devices]


@dataclass(frozen=True, slots=True)
class GangPreemptionPreview:
    """Like `PreemptionPreview`, for the members of a gang together."""

    plan: GangPreemptionPlan
    is_enabled: bool

    @property
    def summary(self) -> str:
        """Completes a sentence about the gang or a member of it."""
        condition = "" if self.is_enabled else "with the gate DRAPreemption, "
        if not self.plan.victims:
            return f"{condition}would wait for pods that are leaving"
        return f"{condition}would preempt {first_few((str(key_of(victim.pod)) for victim in self.plan.victims), 'pod')}"

    def lines(self) -> Iterator[str]:
        yield from map(_victim_line, self.plan.victims)
        for pod, placement in self.plan.places:
            yield f"{key_of(pod)} then gets node {placement.node}"

    def values(self) -> dict[str, Any]:
        return {
            "enabled": self.is_enabled,
            "message": self.summary,
            "victims": list(map(_victim_values, self.plan.victims)),
            "places": [{"pod": str(key_of(pod)), "node": placement.node} for pod, placement in self.plan.places],
        }


def _victim_line(victim: PlannedVictim) -> str:
    freed = f", which frees {first_few(map(str, victim.frees), 'claim')}" if victim.frees else ""
    return f"evict pod {key_of(victim.pod)} (priority {victim.pod.spec.priority or 0}) on {victim.node}{freed}"


def _victim_values(victim: PlannedVictim) -> dict[str, Any]:
    return {
        "pod": str(key_of(victim.pod)),
        "node": victim.node,
        "priority": victim.pod.spec.priority or 0,
        "frees": [str(claim_id) for claim_id in victim.frees],
    }
