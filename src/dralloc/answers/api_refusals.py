"""What the API server would refuse of the objects that are still to be created: new pods and claims, claims from templates.

An object that a server has was accepted. New objects are created in the order of their manifests, and each is charged to the
quotas of its namespace, so that the same objects are refused as by a server that gets them in this order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import cached_property

from msgspec.structs import replace

from dralloc.answers.cluster_objects import ClusterObjects, exists
from dralloc.answers.template_claims import MissingTemplate, TemplateClaims
from dralloc.devices.identity import ClaimId
from dralloc.kube.core_v1 import ResourceQuota
from dralloc.kube.pod_claims import controller_of
from dralloc.kube.pod_defaults import class_of_pod, priority_refusal
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.quota import QuotaFacts, charge_of_pod, explain_excess, find_excess, usage_of_claim
from dralloc.kube.resource_v1 import DeviceClass, ResourceClaim
from dralloc.kube.scheduling_v1 import PREEMPT_NEVER, PriorityClass
from dralloc.kube.scheduling_v1beta1 import PodGroup
from dralloc.primitives.quantity import Quantity


class ApiRefusals:
    def __init__(self, objects: ClusterObjects, template_claims: TemplateClaims) -> None:
        self._objects = objects
        self._template_claims = template_claims
        self._namespaces: dict[str, _NamespaceRefusals] = {}

    def of_pod(self, pod: Pod) -> str | None:
        """Why the pod would not be created; None if it exists or would be."""
        if not is_new_pod(pod):
            return None
        return self._wrong_priority(pod) or self._in(pod.metadata.namespace).pods.get(pod.metadata.name)

    def of_claim(self, claim_id: ClaimId) -> str | None:
        """Why the claim would not be created; None if it exists or would be."""
        return self._in(claim_id.namespace).claims.get(claim_id.name)

    def create(self, obj: Pod | ResourceClaim) -> None:
        """Creates an object that is not among the known ones, as the newest of its namespace."""
        refusals = self._in(obj.metadata.namespace)
        if isinstance(obj, ResourceClaim):
            refusals.create_claim(obj)
        elif refusals.quotas:
            self._create(obj, refusals)

    def _in(self, namespace: str) -> _NamespaceRefusals:
        if namespace not in self._namespaces:
            self._namespaces[namespace] = self._replay(namespace)
        return self._namespaces[namespace]

    def _replay(self, namespace: str) -> _NamespaceRefusals:
        refusals = _NamespaceRefusals(self._limits.get(namespace, {}), self._facts)
        if not refusals.quotas:
            return refusals
        claims = [claim for claim in self._objects.all(ResourceClaim).values() if claim.metadata.namespace == namespace]
        pods = [pod for pod in self._objects.all(Pod).values() if pod.metadata.namespace == namespace]
        for claim in claims:
            if not is_new_claim(claim):
                refusals.charge(usage_of_claim(claim, self._facts))
        for claim in filter(is_new_claim, claims):
            refusals.create_claim(claim)
        for pod in pods:
            if not is_new_pod(pod):
                refusals.charge(charge_of_pod(pod).amounts)
        # Pods that exist are older than those that do not.
        for pod in sorted(pods, key=lambda pod: (is_new_pod(pod), str(pod.metadata.creation_timestamp or ""))):
            self._create(pod, refusals)
        return refusals

    def _create(self, pod: Pod, refusals: _NamespaceRefusals) -> None:
        """Creates the pod, if it is new, and the claims that its controller has not made yet."""
        if pod.is_finished or pod.is_terminating:
            return
        if is_new_pod(pod) and (self._wrong_priority(pod) is not None or not refusals.create_pod(pod)):
            return
        try:
            _, expected = self._template_claims.complete(pod)
        except MissingTemplate:
            return
        for claim in expected:
            if claim.metadata.name not in refusals.group_claims:
                refusals.create_claim(claim)
            if _is_of_group(claim):
                # All members expect it.
                refusals.group_claims.add(claim.metadata.name)

    def _wrong_priority(self, pod: Pod) -> str | None:
        # A priority that the pod states is accepted: copies of pods have that of their class.
        name = pod.spec.priority_class_name
        return priority_refusal(name, class_of_pod(name, self._classes), {})

    @cached_property
    def _classes(self) -> dict[str, PriorityClass]:
        return priority_classes(self._objects)

    @cached_property
    def _facts(self) -> QuotaFacts:
        classes = self._objects.all(DeviceClass).values()
        names = {each.metadata.name: each.spec.extended_resource_name for each in classes}
        return QuotaFacts(
            extended_names={name: extended for name, extended in names.items() if extended},
            counts_extended="DRAExtendedResource" in self._objects.gates,
        )

    @cached_property
    def _limits(self) -> dict[str, dict[str, Mapping[str, Quantity]]]:
        limits: dict[str, dict[str, Mapping[str, Quantity]]] = {}
        for (namespace, name), quota in self._objects.all(ResourceQuota).items():
            limits.setdefault(namespace, {})[name] = quota.spec.hard
        return limits


class _NamespaceRefusals:
    """The refusals of one namespace by the name of the object, and what is charged to its quotas."""

    def __init__(self, quotas: Mapping[str, Mapping[str, Quantity]], facts: QuotaFacts) -> None:
        self.quotas = quotas
        self.pods: dict[str, str] = {}
        self.claims: dict[str, str] = {}
        # Claims that were created for groups.
        self.group_claims: set[str] = set()
        self._facts = facts
        self._used: Counter[str] = Counter()

    def create_pod(self, pod: Pod) -> bool:
        return self._create(pod.metadata.name, charge_of_pod(pod).amounts, self.pods)

    def create_claim(self, claim: ResourceClaim) -> bool:
        return self._create(claim.metadata.name, usage_of_claim(claim, self._facts), self.claims)

    def charge(self, charges: Mapping[str, int]) -> None:
        self._used.update(charges)

    def _create(self, name: str, charges: Mapping[str, int], refused: dict[str, str]) -> bool:
        for quota, hard in self.quotas.items():
            if excess := find_excess(hard, self._used, charges):
                refused[name] = explain_excess(quota, excess)
                return False
        self.charge(charges)
        return True


def _is_of_group(claim: ResourceClaim) -> bool:
    owner = controller_of(claim.metadata)
    return owner is not None and owner.kind == "PodGroup"


def is_new_pod(pod: Pod) -> bool:
    """True for a pod that only a manifest has. A pod with a node is taken for one that runs."""
    return not exists(pod) and not pod.spec.node_name


def is_new_claim(claim: ResourceClaim) -> bool:
    """True for a claim that only a manifest has. A claim with devices is taken for one of a server."""
    return not exists(claim) and claim.status.allocation is None


def priority_classes(objects: ClusterObjects) -> dict[str, PriorityClass]:
    return {name: each for (_, name), each in objects.all(PriorityClass).items()}


def priority_of(pod: Pod, classes: Mapping[str, PriorityClass]) -> int:
    """The priority of the pod once it is created."""
    if pod.spec.priority is None and (found := class_of_pod(pod.spec.priority_class_name, classes)) is not None:
        return found.value
    return pod.spec.priority or 0


def with_group_priority(group: PodGroup, classes: Mapping[str, PriorityClass]) -> PodGroup:
    """The group with the priority that admission gives it."""
    found = class_of_pod(group.spec.priority_class_name, classes) if group.spec.priority is None else None
    return replace(group, spec=replace(group.spec, priority=found.value)) if found is not None else group


def with_priority(pod: Pod, classes: Mapping[str, PriorityClass]) -> Pod:
    """The pod with the priority and the preemption policy that admission gives it."""
    found = class_of_pod(pod.spec.priority_class_name, classes) if pod.spec.priority is None else None
    if found is None or not (found.value or found.preemption_policy == PREEMPT_NEVER):
        return pod
    return replace(pod, spec=replace(pod.spec, priority=found.value, preemption_policy=found.preemption_policy))
