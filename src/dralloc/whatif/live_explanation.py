"""The answer of `dralloc explain` about a pod or a claim of a running cluster, as values and as text."""

from __future__ import annotations

from typing import Any

from dralloc.api.core_v1 import Node
from dralloc.api.meta_v1 import ApiObject
from dralloc.api.pod_v1 import Pod
from dralloc.api.resource_v1 import DeviceClass, DeviceTaintRule, ResourceClaim, ResourceClaimTemplate, ResourceSlice
from dralloc.client.transport import Transport
from dralloc.primitives.errors import Forbidden, NotFound
from dralloc.primitives.features import FeatureGates
from dralloc.whatif.cluster_objects import ClusterObjects, UnknownObject
from dralloc.whatif.engine import Engine
from dralloc.whatif.live_cluster import read_cluster
from dralloc.whatif.pod_explanation import explain_claim, explain_pod

PLACEMENT_NEEDED: frozenset[type[ApiObject]] = frozenset({ResourceSlice, DeviceClass, ResourceClaim})
PLACEMENT_USEFUL: frozenset[type[ApiObject]] = frozenset({Node, Pod, ResourceClaimTemplate, DeviceTaintRule})


async def explain_live(
    transport: Transport, kind: str, namespace: str, name: str, gates: FeatureGates
) -> dict[str, Any]:
    """Raises NotFound, and Forbidden if the caller may not read what every answer needs."""
    needed = PLACEMENT_NEEDED | ({Pod} if kind == "pod" else set())
    objects = ClusterObjects(gates, place="the cluster", namespace=namespace)
    read = await read_cluster(transport, namespace, needed | PLACEMENT_USEFUL)
    for object_type, found in read.items():
        if found.is_missing and object_type in needed:
            raise Forbidden(found.note)
        if found.note:
            objects.notes.append(found.note)
        for obj in found.objects:
            objects.add(obj)
    engine = Engine(objects, objects.now)
    try:
        if kind == "pod":
            answer = explain_pod(engine, objects.find(Pod, kind, f"{namespace}/{name}"))
        else:
            answer = explain_claim(engine, objects.find(ResourceClaim, kind, f"{namespace}/{name}"))
    except UnknownObject as error:
        raise NotFound(str(error)) from None
    return {"explanation": answer.values(), "text": "\n".join(answer.lines()), "notes": objects.notes}
