"""What is done to pods besides writing them: they are bound to a node, once, and evicted from it."""

from __future__ import annotations

from typing import Final

from dralloc.api.registry import POD
from dralloc.api.timestamps import print_timestamp
from dralloc.apiserver.documents.json_documents import Document
from dralloc.apiserver.http.statuses import conflict, invalid, not_found, wrong_name
from dralloc.apiserver.objects.api_resources import key_of
from dralloc.apiserver.objects.deleter import Deleter
from dralloc.apiserver.objects.deletion_rules import read_delete_options
from dralloc.apiserver.objects.request_bodies import member
from dralloc.apiserver.objects.stored_form import document_to_stored, read_document
from dralloc.primitives.clock import Clock
from dralloc.primitives.field_errors import FieldError, FieldPath, not_supported, required
from dralloc.store.errors import RevisionConflict
from dralloc.store.interface import Store
from dralloc.store.records import Record

BIND_ATTEMPTS_MAX: Final = 20


class PodSubresources:
    """Binds and evicts pods."""

    def __init__(self, store: Store, clock: Clock, deleter: Deleter) -> None:
        self._store = store
        self._clock = clock
        self._deleter = deleter

    async def bind(self, namespace: str, name: str, binding: Document, *, dry_run: bool = False) -> None:
        """Assign the pod to the node that the binding names. A pod that has a node keeps it."""
        node, expected = _node_of(name, member(binding, "target")), member(binding, "metadata")
        key = key_of(POD, namespace, name)
        for _ in range(BIND_ATTEMPTS_MAX):
            record = await self._store.get(key)
            if record is None:
                raise not_found("", "pods", name)
            bound = self._bound(record, node, expected)
            try:
                if not dry_run:
                    await self._store.update(key, document_to_stored(bound), expected_revision=record.revision)
                return
            except RevisionConflict:
                continue
        raise conflict("", "pods/binding", name)

    def _bound(self, record: Record, node: str, expected: Document) -> Document:
        pod = read_document(record.value)
        metadata, spec, status = pod["metadata"], pod.get("spec") or {}, pod.get("status") or {}
        _check_bindable(metadata, spec, expected)
        annotations = {**(metadata.get("annotations") or {}), **member(expected, "annotations")}
        if annotations:
            metadata = {**metadata, "annotations": annotations}
        scheduled = {
            "type": "PodScheduled",
            "status": "True",
            "lastProbeTime": None,
            "lastTransitionTime": print_timestamp(self._clock.now()),
        }
        conditions = [entry for entry in status.get("conditions") or [] if entry.get("type") != "PodScheduled"]
        return {
            **pod,
            "metadata": metadata,
            "spec": {**spec, "nodeName": node},
            "status": {**status, "conditions": [*conditions, scheduled]},
        }

    async def evict(self, namespace: str, name: str, eviction: Document) -> None:
        """Delete the pod as the eviction's options say. There are no disruption budgets to ask."""
        named = member(eviction, "metadata").get("name")
        if named and named != name:
            raise wrong_name(named, name)
        options = read_delete_options(eviction.get("deleteOptions"), {})
        await self._deleter.delete(POD, key_of(POD, namespace, name), options)


def _node_of(pod: str, target: Document) -> str:
    """The node that a binding names."""
    faults: list[FieldError] = []
    if target.get("kind", "") not in ("", "Node"):
        faults.append(not_supported(FieldPath.of("target", "kind"), target["kind"], ("Node", "<empty>")))
    node = target.get("name")
    if not isinstance(node, str) or not node:
        faults.append(required(FieldPath.of("target", "name")))
    if faults:
        raise invalid("", "Binding", pod, faults)
    return str(node)


def _check_bindable(metadata: Document, spec: Document, expected: Document) -> None:
    name = metadata["name"]
    if expected.get("uid") and expected["uid"] != metadata["uid"]:
        why = f"Precondition failed: UID in precondition: {expected['uid']}, UID in object meta: {metadata['uid']}"
        raise conflict("", "pods/binding", name, why)
    if metadata.get("deletionTimestamp"):
        raise conflict("", "pods/binding", name, f"pod {name} is being deleted, cannot be assigned to a host")
    if spec.get("nodeName"):
        raise conflict("", "pods/binding", name, f'pod {name} is already assigned to node "{spec["nodeName"]}"')
    if spec.get("schedulingGates"):
        raise conflict("", "pods/binding", name, f"pod {name} has non-empty .spec.schedulingGates")
