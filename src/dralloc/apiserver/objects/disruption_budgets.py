"""Disruption budgets at evictions: an eviction uses up one of the disruptions that a budget allows, or is refused.

A disruption controller, which is another program, counts the disruptions. A budget that none has looked at yet limits nothing.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from dralloc.api.codec import convert
from dralloc.api.meta_v1 import LabelSelector
from dralloc.api.pod_v1 import FAILED, PENDING, SUCCEEDED
from dralloc.api.registry import POD_DISRUPTION_BUDGET
from dralloc.api.timestamps import print_timestamp
from dralloc.apiserver.documents.json_documents import Document
from dralloc.apiserver.objects.api_resources import prefix_of
from dralloc.apiserver.objects.record_lists import read_all
from dralloc.apiserver.objects.stored_form import read_document
from dralloc.apiserver.objects.writer import Writer
from dralloc.primitives.clock import Clock
from dralloc.primitives.errors import ApiError, Cause, ErrorDetails, TooManyRequests
from dralloc.store.interface import Store

_VIOLATION: Final = "Cannot evict pod as it would violate the pod's disruption budget."
_CAUSE: Final = "DisruptionBudget"
_RETRY_AFTER_S: Final = 10


class DisruptionBudgets:
    def __init__(self, store: Store, writer: Writer, clock: Clock) -> None:
        self._store = store
        self._writer = writer
        self._clock = clock

    async def use(self, pod: Document, *, dry_run: bool) -> None:
        """Use up a disruption for the eviction of the pod; raises ApiError if its budget allows none."""
        if _needs_no_budget(pod):
            return
        found = await self._budgets_of(pod)
        if len(found) > 1:
            raise ApiError(
                "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
            )
        for key in found:
            await self._writer.edit(POD_DISRUPTION_BUDGET, key, lambda budget: self._used(budget, pod), dry_run=dry_run)

    async def _budgets_of(self, pod: Document) -> list[str]:
        """The keys of the budgets that select the pod, and that a controller counts for."""
        prefix = prefix_of(POD_DISRUPTION_BUDGET, pod["metadata"].get("namespace", ""))
        records, _ = await read_all(self._store, prefix)
        return [record.key for record in records if _applies(read_document(record.value), pod)]

    def _used(self, budget: Document, pod: Document) -> Document:
        status, name = budget.get("status") or {}, budget["metadata"]["name"]
        if (status.get("observedGeneration") or 0) < (budget["metadata"].get("generation") or 0):
            raise _refusal(f"The disruption budget {name} is still being processed by the server.", _RETRY_AFTER_S)
        if _may_go_unready(budget, pod):
            return budget
        allowed = status.get("disruptionsAllowed") or 0
        if allowed <= 0:
            healthy, needed = status.get("currentHealthy") or 0, status.get("desiredHealthy") or 0
            why = f"The disruption budget {name} needs {needed} healthy pods and has {healthy} currently"
            raise _refusal(why)
        evicted = {**(status.get("disruptedPods") or {}), pod["metadata"]["name"]: print_timestamp(self._clock.now())}
        return {**budget, "status": {**status, "disruptionsAllowed": allowed - 1, "disruptedPods": evicted}}


def _needs_no_budget(pod: Document) -> bool:
    """True for pods that do not run, or end already."""
    phase = (pod.get("status") or {}).get("phase")
    return bool(pod["metadata"].get("deletionTimestamp")) or phase in (PENDING, SUCCEEDED, FAILED)


def _applies(budget: Document, pod: Document) -> bool:
    selector = (budget.get("spec") or {}).get("selector")
    if selector is None or "observedGeneration" not in (budget.get("status") or {}):
        return False
    if not selector:
        return True
    try:
        return convert(selector, LabelSelector).selects(pod["metadata"].get("labels") or {})
    except msgspec.ValidationError:
        # Budgets are stored as they are sent.
        return False


def _may_go_unready(budget: Document, pod: Document) -> bool:
    """True for a pod that is not ready, and that the budget therefore does not protect."""
    conditions: list[Any] = (pod.get("status") or {}).get("conditions") or []
    if any(each.get("type") == "Ready" and each.get("status") == "True" for each in conditions):
        return False
    if (budget.get("spec") or {}).get("unhealthyPodEvictionPolicy") == "AlwaysAllow":
        return True
    status = budget.get("status") or {}
    needed = status.get("desiredHealthy") or 0
    return needed > 0 and (status.get("currentHealthy") or 0) >= needed


def _refusal(why: str, retry_after_s: int = 0) -> TooManyRequests:
    return TooManyRequests(_VIOLATION, details=ErrorDetails(causes=(Cause(_CAUSE, why),), retry_after_s=retry_after_s))
