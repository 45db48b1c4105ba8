"""The claims that a pod will have: those that the controller is still to make from templates included."""

from __future__ import annotations

from msgspec.structs import replace

from dralloc.answers.cluster_objects import ClusterObjects, exists, made_up_uid
from dralloc.kube.meta_v1 import ObjectMeta, OwnerReference
from dralloc.kube.pod_claims import POD_CLAIM_NAME, controller_of, group_name, is_shared
from dralloc.kube.pod_v1 import Container, Pod, PodResourceClaim, PodResourceClaimStatus, PodSpec, Toleration
from dralloc.kube.resource_v1 import ResourceClaim, ResourceClaimTemplate
from dralloc.kube.scheduling_v1beta1 import API_VERSION, PodGroup


class MissingTemplate(LookupError):
    """A claim of the pod cannot be made; the message says which template is missing."""


class TemplateClaims:
    """Makes the claims of pods as the claim controller would."""

    def __init__(self, objects: ClusterObjects) -> None:
        self._objects = objects
        self._for_groups = "DRAWorkloadResourceClaims" in objects.gates_in_use
        # By namespace, kind and name of the owner, and its name for the claim.
        self._made: dict[tuple[str, str, str, str], ResourceClaim] = {}
        for claim in objects.all(ResourceClaim).values():
            owner = controller_of(claim.metadata)
            entry = claim.metadata.annotations.get(POD_CLAIM_NAME)
            if owner is not None and entry is not None:
                self._made[claim.metadata.namespace, owner.kind, owner.name, entry] = claim

    def complete(self, pod: Pod) -> tuple[Pod, tuple[ResourceClaim, ...]]:
        """The pod as it is once its claims exist, and the claims that do not exist yet. Raises MissingTemplate."""
        if not pod.metadata.uid:
            pod = replace(pod, metadata=replace(pod.metadata, uid=made_up_uid(pod)))
        statuses = {status.name: status for status in pod.status.resource_claim_statuses}
        expected: list[ResourceClaim] = []
        for entry in pod.spec.resource_claims:
            if not entry.resource_claim_template_name or self._is_recorded(pod, statuses.get(entry.name)):
                continue
            claim = self._find(pod, entry)
            if claim is None:
                claim = self._from_template(pod, entry)
                expected.append(claim)
            statuses[entry.name] = PodResourceClaimStatus(name=entry.name, resource_claim_name=claim.metadata.name)
        status = replace(pod.status, resource_claim_statuses=tuple(statuses.values()))
        return replace(pod, status=status), tuple(expected)

    def _is_recorded(self, pod: Pod, status: PodResourceClaimStatus | None) -> bool:
        """True if the entry has its claim, or needs none. A claim that was deleted is made again."""
        if status is None or not status.resource_claim_name:
            return status is not None
        return (pod.metadata.namespace, status.resource_claim_name) in self._objects.all(ResourceClaim)

    def expected(self, pod: Pod, entry: PodResourceClaim) -> ResourceClaim | None:
        """The claim that is still to be made for the entry; None if it exists. Raises MissingTemplate."""
        status = next((each for each in pod.status.resource_claim_statuses if each.name == entry.name), None)
        is_there = self._is_recorded(pod, status) or self._find(pod, entry) is not None
        if not entry.resource_claim_template_name or is_there:
            return None
        return self._from_template(pod, entry)

    def _find(self, pod: Pod, entry: PodResourceClaim) -> ResourceClaim | None:
        owner = self._owner(pod, entry)
        claim = self._made.get((pod.metadata.namespace, owner.kind, owner.metadata.name, entry.name))
        # An owner of the same name may have had it before.
        is_ours = claim is not None and (not exists(owner) or _is_owned(claim, owner.metadata.uid))
        return claim if is_ours else None

    def _owner(self, pod: Pod, entry: PodResourceClaim) -> Pod | PodGroup:
        """The pod, or its group if the claim is the group's."""
        if self._for_groups and (name := group_name(pod)):
            group = self._objects.all(PodGroup).get((pod.metadata.namespace, name))
            if group is not None and is_shared(entry, group):
                return known_group(group)
        return pod

    def _from_template(self, pod: Pod, entry: PodResourceClaim) -> ResourceClaim:
        owner = self._owner(pod, entry)
        metadata = owner.metadata
        key = (metadata.namespace, entry.resource_claim_template_name or "")
        template = self._objects.all(ResourceClaimTemplate).get(key)
        if template is None:
            raise MissingTemplate(f"claim {entry.name}: template {'/'.join(key)} does not exist")
        made = template.spec.metadata
        is_of_pod = isinstance(owner, Pod)
        reference = OwnerReference(
            api_version="v1" if is_of_pod else API_VERSION,
            kind="Pod" if is_of_pod else "PodGroup",
            name=metadata.name,
            uid=metadata.uid,
            controller=True,
            block_owner_deletion=True if is_of_pod else None,
        )
        return ResourceClaim(
            api_version="resource.k8s.io/v1",
            kind="ResourceClaim",
            metadata=ObjectMeta(
                name=f"{metadata.name}-{entry.name}",
                namespace=metadata.namespace,
                labels=made.labels,
                annotations={**made.annotations, POD_CLAIM_NAME: entry.name},
                owner_references=(reference,),
            ),
            spec=template.spec.spec,
        )


def known_group(group: PodGroup) -> PodGroup:
    """The group as the scheduler knows it: with a UID."""
    if group.metadata.uid:
        return group
    return replace(group, metadata=replace(group.metadata, uid=made_up_uid(group)))


def _is_owned(claim: ResourceClaim, uid: str) -> bool:
    owner = controller_of(claim.metadata)
    return owner is not None and owner.uid == uid


def pod_for_claim(claim: ResourceClaim) -> Pod:
    """A pod that uses the claim and asks for nothing else: it tolerates every taint of nodes."""
    name, namespace = claim.metadata.name, claim.metadata.namespace
    return Pod(
        api_version="v1",
        kind="Pod",
        # A name that no pod of a user can have.
        metadata=ObjectMeta(name=f"claim/{name}", namespace=namespace, uid=f"{namespace}/claim/{name}"),
        spec=PodSpec(
            containers=(Container(name="container"),),
            tolerations=(Toleration(operator="Exists"),),
            resource_claims=(PodResourceClaim(name="claim", resource_claim_name=name),),
        ),
    )
