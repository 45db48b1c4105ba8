"""Extended resources that devices serve (KEP-5004): which class serves a name, and the claim that a pod gets for them.

A container asks for `example.com/gpu: 1`; a device class has that name in `extendedResourceName`. Every class also has the implicit
name `deviceclass.resource.kubernetes.io/<class>`. A pod gets one claim for all of its containers, made by the scheduler, because only
the node that is chosen decides which of the names are served by devices and which by device plugins.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from msgspec import Struct

from dralloc.kube.meta_v1 import ObjectMeta, OwnerReference
from dralloc.kube.pod_claims import EXTENDED_RESOURCE_CLAIM, controller_of
from dralloc.kube.pod_v1 import (
    Container,
    ContainerExtendedResourceRequest,
    Pod,
    PodExtendedResourceClaimStatus,
    PodSpec,
)
from dralloc.kube.resource_v1 import (
    EXACT_COUNT,
    DeviceClaim,
    DeviceClass,
    DeviceRequest,
    ExactDeviceRequest,
    ResourceClaim,
    ResourceClaimSpec,
)
from dralloc.primitives.names import SUFFIX_LENGTH, extended_resource_name, suffix
from dralloc.primitives.quantity import NANOS

IMPLICIT_PREFIX: Final = "deviceclass.resource.kubernetes.io/"
# The length of a generated name, as in Kubernetes.
_NAME_LENGTH_MAX: Final = 63


def is_extended(name: str) -> bool:
    """True for names of extended resources, the implicit names of classes included."""
    return "/" in name and (name.startswith(IMPLICIT_PREFIX) or not extended_resource_name(name))


def implicit_name(class_name: str) -> str:
    return f"{IMPLICIT_PREFIX}{class_name}"


# --- Which class serves a name ----------------------------------------------------------------------------------


class ExtendedResourceClasses:
    """The class that serves each extended resource. Of several with the same name, the newest does, then the first by name."""

    def __init__(self, classes: Iterable[DeviceClass] = ()) -> None:
        self._classes: dict[str, DeviceClass] = {}
        self._explicit: dict[str, dict[str, DeviceClass]] = {}
        for each in classes:
            self.change(None, each)

    def find(self, name: str) -> DeviceClass | None:
        if name.startswith(IMPLICIT_PREFIX):
            return self._classes.get(name.removeprefix(IMPLICIT_PREFIX))
        named = self._explicit.get(name)
        if not named:
            return None
        newest = max(_created(each) for each in named.values())
        return min((each for each in named.values() if _created(each) == newest), key=lambda each: each.metadata.name)

    def change(self, before: DeviceClass | None, after: DeviceClass | None) -> frozenset[str]:
        """Takes a change of a class; returns the names that another class, or none, serves now."""
        names = {name for each in (before, after) if each is not None for name in _names(each)}
        served = {name: self._name_of(name) for name in names}
        if before is not None:
            self._classes.pop(before.metadata.name, None)
            self._put(before, None)
        if after is not None:
            self._classes[after.metadata.name] = after
            self._put(after, after)
        return frozenset(name for name in names if self._name_of(name) != served[name])

    def _name_of(self, name: str) -> str | None:
        found = self.find(name)
        return found.metadata.name if found is not None else None

    def _put(self, obj: DeviceClass, stored: DeviceClass | None) -> None:
        name = obj.spec.extended_resource_name
        if not name:
            return
        named = self._explicit.setdefault(name, {})
        if stored is not None:
            named[obj.metadata.name] = stored
        else:
            named.pop(obj.metadata.name, None)
        if not named:
            del self._explicit[name]


def _names(obj: DeviceClass) -> Iterator[str]:
    yield implicit_name(obj.metadata.name)
    if obj.spec.extended_resource_name:
        yield obj.spec.extended_resource_name


def _created(obj: DeviceClass) -> str:
    return str(obj.metadata.creation_timestamp or "")


# --- What a pod asks for ----------------------------------------------------------------------------------------


def extended_names(spec: PodSpec) -> frozenset[str]:
    """The extended resources that the containers ask for. Most pods ask for none, and this runs for each of them."""
    names = {
        name
        for containers in (spec.containers, spec.init_containers)
        for container in containers
        for name in container.resources.requests
        if "/" in name and container.resources.requests[name].nanos
    }
    return frozenset(filter(is_extended, names)) if names else frozenset()


def uncountable_names(spec: PodSpec) -> frozenset[str]:
    """What a container asks a part of a device of; only validation of explicit names makes sure that none does."""
    containers = (*spec.containers, *spec.init_containers)
    asked = (item for each in containers for item in each.resources.requests.items())
    return frozenset(name for name, amount in asked if amount.nanos % NANOS)


class ExtendedRequests(Struct, frozen=True, gc=False):
    """The requests of a pod's claim, and which request serves which container and resource."""

    requests: tuple[DeviceRequest, ...]
    mappings: tuple[ContainerExtendedResourceRequest, ...]


def extended_requests(spec: PodSpec, classes: Mapping[str, str]) -> ExtendedRequests:
    """What the pod needs of the resources that devices serve; `classes` has the class of each.

    A container that runs as long as the pod has a request of its own for each resource. An init container that ends before uses those
    of the containers that start after it; what it lacks is one more request, which all such init containers share.
    """
    requests: list[DeviceRequest] = []
    mappings: list[ContainerExtendedResourceRequest] = []
    for resource, class_name in sorted(classes.items()):
        wanted = [_Wanted(*each, resource, class_name) for each in enumerate((*spec.init_containers, *spec.containers))]
        wanted = [each for each in wanted if each.count]
        ends_early = [each for each in wanted if each.index < len(spec.init_containers) and not each.is_sidecar]
        lasting = [each for each in wanted if each not in ends_early]
        shortfalls = {each.index: max(0, each.count - _reusable(each, lasting)) for each in ends_early}
        most = max(ends_early, key=lambda each: shortfalls[each.index], default=None)
        extra = most.request(shortfalls[most.index]) if most is not None and shortfalls[most.index] else None
        requests += [each.request(each.count) for each in lasting] + ([extra] if extra is not None else [])
        mappings += [each.mapped_to(each.request_name) for each in lasting]
        for each in ends_early:
            mappings += [each.mapped_to(other.request_name) for other in _used_again(each, lasting)]
            if extra is not None and shortfalls[each.index]:
                mappings.append(each.mapped_to(extra.name))
    return ExtendedRequests(tuple(sorted(requests, key=lambda each: each.name)), tuple(mappings))


class _Wanted(Struct, frozen=True):
    """What a container asks of a resource; `index` counts init containers first."""

    index: int
    container: Container
    resource: str
    class_name: str

    @property
    def count(self) -> int:
        amount = self.container.resources.requests.get(self.resource)
        return amount.nanos // NANOS if amount is not None else 0

    @property
    def is_sidecar(self) -> bool:
        return self.container.restart_policy == "Always"

    @property
    def request_name(self) -> str:
        position = sorted(self.container.resources.requests).index(self.resource)
        return f"container-{self.index}-request-{position}"

    def request(self, count: int) -> DeviceRequest:
        exactly = ExactDeviceRequest(device_class_name=self.class_name, allocation_mode=EXACT_COUNT, count=count)
        return DeviceRequest(name=self.request_name, exactly=exactly)

    def mapped_to(self, request_name: str) -> ContainerExtendedResourceRequest:
        return ContainerExtendedResourceRequest(
            container_name=self.container.name, resource_name=self.resource, request_name=request_name
        )


def _used_again(wanted: _Wanted, lasting: list[_Wanted]) -> Iterator[_Wanted]:
    """The containers that start later whose devices serve the init container before: whole requests, as many as needed."""
    count = 0
    for other in lasting:
        if other.index > wanted.index and count < wanted.count:
            count += other.count
            yield other


def _reusable(wanted: _Wanted, lasting: list[_Wanted]) -> int:
    return sum(other.count for other in _used_again(wanted, lasting))


# --- The claim --------------------------------------------------------------------------------------------------


def extended_claim_name(pod: Pod) -> str:
    """Always the same for a pod, so that a repeated creation does not make a second claim."""
    prefix = f"{pod.metadata.name}-extended-resources-"
    return prefix[: _NAME_LENGTH_MAX - SUFFIX_LENGTH] + suffix(pod.metadata.uid)


def extended_claim(pod: Pod, requests: tuple[DeviceRequest, ...], name: str) -> ResourceClaim:
    """The claim for the extended resources of the pod, as it is created."""
    owner = OwnerReference(api_version="v1", kind="Pod", name=pod.metadata.name, uid=pod.metadata.uid, controller=True)
    metadata = ObjectMeta(
        name=name,
        generate_name=f"{pod.metadata.name}-extended-resources-",
        namespace=pod.metadata.namespace,
        annotations={EXTENDED_RESOURCE_CLAIM: "true"},
        owner_references=(owner,),
    )
    return ResourceClaim(metadata=metadata, spec=ResourceClaimSpec(devices=DeviceClaim(requests=requests)))


def extended_owner(claim: ResourceClaim) -> str | None:
    """The UID of the pod for whose extended resources the claim was made; None for other claims."""
    if claim.metadata.annotations.get(EXTENDED_RESOURCE_CLAIM) != "true":
        return None
    owner = controller_of(claim.metadata)
    return owner.uid if owner is not None and owner.kind == "Pod" else None


def served_by_devices(status: PodExtendedResourceClaimStatus | None) -> frozenset[str]:
    """The resources that devices serve on the node of a pod with this status."""
    return frozenset(each.resource_name for each in status.request_mappings) if status is not None else frozenset()
