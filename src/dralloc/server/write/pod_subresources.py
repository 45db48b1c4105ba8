"""Subresources of pods: binding to a node, and eviction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Final, Protocol

import msgspec

from dralloc.kube.codec import convert
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.policy_v1 import PodDisruptionBudget, budgets_of
from dralloc.kube.registry import POD, POD_DISRUPTION_BUDGET
from dralloc.kube.timestamps import print_timestamp
from dralloc.primitives.clock import Clock
from dralloc.primitives.errors import ApiError, Cause, Conflict, ErrorDetails, TooManyRequests
from dralloc.primitives.field_errors import FieldError, FieldPath, not_supported, required
from dralloc.server.documents.json_documents import Document
from dralloc.server.http.statuses import conflict, invalid, wrong_name
from dralloc.server.read.api_resources import key_of, prefix_of
from dralloc.server.read.record_lists import read_all
from dralloc.server.read.stored_form import read_document, read_metadata
from dralloc.server.store.interface import Store
from dralloc.server.store.records import Record
from dralloc.server.write.deleter import Deleter
from dralloc.server.write.deletion_rules import DeleteOptions, read_delete_options
from dralloc.server.write.request_bodies import member
from dralloc.server.write.write_guards import Hold
from dralloc.server.write.writer import ATTEMPTS_MAX, Writer


class BindingGuard(Protocol):
    async def __call__(self, key: str, pod: bytes, *, by_scheduler: bool) -> Hold | None: ...


class PodSubresources:
    def __init__(
        self,
        writer: Writer,
        deleter: Deleter,
        budgets: DisruptionBudgets,
        clock: Clock,
        guard: BindingGuard | None = None,
    ) -> None:
        """`guard` is asked before a pod is bound."""
        self._writer = writer
        self._budgets = budgets
        self._guard = guard
        self._deleter = deleter
        self._clock = clock

    async def bind(self, namespace: str, name: str, binding: Document, *, dry_run: bool = False) -> None:
        """Assign the pod to the node that the binding names. A pod that has a node keeps it."""
        node, expected = _node_of(name, member(binding, "target")), member(binding, "metadata")
        now = print_timestamp(self._clock.now())
        key = key_of(POD, namespace, name)
        guard = partial(self._guard, by_scheduler=bool(expected.get("uid"))) if self._guard is not None else None
        await self._writer.edit(POD, key, lambda pod: _bound(pod, node, expected, now), guard=guard, dry_run=dry_run)

    async def evict(
        self, namespace: str, name: str, eviction: Document, *, uid: str = "", dry_run: bool = False
    ) -> None:
        """Delete the pod, the one with the UID if there is one, with the eviction's options, if its disruption budget allows it."""
        named = member(eviction, "metadata").get("name")
        if named and named != name:
            raise wrong_name(named, name)
        options = read_delete_options(eviction.get("deleteOptions"), {})
        options = replace(options, uid=options.uid or uid or None, dry_run=options.dry_run or dry_run)
        key = key_of(POD, namespace, name)
        for _ in range(ATTEMPTS_MAX):
            record = await self._writer.store.get(key)
            if record is not None and options.uid is None:
                # What its budget allows is not allowed for the next pod of this name.
                options = replace(options, uid=read_metadata(record.value).uid)
            if record is None or await self._budgets.use(record, dry_run=options.dry_run):
                await self._deleter.delete(POD, key, options)
                return
            if await self._delete_version(record, options):
                return
        raise conflict(POD.group, POD.plural, name)

    async def _delete_version(self, pod: Record, options: DeleteOptions) -> bool:
        """Delete the pod as no budget protects it; false if it has changed since, and may be ready now."""
        version = options.resource_version or str(pod.revision)
        try:
            await self._deleter.delete(POD, pod.key, replace(options, resource_version=version))
        except Conflict:
            if options.resource_version or await self._writer.store.get(pod.key) == pod:
                raise
            return False
        return True


def _node_of(pod: str, target: Document) -> str:
    faults: list[FieldError] = []
    if target.get("kind", "") not in ("", "Node"):
        faults.append(not_supported(FieldPath.of("target", "kind"), target["kind"], ("Node", "<empty>")))
    node = target.get("name")
    if not isinstance(node, str) or not node:
        faults.append(required(FieldPath.of("target", "name")))
    if faults:
        raise invalid("", "Binding", pod, faults)
    return str(node)


def _bound(pod: Document, node: str, expected: Document, now: str) -> Document:
    metadata, spec, status = pod["metadata"], pod.get("spec") or {}, pod.get("status") or {}
    _check_bindable(metadata, spec, expected)
    stated = {name: text or "" for name, text in member(expected, "annotations").items()}
    annotations = {**(metadata.get("annotations") or {}), **stated}
    if annotations:
        metadata = {**metadata, "annotations": annotations}
    scheduled = {"type": "PodScheduled", "status": "True", "lastProbeTime": None, "lastTransitionTime": now}
    conditions = [entry for entry in status.get("conditions") or [] if entry.get("type") != "PodScheduled"]
    return {
        **pod,
        "metadata": metadata,
        "spec": {**spec, "nodeName": node},
        "status": {**status, "conditions": [*conditions, scheduled]},
    }


def _check_bindable(metadata: Document, spec: Document, expected: Document) -> None:
    name = metadata["name"]
    for field, shown in ("uid", "UID"), ("resourceVersion", "ResourceVersion"):
        if expected.get(field) and expected[field] != metadata[field]:
            stated, stored = expected[field], metadata[field]
            why = f"Precondition failed: {shown} in precondition: {stated}, {shown} in object meta: {stored}"
            raise conflict("", "pods/binding", name, why)
    if metadata.get("deletionTimestamp"):
        raise conflict("", "pods/binding", name, f"pod {name} is being deleted, cannot be assigned to a host")
    if spec.get("nodeName"):
        raise conflict("", "pods/binding", name, f'pod {name} is already assigned to node "{spec["nodeName"]}"')
    if spec.get("schedulingGates"):
        raise conflict("", "pods/binding", name, f"pod {name} has non-empty .spec.schedulingGates")


# --- Disruption budgets ---------------------------------------------------------------------------------------------
# Disruption budgets at evictions: an eviction uses up one of the disruptions that a budget allows, or is refused.
#
# A disruption controller, which is another program, counts the disruptions. A budget that none has looked at yet
# limits nothing.


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
