"""Which pods belong together: the members of PodGroups, and of gangs that pods ask for with an annotation.

A pod belongs to the PodGroup that it names. A pod with the annotation `dralloc.io/gang-min-count` belongs to the gang of its owner:
the one that its claims are reserved for (`spec.reservedFor`), else its controller, such as a Job.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from dralloc.devices.identity import ClaimId
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.resource_v1 import ResourceClaim
from dralloc.primitives.whole_numbers import whole_number

MIN_COUNT_ANNOTATION: Final = "dralloc.io/gang-min-count"


class PodGroupKey(NamedTuple):
    """A PodGroup by its name, or the gang of an owner by its name and UID."""

    namespace: str
    name: str
    owner_uid: str = ""

    @property
    def is_of_owner(self) -> bool:
        return bool(self.owner_uid)


def asked_min_count(pod: Pod) -> int | None:
    """What the pod's annotation asks for; None if it asks for no gang. A value that is no positive number asks for one pod."""
    text = pod.metadata.annotations.get(MIN_COUNT_ANNOTATION)
    if text is None:
        return None
    return max(whole_number(text) or 1, 1)


def group_of(
    pod: Pod, find_claim: Callable[[ClaimId], ResourceClaim | None], *, pod_groups: bool
) -> PodGroupKey | None:
    """None if the pod is scheduled by itself. `pod_groups`: PodGroups are in use."""
    namespace, stated = pod.metadata.namespace, pod.spec.scheduling_group
    if pod_groups and stated is not None and stated.pod_group_name:
        return PodGroupKey(namespace, stated.pod_group_name)
    if MIN_COUNT_ANNOTATION not in pod.metadata.annotations:
        return None
    for entry in pod.spec.resource_claims:
        claim = find_claim(ClaimId(namespace, entry.resource_claim_name)) if entry.resource_claim_name else None
        if claim is not None and claim.spec.reserved_for is not None:
            return PodGroupKey(namespace, claim.spec.reserved_for.name, claim.spec.reserved_for.uid)
    owner = next((each for each in pod.metadata.owner_references if each.controller), None)
    return PodGroupKey(namespace, owner.name, owner.uid) if owner is not None else None


class GroupMembers:
    """The pods of each group that have not ended, in the order in which they were seen; and those of them that wait for a node."""

    def __init__(self) -> None:
        self._members: dict[PodGroupKey, dict[str, Pod]] = {}
        # Kept apart: every member that gets a node asks whether others wait.
        self._waiting: dict[PodGroupKey, dict[str, Pod]] = {}
        self._group_of: dict[str, PodGroupKey] = {}

    def put(self, key: PodGroupKey, pod: Pod, *, is_waiting: bool) -> None:
        uid = pod.metadata.uid
        if self._group_of.get(uid, key) != key:
            self.remove(pod)
        self._group_of[uid] = key
        self._members.setdefault(key, {})[uid] = pod
        waiting = self._waiting.setdefault(key, {})
        if is_waiting:
            waiting[uid] = pod
        else:
            waiting.pop(uid, None)

    def remove(self, pod: Pod) -> None:
        key = self._group_of.pop(pod.metadata.uid, None)
        if key is None:
            return
        members = self._members[key]
        members.pop(pod.metadata.uid, None)
        self._waiting[key].pop(pod.metadata.uid, None)
        if not members:
            del self._members[key], self._waiting[key]

    def of(self, key: PodGroupKey) -> Mapping[str, Pod]:
        return self._members.get(key, {})

    def waiting(self, key: PodGroupKey) -> Mapping[str, Pod]:
        return self._waiting.get(key, {})

    def group_of(self, pod: Pod) -> PodGroupKey | None:
        """The group in which the pod is known."""
        return self._group_of.get(pod.metadata.uid)

    def groups(self) -> tuple[PodGroupKey, ...]:
        return tuple(self._members)
