"""Copies of a gang: a PodGroup with its pods, or the pods of an owner that asks for a gang."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from msgspec.structs import replace

from dralloc.api.meta_v1 import ObjectMeta
from dralloc.api.pod_v1 import Pod, PodSchedulingGroup, PodStatus
from dralloc.api.scheduling_v1beta1 import PodGroup, PodGroupStatus
from dralloc.scheduler.state.group_members import asked_min_count
from dralloc.whatif.api_refusals import priority_classes, with_group_priority
from dralloc.whatif.cluster_objects import ClusterObjects
from dralloc.whatif.engine import Engine
from dralloc.whatif.template_claims import known_group


@dataclass(frozen=True, slots=True)
class GangModel:
    """The pods of one gang; `group` is None if their owner is what they have in common."""

    metadata: ObjectMeta
    pods: tuple[Pod, ...]
    group: PodGroup | None = None

    @property
    def is_gang(self) -> bool:
        return self.group is None or self.group.is_gang


def gang_of(given: ClusterObjects) -> GangModel | None:
    """The one gang of the objects; None if they have none."""
    pods = tuple(given.all(Pod).values())
    groups = tuple(given.all(PodGroup).values())
    if len(groups) == 1:
        name = groups[0].metadata.name
        members = tuple(pod for pod in pods if pod.spec.scheduling_group == PodSchedulingGroup(pod_group_name=name))
        return GangModel(groups[0].metadata, members, groups[0]) if members else None
    owners = {owner.name for pod in pods for owner in pod.metadata.owner_references if owner.controller}
    if len(owners) == 1 and all(asked_min_count(pod) is not None for pod in pods):
        metadata = replace(pods[0].metadata, name=owners.pop())
        return GangModel(metadata, pods)
    return None


def copy_of(engine: Engine, model: GangModel, name: str) -> Iterator[Pod]:
    """The pods of a copy of the gang that is new to the engine's cluster."""
    if model.group is not None:
        metadata = ObjectMeta(name=name, namespace=model.metadata.namespace)
        group = known_group(replace(model.group, metadata=metadata, status=PodGroupStatus()))
        engine.objects.add(group)
        engine.cluster.group_changed(None, with_group_priority(group, priority_classes(engine.objects)))
    copies = [_member(pod, model, name) for pod in model.pods]
    for pod in copies:
        engine.create(pod)
    yield from copies


def _member(pod: Pod, model: GangModel, name: str) -> Pod:
    own = pod.metadata.name.removeprefix(f"{model.metadata.name}-")
    owners = tuple(replace(owner, name=name, uid=f"{owner.uid}/{name}") for owner in pod.metadata.owner_references)
    metadata = replace(
        pod.metadata,
        name=f"{name}-{own}",
        uid="",
        creation_timestamp=None,
        deletion_timestamp=None,
        owner_references=owners if model.group is None else pod.metadata.owner_references,
    )
    spec = replace(pod.spec, node_name="")
    if model.group is not None:
        spec = replace(spec, scheduling_group=PodSchedulingGroup(pod_group_name=name))
    return replace(pod, metadata=metadata, spec=spec, status=PodStatus())
