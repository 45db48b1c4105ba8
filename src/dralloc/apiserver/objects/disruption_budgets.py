"""Disruption budgets at evictions: an eviction uses up one of the disruptions that a budget allows, or is refused.

A disruption controller, which is another program, counts the disruptions. A budget that none has looked at yet limits nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from dralloc.api.codec import convert
from dralloc.api.pod_v1 import Pod
from dralloc.api.policy_v1 import PodDisruptionBudget, budgets_of
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
from dralloc.store.records import Record

_VIOLATION: Final = "Cannot evict pod as it would violate the pod's disruption budget."
_CAUSE: Final = "DisruptionBudget"
_RETRY_AFTER_S: Final = 10


class DisruptionBudgets:
    def __init__(self, store: Store, writer: Writer, clock: Clock) -> None:
        self._store = store
        self._writer = writer
        self._clock = clock

    async def use(self, pod: Record, *, dry_run: bool) -> bool:
        """Use up a disruption for the eviction of the stored pod; raises ApiError if its budget allows none.

        False if the eviction needs none: no budget protects the pod as it is.
        """
        typed = convert(read_document(pod.value), Pod)
        prefix = prefix_of(POD_DISRUPTION_BUDGET, typed.metadata.namespace)
        records, _ = await read_all(self._store, prefix)
        found = _budgets_of(records, typed)
        if len(found) > 1:
            raise ApiError(
                "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
            )
        is_protected = False

        def used(document: Document) -> Document:
            nonlocal is_protected
            budget = convert(document, PodDisruptionBudget)
            is_protected = budget.protects(typed)
            return self._used(document, budget, typed)

        for key in found:
            await self._writer.edit(POD_DISRUPTION_BUDGET, key, used, dry_run=dry_run)
        return is_protected

    def _used(self, document: Document, budget: PodDisruptionBudget, pod: Pod) -> Document:
        name, status = budget.metadata.name, budget.status
        if budget.is_stale:
            raise _refusal(f"The disruption budget {name} is still being processed by the server.", _RETRY_AFTER_S)
        if not budget.protects(pod):
            return document
        if status.disruptions_allowed <= 0:
            why = f"The disruption budget {name} needs {status.desired_healthy} healthy pods and has {status.current_healthy} currently"
            raise _refusal(why)
        now = print_timestamp(self._clock.now())
        changed = {
            "disruptionsAllowed": status.disruptions_allowed - 1,
            "disruptedPods": {**status.disrupted_pods, pod.metadata.name: now},
        }
        return {**document, "status": {**document["status"], **changed}}


def _budgets_of(records: Sequence[Record], pod: Pod) -> list[str]:
    """The keys of the budgets that apply to the pod."""
    return [record.key for record in records if _applies(read_document(record.value), pod)]


def _applies(document: Document, pod: Pod) -> bool:
    """True if the budget selects the pod, and a controller counts for it."""
    try:
        budget = convert(document, PodDisruptionBudget)
    except msgspec.ValidationError:
        # Budgets are stored as they are sent.
        return False
    return budget.is_counted and bool(budgets_of(pod, [budget]))


def _refusal(why: str, retry_after_s: int = 0) -> TooManyRequests:
    return TooManyRequests(_VIOLATION, details=ErrorDetails(causes=(Cause(_CAUSE, why),), retry_after_s=retry_after_s))
