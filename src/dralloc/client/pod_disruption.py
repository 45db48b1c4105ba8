"""The end of a pod by a controller or a scheduler: the condition DisruptionTarget says why, then the pod is deleted."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from dralloc.client.api_calls import ApiCalls, PatchType
from dralloc.client.known_resources import resource_for
from dralloc.client.typed_resource import key_of, version_of
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.timestamps import print_timestamp

_PODS: Final = resource_for(Pod)
_TYPE: Final = "DisruptionTarget"


async def disrupt(calls: ApiCalls, pod: Pod, reason: str, message: str, now: datetime) -> None:
    """Set the condition, which tells the pod's owner that the pod did not fail on its own, and delete the pod.

    Raises Conflict if the pod has changed since it was read.
    """
    if not is_target(pod, reason):
        condition = disruption_target(reason, message, now)
        pod = await patch_status(calls, pod, {"conditions": [condition]})
    await calls.delete_unchanged(_PODS, pod)


def is_target(pod: Pod, reason: str) -> bool:
    """True if the pod has the condition with this reason: it was deleted for it, or is about to be."""
    return any(entry.type == _TYPE and entry.reason == reason for entry in pod.status.conditions)


def disruption_target(reason: str, message: str, now: datetime) -> dict[str, str]:
    moment = print_timestamp(now)
    return {"type": _TYPE, "status": "True", "reason": reason, "message": message, "lastTransitionTime": moment}


async def patch_status(calls: ApiCalls, pod: Pod, status: Mapping[str, Any]) -> Pod:
    """Change these fields of the pod's status; raises Conflict if the pod has changed since it was read."""
    patch = {"metadata": version_of(pod), "status": status}
    return await calls.patch(_PODS, key_of(pod), patch, type=PatchType.STRATEGIC, subresource="status")
