"""Random groups of pods: PodGroups with and without shared claims, gangs of an owner, and what users do to them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from random import Random
from typing import Final

from dralloc.kube.pod_v1 import Pod
from dralloc.kube.registry import POD, POD_GROUP
from dralloc.kube.scheduling_v1beta1 import API_VERSION, PodGroup
from dralloc.scheduler.state.group_members import MIN_COUNT_ANNOTATION
from dralloc.server.read.api_resources import name_of
from tests.simulator.cluster import SimulatedCluster
from tests.simulator.documents import RESOURCE, Document, claim_spec, document, exactly
from tests.simulator.random_devices import FABRIC, NIC

NAMESPACE: Final = "default"
GROUPS_MAX: Final = 5
MEMBERS_MAX: Final = 4
# Users wait with further gangs while there are so many pods.
PODS_MAX: Final = 16
TOPOLOGY_KEY: Final = "kubernetes.io/hostname"
# The claims of members: each its own from a template, or what their group shares.
TEMPLATES: Final = ("nic", "partition", "whole")
SHARED_TEMPLATES: Final = ("nic", "fabric")


class RandomGangs:
    """Random actions on one cluster. `pod_spec` makes the spec of a pod with these claims; `lifetime` its annotations."""

    def __init__(
        self,
        cluster: SimulatedCluster,
        random: Random,
        pod_spec: Callable[[list[Document]], Document],
        lifetime: Callable[[], dict[str, str]],
    ) -> None:
        self._cluster = cluster
        self._client = cluster.client
        self._random = random
        self._pod_spec = pod_spec
        self._lifetime = lifetime
        self._number = 0

    @property
    def actions(self) -> Sequence[tuple[int, Callable[[], Awaitable[str]]]]:
        """Each with its weight."""
        return (90, self.create), (20, self.delete), (30, self.add_member), (15, self.resize)

    async def prepare(self) -> None:
        """Devices that all nodes reach, and the templates of members."""
        devices = [
            {
                "name": f"port-{number}",
                "allowMultipleAllocations": True,
                "capacity": {"bandwidth": {"value": "10G"}},
            }
            for number in range(2)
        ]
        pool = {"name": "fabric", "generation": 1, "resourceSliceCount": 1}
        spec = {"driver": FABRIC, "pool": pool, "allNodes": True, "devices": devices}
        await self._client.create(document(RESOURCE, "ResourceSlice", "fabric", spec=spec))
        forms = {"fabric": exactly(FABRIC, bandwidth="4G"), "whole": exactly(NIC, bandwidth="9G")}
        for name, form in forms.items():
            spec = {"spec": claim_spec(form)}
            await self._client.create(document(RESOURCE, "ResourceClaimTemplate", name, NAMESPACE, spec=spec))

    async def create(self) -> str:
        """A gang or a basic group, its members before or after it."""
        if len(self._cluster.keys(POD_GROUP)) >= GROUPS_MAX or len(self._cluster.keys(POD)) > PODS_MAX:
            return await self.delete()
        if self._random.random() < 0.2:
            return await self._create_for_owner()
        self._number += 1
        name = f"gang-{self._number}"
        size = self._random.randint(2, MEMBERS_MAX)
        shared = await self._shared_entry(name) if self._random.random() < 0.6 else None
        group = self._group(name, size, shared)
        members = self._members(name, size, shared, group["spec"]["priorityClassName"])
        objects = [*members, group] if self._random.random() < 0.3 else [group, *members]
        for each in objects:
            await self._client.create(each)
        return f"created {name} with {size} members and {group['spec']}"

    def _group(self, name: str, size: int, shared: Document | None) -> Document:
        min_count = size if self._random.random() < 0.7 else self._random.randint(1, size)
        policy = {"gang": {"minCount": min_count}} if self._random.random() < 0.85 else {"basic": {}}
        mode = self._random.choice(("single", "single", "single", "all"))
        spec: Document = {
            "schedulingPolicy": policy,
            "disruptionMode": {mode: {}},
            "priorityClassName": self._random.choice(("usual", "usual", "urgent")),
        }
        if shared is not None:
            spec["resourceClaims"] = [shared]
        if self._random.random() < 0.2:
            spec["schedulingConstraints"] = {"topology": [{"key": TOPOLOGY_KEY}]}
        return document(API_VERSION, "PodGroup", name, NAMESPACE, spec=spec)

    async def _shared_entry(self, name: str) -> Document:
        template = self._random.choice(SHARED_TEMPLATES)
        if self._random.random() < 0.7:
            return {"name": "shared", "resourceClaimTemplateName": template}
        form = exactly(FABRIC if template == "fabric" else NIC, bandwidth="4G")
        await self._client.create(document(RESOURCE, "ResourceClaim", name, NAMESPACE, spec=claim_spec(form)))
        return {"name": "shared", "resourceClaimName": name}

    def _members(self, group: str, size: int, shared: Document | None, priority_class: str) -> list[Document]:
        """Members of one scheduler with one lifetime or none, and claims of their own in most gangs."""
        own = self._random.choice(TEMPLATES) if shared is None or self._random.random() < 0.6 else ""
        entries = [{"name": "own", "resourceClaimTemplateName": own}] if own else []
        spec = self._pod_spec(entries if shared is None else [*entries, shared])
        spec["priorityClassName"] = priority_class
        spec["schedulingGroup"] = {"podGroupName": group}
        annotations = self._lifetime() if self._random.random() < 0.5 else {}
        names = [f"{group}-{number}" for number in range(size)]
        return [document("v1", "Pod", name, NAMESPACE, spec=spec, annotations=annotations) for name in names]

    async def _create_for_owner(self) -> str:
        """Pods that share the claim of an owner, which the server does not know."""
        self._number += 1
        name, size = f"training-gang-{self._number}", self._random.randint(2, MEMBERS_MAX)
        reference = {"apiGroup": "example.com", "resource": "trainings", "name": name, "uid": f"uid-of-{name}"}
        form = {**claim_spec(exactly(FABRIC, bandwidth="4G")), "reservedFor": reference}
        own = [{"name": "own", "resourceClaimTemplateName": self._random.choice(TEMPLATES)}]
        spec = self._pod_spec([{"name": "shared", "resourceClaimName": name}, *own])
        annotations = {MIN_COUNT_ANNOTATION: str(size), **self._lifetime()}
        await self._client.create(document(RESOURCE, "ResourceClaim", name, NAMESPACE, spec=form))
        for number in range(size):
            pod = document("v1", "Pod", f"{name}-{number}", NAMESPACE, spec=spec, annotations=annotations)
            await self._client.create(pod)
        return f"created {name} with {size} members"

    async def add_member(self) -> str:
        """One more member, like one that a controller replaces."""
        members = [pod for pod in self._cluster.stored(POD, Pod) if pod.spec.scheduling_group is not None]
        if not members or len(self._cluster.keys(POD)) > PODS_MAX:
            return "no gang to add to"
        like = self._random.choice(members)
        if like.metadata.owner_references or like.spec.scheduling_group is None:
            return "its job replaces members"
        self._number += 1
        group = like.spec.scheduling_group.pod_group_name
        spec = self._pod_spec([_entry(each.name, each) for each in like.spec.resource_claims])
        spec["priorityClassName"] = like.spec.priority_class_name
        spec["schedulerName"] = like.spec.scheduler_name
        spec["schedulingGroup"] = {"podGroupName": group}
        name = f"{group}-more-{self._number}"
        await self._client.create(document("v1", "Pod", name, NAMESPACE, spec=spec, annotations=self._lifetime()))
        return f"added {name}"

    async def resize(self) -> str:
        groups = [group for group in self._cluster.stored(POD_GROUP, PodGroup) if group.is_gang]
        if not groups:
            return "no gang to resize"
        group, count = self._random.choice(groups), self._random.randint(1, MEMBERS_MAX)
        patch = {"spec": {"schedulingPolicy": {"gang": {"minCount": count}}}}
        await self._client.patch(PodGroup, group.metadata.name, patch, namespace=NAMESPACE)
        return f"{group.metadata.name} needs {count}"

    async def delete(self) -> str:
        """A group, most often with its members."""
        groups = self._cluster.keys(POD_GROUP)
        if not groups:
            return "no group to delete"
        name = name_of(self._random.choice(groups))
        await self._client.delete(PodGroup, name, namespace=NAMESPACE)
        if self._random.random() < 0.2:
            return f"deleted {name}"
        for pod in self._cluster.stored(POD, Pod):
            stated = pod.spec.scheduling_group
            if stated is not None and stated.pod_group_name == name and not pod.is_terminating:
                await self._client.delete(Pod, pod.metadata.name, namespace=NAMESPACE)
        return f"deleted {name} and its members"


def _entry(name: str, like: object) -> Document:
    entry: Document = {"name": name}
    for field, member in (
        ("resourceClaimName", "resource_claim_name"),
        ("resourceClaimTemplateName", "resource_claim_template_name"),
    ):
        if value := getattr(like, member):
            entry[field] = value
    return entry
