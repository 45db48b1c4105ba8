"""The question of `dralloc explain`: why a pod, a claim or a group of pods gets its devices, or none. The command and the server both ask it here."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING

from dralloc.api.core_v1 import Event
from dralloc.api.meta_v1 import ApiObject
from dralloc.api.pod_v1 import Pod
from dralloc.api.resource_v1 import ResourceClaim
from dralloc.api.scheduling_v1beta1 import PodGroup
from dralloc.primitives.errors import Forbidden, NotFound
from dralloc.primitives.features import FeatureGates
from dralloc.scheduler.settings import ONLY_SCHEDULER_NAMES
from dralloc.scheduler.state.group_members import PodGroupKey
from dralloc.whatif.claim_story import events_of_claim
from dralloc.whatif.cluster_objects import PLACEMENT_NEEDED, PLACEMENT_USEFUL, ClusterObjects, UnknownObject
from dralloc.whatif.engine import Engine
from dralloc.whatif.group_explanation import GroupExplanation, explain_group
from dralloc.whatif.pod_explanation import SubjectExplanation, explain_claim, explain_deleted_claim, explain_pod

if TYPE_CHECKING:
    from dralloc.client.transport import Transport


@dataclass(frozen=True, slots=True)
class SubjectQuestion:
    """About a `pod`, a `claim` or a `podgroup`, by NAMESPACE/NAME or by name; on any node, or on one."""

    kind: str
    name: str
    node: str | None = None
    scheduler_names: Collection[str] = ONLY_SCHEDULER_NAMES

    @property
    def needed(self) -> frozenset[type[ApiObject]]:
        """The kinds without which there is no answer."""
        return PLACEMENT_NEEDED | (set() if self.kind == "claim" else {Pod})

    @property
    def useful(self) -> frozenset[type[ApiObject]]:
        # Events tell what goes wrong on a pod's node, and what happened to a claim.
        return PLACEMENT_USEFUL | {Event}

    def events(self, namespace: str) -> str:
        """The field selector of the events that the answer reads; `namespace` is that of names that come without one."""
        if self.kind != "claim":
            return "involvedObject.kind=Pod"
        where, _, name = self._key(namespace).partition("/")
        return events_of_claim(where, name)

    def _key(self, namespace: str) -> str:
        return self.name if "/" in self.name else f"{namespace}/{self.name}"

    def answer(self, objects: ClusterObjects) -> SubjectExplanation | GroupExplanation:
        """Raises UnknownObject. What the user should know about the answer is added to the notes of the objects."""
        only_node = objects.find_node(self.node).metadata.name if self.node is not None else ""
        engine = partial(Engine, objects, objects.now, only_node=only_node, scheduler_names=self.scheduler_names)
        if self.kind == "pod":
            pod = objects.find(Pod, self.kind, self.name)
            return explain_pod(engine(), pod)
        if self.kind == "podgroup":
            group = objects.find(PodGroup, "pod group", self.name).metadata
            return explain_group(engine(), PodGroupKey(group.namespace, group.name))
        try:
            claim = objects.find(ResourceClaim, self.kind, self.name)
        except UnknownObject:
            where, _, name = self._key(objects.namespace).partition("/")
            if (found := explain_deleted_claim(where, name, objects.all(Event).values())) is not None:
                return found
            raise
        return explain_claim(engine(), claim)


async def ask_cluster(
    question: SubjectQuestion, transport: Transport, namespace: str, gates: FeatureGates, now: datetime | None = None
) -> tuple[SubjectExplanation | GroupExplanation, list[str]]:
    """The answer from the objects of a server, with notes; `now` is the time that it assumes.

    Raises NotFound, and Forbidden if a needed kind cannot be read.
    """
    # The command with -f starts faster without a client.
    from dralloc.whatif.live_cluster import read_cluster

    objects = ClusterObjects(gates, place="the cluster", namespace=namespace)
    objects.now = now or objects.now
    wanted = question.needed | question.useful
    for kind, found in (await read_cluster(transport, namespace, wanted, events=question.events(namespace))).items():
        if found.is_missing and kind in question.needed:
            raise Forbidden(found.note)
        objects.add_read(found)
    if not objects.has_nodes:
        objects.notes.append("no Node objects can be read: assuming those that slices and pods name, without labels")
    try:
        return question.answer(objects), objects.notes
    except UnknownObject as error:
        raise NotFound(str(error)) from None
