"""Pods and claims from the rows of a trace, as the scheduler gets them. Rows of one shape share everything but their names."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from msgspec.structs import replace

from dralloc.kube.codec import decode, encode
from dralloc.kube.meta_v1 import ObjectMeta
from dralloc.kube.pod_v1 import Pod, PodResourceClaim
from dralloc.kube.resource_defaults import default_resource_claim
from dralloc.kube.resource_v1 import CapacityRequirements, ResourceClaim
from dralloc.primitives.quantity import quantity_like
from dralloc.study.cluster import GROUP_RESOURCE, Cluster, DeviceTerms
from dralloc.study.comparison import BadInput
from dralloc.study.trace import WHOLE_DEVICE, Arrival, ManifestPod, PodShape, Trace, size_of

NAMESPACE: Final = "trace"
_CLAIM_ENTRY: Final = "devices"


@dataclass(frozen=True, slots=True)
class ArrivingPod:
    """A pod with its claims, and what it requests of the devices that are measured."""

    arrival: Arrival
    pod: Pod
    claims: tuple[ResourceClaim, ...]
    shared: tuple[ResourceClaim, ...]
    requested_milli: int
    size: str


@dataclass(frozen=True, slots=True)
class _Template:
    pod: Pod
    claim: ResourceClaim | None


class PodFactory:
    """Makes the pods of a trace for a cluster. Raises BadInput if the cluster has nothing that pods can request."""

    def __init__(self, trace: Trace, cluster: Cluster) -> None:
        self._cluster = cluster
        self._templates: dict[PodShape, _Template] = {}
        shapes = [each.load for each in trace.arrivals if isinstance(each.load, PodShape)]
        if cluster.terms is None and any(shape.devices for shape in shapes):
            raise BadInput(f"{cluster.name}: no devices with a device class, but pods of {trace.name} request devices")
        self._keeps_disk = cluster.has("ephemeral-storage")
        self._keeps_nics = cluster.terms is not None and bool(cluster.terms.nic_class)
        # What no node has is left out of all pods, which the user should know.
        self.notes: tuple[str, ...] = tuple(
            f"{trace.name}: requests for {what} are left out, for no node of {cluster.name} has any"
            for what, is_left_out in (
                ("disk", not self._keeps_disk and any(shape.disk_mib for shape in shapes)),
                ("network cards", not self._keeps_nics and any(shape.nic_percent for shape in shapes)),
            )
            if is_left_out
        )

    def make(self, arrival: Arrival) -> ArrivingPod:
        load = arrival.load
        if isinstance(load, PodShape):
            template = self._templates.get(load)
            if template is None:
                template = self._templates[load] = self._template(load)
            pod, claims = _named(template, arrival.name)
            return ArrivingPod(arrival, pod, claims, (), load.requested_milli, size_of(load.devices, load.milli))
        requested = sum(map(self._requested_milli, (*load.claims, *load.shared)))
        devices, rest = divmod(requested, WHOLE_DEVICE)
        size = size_of(devices, WHOLE_DEVICE) if devices else size_of(1, rest)
        renamed = _renamed(load, arrival.name.rpartition("/")[2])
        return ArrivingPod(arrival, renamed.pod, renamed.claims, load.shared, requested, size)

    def _requested_milli(self, claim: ResourceClaim) -> int:
        """Thousandths of devices of the measured class, by the first alternative of each request."""
        total = 0
        for request in claim.spec.devices.requests or ():
            exact = request.exactly or next(iter(request.first_available), None)
            terms = self._cluster.terms
            if exact is None or (terms is not None and exact.device_class_name != terms.device_class):
                continue
            total += max(exact.count, 1) * self._part(exact.capacity)
        return total

    def _part(self, asked: CapacityRequirements | None) -> int:
        terms = self._cluster.terms
        if asked is None or terms is None or terms.capacity not in asked.requests:
            return WHOLE_DEVICE
        return min(WHOLE_DEVICE, asked.requests[terms.capacity].nanos * WHOLE_DEVICE // terms.share.nanos)

    # --- Templates --------------------------------------------------------------------------------------------------

    def _template(self, shape: PodShape) -> _Template:
        pod: Pod = decode(encode(_pod_document(shape, keeps_disk=self._keeps_disk)), Pod)
        requests = list(self._device_requests(shape))
        if not requests:
            return _Template(pod, None)
        document = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"name": "claim", "namespace": NAMESPACE},
            "spec": {"devices": {"requests": requests}},
        }
        return _Template(pod, default_resource_claim(decode(encode(document), ResourceClaim), flattened=False))

    def _device_requests(self, shape: PodShape) -> Iterator[dict[str, Any]]:
        terms = self._cluster.terms
        if terms is None:
            return
        if shape.devices:
            yield {"name": "gpu", "exactly": _gpu_request(shape, terms)}
        if shape.nic_percent and self._keeps_nics:
            capacity = {"requests": {"percent": str(shape.nic_percent)}}
            yield {"name": "nic", "exactly": {"deviceClassName": terms.nic_class, "capacity": capacity}}


def _gpu_request(shape: PodShape, terms: DeviceTerms) -> dict[str, Any]:
    request: dict[str, Any] = {"deviceClassName": terms.device_class, "count": shape.devices}
    if terms.capacity:
        amount = quantity_like(terms.share, -(-terms.share.nanos * shape.milli // WHOLE_DEVICE))
        request["capacity"] = {"requests": {terms.capacity: str(amount)}}
    if shape.models:
        models = ", ".join(f'"{model}"' for model in shape.models)
        known = f'"model" in device.attributes["{terms.driver}"]'
        expression = f'{known} && device.attributes["{terms.driver}"].model in [{models}]'
        request["selectors"] = [{"cel": {"expression": expression}}]
    return request


def _pod_document(shape: PodShape, *, keeps_disk: bool) -> dict[str, Any]:
    amounts = {"cpu": f"{shape.cpu_milli}m", "memory": f"{shape.memory_mib}Mi"}
    if shape.disk_mib and keeps_disk:
        amounts["ephemeral-storage"] = f"{shape.disk_mib}Mi"
    if shape.per_node_max is not None:
        amounts[GROUP_RESOURCE + shape.group] = "1"
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "pod", "namespace": NAMESPACE},
        "spec": {"containers": [{"name": "main", "image": "main", "resources": {"requests": amounts}}]},
    }


def _named(template: _Template, name: str) -> tuple[Pod, tuple[ResourceClaim, ...]]:
    metadata = ObjectMeta(name=name, namespace=NAMESPACE, uid=name, resource_version="1")
    pod = replace(template.pod, metadata=metadata)
    if template.claim is None:
        return pod, ()
    entries = (PodResourceClaim(name=_CLAIM_ENTRY, resource_claim_name=name),)
    return replace(pod, spec=replace(pod.spec, resource_claims=entries)), (replace(template.claim, metadata=metadata),)


def _renamed(load: ManifestPod, name: str) -> ManifestPod:
    """A copy of the pod with claims of its own; the pod itself if it has this name."""
    pod = load.pod
    if pod.metadata.name == name:
        return load
    metadata = _identity(pod.metadata, name)
    copies = {claim.metadata.name: replace(claim, metadata=_claim_identity(claim, metadata)) for claim in load.claims}
    statuses = tuple(
        replace(each, resource_claim_name=copies[each.resource_claim_name].metadata.name)
        if each.resource_claim_name in copies
        else each
        for each in pod.status.resource_claim_statuses
    )
    status = replace(pod.status, resource_claim_statuses=statuses)
    return ManifestPod(replace(pod, metadata=metadata, status=status), tuple(copies.values()))


def _identity(metadata: ObjectMeta, name: str) -> ObjectMeta:
    return replace(metadata, name=name, uid=f"{metadata.namespace}/{name}")


def _claim_identity(claim: ResourceClaim, pod: ObjectMeta) -> ObjectMeta:
    made = _identity(claim.metadata, f"{pod.name}-{claim.metadata.name}")
    owners = tuple(replace(each, name=pod.name, uid=pod.uid) for each in made.owner_references)
    return replace(made, owner_references=owners)
