"""Priorities: a new pod or PodGroup gets the priority and preemption policy of its PriorityClass, or of the default class.

One that states other values than its class is refused.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec.structs import replace

from dralloc.kube.kind import Kind
from dralloc.kube.meta_v1 import ApiObject, ObjectMeta
from dralloc.kube.pod_defaults import class_of_pod, given_by, priority_refusal
from dralloc.kube.registry import POD, POD_GROUP, PRIORITY_CLASS
from dralloc.kube.scheduling_v1 import PREEMPT_LOWER, SYSTEM_CLASSES, PriorityClass
from dralloc.kube.scheduling_v1beta1 import PodGroup
from dralloc.kube.unstructured_object import UnstructuredObject, view
from dralloc.server.documents.json_documents import Document
from dralloc.server.http.statuses import forbidden
from dralloc.server.read.api_resources import key_of, name_of, prefix_of
from dralloc.server.read.store_view import RecordIndex, StoreView
from dralloc.server.read.stored_form import from_stored
from dralloc.server.store.interface import Store
from dralloc.server.store.records import Record
from dralloc.server.write.write_guards import GuardedView, GuardLedger, Hold


class PodPriorities:
    """The priority classes by name. As a write guard it refuses a second default class."""

    def __init__(self, store: Store) -> None:
        self._store = store
        prefix = prefix_of(PRIORITY_CLASS)
        self._classes = StoreView(store, (prefix,), _Classes)
        self._defaults = GuardedView[_Defaults, str](store, prefix, _Defaults, fence="default-class")

    async def given_to(self, pod: UnstructuredObject) -> UnstructuredObject:
        """The new pod with the priority of its class."""
        spec = pod.member("spec")
        given = await self._given(POD, pod.metadata, spec.get("priorityClassName") or "", spec)
        return replace(pod, content={**pod.content, "spec": {**spec, **given}})

    async def given_to_group(self, group: PodGroup, *, with_policy: bool) -> PodGroup:
        """The new group with the priority of its class, and its preemption policy if groups have one."""
        spec = group.spec
        stated = {"priority": spec.priority, "preemptionPolicy": spec.preemption_policy if with_policy else None}
        given = await self._given(POD_GROUP, group.metadata, spec.priority_class_name, stated)
        spec = replace(
            spec,
            priority=given["priority"],
            priority_class_name=given.get("priorityClassName", spec.priority_class_name),
            preemption_policy=given["preemptionPolicy"] if with_policy else spec.preemption_policy,
        )
        return replace(group, spec=spec)

    async def _given(self, kind: Kind, metadata: ObjectMeta, name: str, stated: Mapping[str, Any]) -> dict[str, Any]:
        """The fields that the class decides; refuses an object that states other values."""
        await self._classes.ready()
        found = await self._find(name)
        refusal = priority_refusal(name, found, stated)
        if refusal is not None or found is None:
            raise forbidden(kind.group, kind.plural, metadata.name or metadata.generate_name, refusal or "")
        given = given_by(found)
        return {**given, "priorityClassName": found.metadata.name} if found.metadata.name else given

    async def hold(self, key: str, new: ApiObject, old: ApiObject | None) -> Hold | None:  # noqa: ARG002
        assert isinstance(new, UnstructuredObject), "classes are modelled in part"
        if not view(new, PriorityClass).global_default:
            return None
        await self._defaults.ready()
        others = self._defaults.ledger.names.keys() - {name_of(key)}
        if others:
            why = f"PriorityClass {min(others)} is the default already; only one class can have globalDefault"
            raise forbidden(PRIORITY_CLASS.group, PRIORITY_CLASS.plural, name_of(key), why)
        return self._defaults.hold(key, name_of(key))

    async def stop(self) -> None:
        await self._classes.stop()
        await self._defaults.stop()

    async def _find(self, name: str) -> PriorityClass | None:
        found = class_of_pod(name, self._classes.index.by_name)
        if found is None:
            # The view may lag behind the store.
            record = await self._store.get(key_of(PRIORITY_CLASS, "", name))
            return _read(record) if record is not None else None
        return found


class _Classes(RecordIndex):
    def __init__(self) -> None:
        self.by_name: dict[str, PriorityClass] = {}

    def _put(self, key: str, record: Record | None) -> None:
        self.by_name.pop(name_of(key), None)
        if record is not None:
            self.by_name[name_of(key)] = _read(record)


class _Defaults(GuardLedger[str]):
    """The names of the classes that are the default."""

    def __init__(self) -> None:
        super().__init__(_default_name, self._count)
        self.names: Counter[str] = Counter()

    def _count(self, name: str, sign: int) -> None:
        self.names[name] += sign
        if not self.names[name]:
            del self.names[name]


def _default_name(record: Record) -> str | None:
    return name_of(record.key) if _read(record).global_default else None


def _read(record: Record) -> PriorityClass:
    stored = from_stored(PRIORITY_CLASS, record.value)
    assert isinstance(stored, UnstructuredObject), "classes are modelled in part"
    return view(stored, PriorityClass)


def system_classes() -> Iterator[tuple[str, Document]]:
    """The priority classes that every cluster has, by name."""
    for name, value in SYSTEM_CLASSES.items():
        who = name.removeprefix("system-").replace("-critical", "")
        description = f"Used for critical pods of the {who}."
        said = {"value": value, "description": description, "preemptionPolicy": PREEMPT_LOWER}
        yield name, {"metadata": {"generation": 1}, **said}
