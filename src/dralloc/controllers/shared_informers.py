"""Informers that all controllers of a process share, one for each kind, and their indices.

Claim templates and jobs are kept as whole documents, because fields that this version does not model must reach the
objects that are created from them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Final

from dralloc.client.api_calls import ApiCalls
from dralloc.client.informer import Informer
from dralloc.client.known_resources import resource_for
from dralloc.client.reflector import Reflector, log_problem
from dralloc.client.typed_resource import Object, TypedResource
from dralloc.controllers.claim_creation import is_done
from dralloc.devices.identity import DeviceId
from dralloc.kube.batch_v1 import Job
from dralloc.kube.coordination_v1 import NODE_LEASES, Lease
from dralloc.kube.core_v1 import ResourceQuota
from dralloc.kube.meta_v1 import ApiObject
from dralloc.kube.pod_claims import claims_of, controller_of, group_name, is_pod
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.resource_v1 import ConsumerReference, ResourceClaim, ResourceClaimTemplate
from dralloc.kube.scheduling_v1beta1 import PodGroup, Workload
from dralloc.kube.unstructured_object import UnstructuredObject, read_unstructured
from dralloc.primitives.errors import NotFound


def _unstructured(view_type: type[ApiObject]) -> TypedResource[UnstructuredObject]:
    known = resource_for(view_type)
    return TypedResource(
        group=known.group,
        version=known.version,
        plural=known.plural,
        kind=known.kind,
        namespaced=known.namespaced,
        type=UnstructuredObject,
        read=partial(read_unstructured, view_type=view_type),
    )


TEMPLATES: Final = _unstructured(ResourceClaimTemplate)
JOBS: Final = _unstructured(Job)
POD_GROUPS: Final = resource_for(PodGroup)
WORKLOADS: Final = resource_for(Workload)


def _claims_of_pod(pod: Pod) -> Iterable[tuple[str, str]]:
    """The claims that the pod uses. Pods that are done are left out: of a job, thousands of them may precede the first that is not."""
    return () if is_done(pod) else [(pod.metadata.namespace, use.claim) for use in claims_of(pod)]


def _templates_of(owner: Pod | PodGroup) -> Iterator[tuple[str, str]]:
    for entry in owner.spec.resource_claims:
        if entry.resource_claim_template_name is not None:
            yield owner.metadata.namespace, entry.resource_claim_template_name


def _group_of_pod(pod: Pod) -> Iterator[tuple[str, str]]:
    if name := group_name(pod):
        yield pod.metadata.namespace, name


def _node_of_pod(pod: Pod) -> Iterator[str]:
    if pod.spec.node_name:
        yield pod.spec.node_name


def _state_of_pod(pod: Pod) -> Iterator[str]:
    if pod.is_terminating:
        yield "terminating"
    if pod.is_finished:
        yield "finished"


def _controller(item: ApiObject) -> Iterator[tuple[str, str]]:
    owner = controller_of(item.metadata)
    if owner is not None:
        yield item.metadata.namespace, owner.uid


def _controller_ref(workload: Workload) -> Iterator[tuple[str, str, str, str]]:
    reference = workload.spec.controller_ref
    if reference is not None:
        yield workload.metadata.namespace, reference.api_group, reference.kind, reference.name


def _workloads_of_claim(claim: ResourceClaim) -> Iterator[tuple[str, ConsumerReference]]:
    namespace = claim.metadata.namespace
    return ((namespace, reference) for reference in claim.status.reserved_for if not is_pod(reference))


def devices_of(claim: ResourceClaim) -> Iterable[DeviceId]:
    """The devices that are allocated to the claim, each once."""
    if claim.status.allocation is None:
        return ()
    results = claim.status.allocation.devices.results
    return dict.fromkeys(DeviceId.of(result) for result in results)


def _namespace(item: ApiObject) -> Iterator[str]:
    yield item.metadata.namespace


# The indices that `Informer.by` can use. Users write references, so a UID alone proves nothing: owners and workloads are in the
# namespace of the object that refers to them, and workloads are compared by the whole reference.
_INDICES: Final[Mapping[TypedResource[Any], Mapping[str, Callable[[Any], Iterable[Hashable]]]]] = {
    resource_for(Pod): {
        "claim": _claims_of_pod,
        "template": _templates_of,
        "group": _group_of_pod,
        "controller": _controller,
        "node": _node_of_pod,
        "state": _state_of_pod,
    },
    resource_for(ResourceClaim): {"controller": _controller, "workload": _workloads_of_claim, "device": devices_of},
    POD_GROUPS: {"template": _templates_of, "controller": _controller},
    WORKLOADS: {"controller": _controller, "controllerRef": _controller_ref},
    resource_for(ResourceQuota): {"namespace": _namespace},
}

# Kinds that are read in one namespace only.
_NAMESPACES: Final[Mapping[TypedResource[Any], str]] = {resource_for(Lease): NODE_LEASES}


class SharedInformers:
    """Creates an informer for each kind that is asked for, and keeps it up to date."""

    def __init__(self, calls: ApiCalls) -> None:
        self._calls = calls
        self._informers: dict[TypedResource[Any], Informer[Any]] = {}

    def informer_for(self, resource: TypedResource[Object]) -> Informer[Object]:
        informer = self._informers.get(resource)
        if informer is None:
            informer = self._informers[resource] = Informer(_INDICES.get(resource))
        return informer

    async def run(self) -> None:
        """Watch until cancelled."""
        async with asyncio.TaskGroup() as group:
            for resource, informer in self._informers.items():
                on_problem = partial(_on_problem, resource, informer)
                namespace = _NAMESPACES.get(resource, "")
                reflector = Reflector(self._calls, resource, informer, namespace=namespace, on_problem=on_problem)
                group.create_task(reflector.run())


class ControllerInformers:
    """The informers of one controller. It waits for these alone: it may not be allowed to read other kinds."""

    def __init__(self, shared: SharedInformers) -> None:
        self._shared = shared
        self._informers: list[Informer[Any]] = []

    def informer_for(self, resource: TypedResource[Object]) -> Informer[Object]:
        informer = self._shared.informer_for(resource)
        self._informers.append(informer)
        return informer

    async def synced(self) -> None:
        """Wait until all informers have listed: a plan from partial state would undo what the rest requires."""
        for informer in self._informers:
            await informer.synced.wait()


def _on_problem(resource: TypedResource[Any], informer: Informer[Any], problem: Exception) -> None:
    if isinstance(problem, NotFound) and not informer.synced.is_set():
        # The server does not serve this kind (an older version, or a feature that is off), so there are no objects.
        # The reflector keeps retrying and finds them if the server starts to serve the kind.
        informer.synced.set()
    log_problem(resource, problem)
