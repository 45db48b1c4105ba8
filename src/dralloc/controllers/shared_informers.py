"""Local copies of what controllers read: one of each kind, however many controllers look at it.

Kinds from which other objects are made (templates of claims, jobs) are held whole, as documents: what we do not model
must still reach the objects made from them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Final

from dralloc.api.batch_v1 import Job
from dralloc.api.core_v1 import ResourceQuota
from dralloc.api.meta_v1 import ApiObject
from dralloc.api.pod_claims import claims_of, controller_of, is_pod
from dralloc.api.pod_v1 import Pod
from dralloc.api.resource_v1 import ResourceClaim, ResourceClaimTemplate
from dralloc.api.unstructured_object import UnstructuredObject, read_unstructured
from dralloc.client.api_calls import ApiCalls
from dralloc.client.informer import Informer
from dralloc.client.known_resources import resource_for
from dralloc.client.reflector import Reflector, log_problem
from dralloc.client.typed_resource import Object, TypedResource
from dralloc.devices.identity import DeviceId
from dralloc.primitives.errors import NotFound


def _whole(view_type: type[ApiObject]) -> TypedResource[UnstructuredObject]:
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


TEMPLATES: Final = _whole(ResourceClaimTemplate)
JOBS: Final = _whole(Job)


def _claims_of_pod(pod: Pod) -> Iterator[tuple[str, str]]:
    return ((pod.metadata.namespace, use.claim) for use in claims_of(pod))


def _templates_of_pod(pod: Pod) -> Iterator[tuple[str, str]]:
    for entry in pod.spec.resource_claims:
        if entry.resource_claim_template_name is not None:
            yield pod.metadata.namespace, entry.resource_claim_template_name


def _controller(item: ApiObject) -> Iterator[str]:
    owner = controller_of(item.metadata)
    if owner is not None:
        yield owner.uid


def _workloads_of_claim(claim: ResourceClaim) -> Iterator[str]:
    return (reference.uid for reference in claim.status.reserved_for if not is_pod(reference))


def devices_of(claim: ResourceClaim) -> Iterable[DeviceId]:
    """The devices that a claim has; one of which it has several shares stands there once."""
    if claim.status.allocation is None:
        return ()
    results = claim.status.allocation.devices.results
    return dict.fromkeys(DeviceId.of(result) for result in results)


def _namespace(item: ApiObject) -> Iterator[str]:
    yield item.metadata.namespace


# The names under which `Informer.by` finds objects.
_INDICES: Final[Mapping[TypedResource[Any], Mapping[str, Callable[[Any], Iterable[Hashable]]]]] = {
    resource_for(Pod): {"claim": _claims_of_pod, "template": _templates_of_pod, "controller": _controller},
    resource_for(ResourceClaim): {"controller": _controller, "workload": _workloads_of_claim, "device": devices_of},
    resource_for(ResourceQuota): {"namespace": _namespace},
}


class Watched:
    """The copies; whoever asks for one has it watched."""

    def __init__(self, calls: ApiCalls) -> None:
        self._calls = calls
        self._informers: dict[TypedResource[Any], Informer[Any]] = {}

    def copy_of(self, resource: TypedResource[Object]) -> Informer[Object]:
        informer = self._informers.get(resource)
        if informer is None:
            informer = self._informers[resource] = Informer(_INDICES.get(resource))
        return informer

    async def run(self) -> None:
        """Keep the copies true until cancelled."""
        async with asyncio.TaskGroup() as group:
            for resource, informer in self._informers.items():
                on_problem = partial(_judge, resource, informer)
                group.create_task(Reflector(self._calls, resource, informer, on_problem=on_problem).run())


class Copies:
    """Those copies that one controller reads: it waits for them and for no others, which it may not be allowed to see."""

    def __init__(self, watched: Watched) -> None:
        self._watched = watched
        self._informers: list[Informer[Any]] = []

    def copy_of(self, resource: TypedResource[Object]) -> Informer[Object]:
        informer = self._watched.copy_of(resource)
        self._informers.append(informer)
        return informer

    async def synced(self) -> None:
        """Wait until every one is complete: planning from half of what there is would undo what the other half asks for."""
        for informer in self._informers:
            await informer.synced.wait()


def _judge(resource: TypedResource[Any], informer: Informer[Any], problem: Exception) -> None:
    if isinstance(problem, NotFound) and not informer.synced.is_set():
        # An older server, or a feature that is off there: nobody can have made such objects. Should it come to serve
        # them, the reflector, which goes on asking, finds them.
        informer.synced.set()
    log_problem(resource, problem)
