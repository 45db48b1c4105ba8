"""Defaults of pods, for the fields that a scheduler, a node or a reader of the pod uses.

Works on the JSON of a pod's spec, because that has more fields than we model.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from dralloc.kube.meta_v1 import ObjectMeta
from dralloc.kube.node_taints import NOT_READY, UNREACHABLE
from dralloc.kube.pod_v1 import DEFAULT_SCHEDULER, PodSpec
from dralloc.kube.scheduling_v1 import PREEMPT_LOWER, SYSTEM_CLASSES, PriorityClass

Tree = dict[str, Any]

_POD_DEFAULTS: Final[Mapping[str, Any]] = {
    "restartPolicy": "Always",
    "terminationGracePeriodSeconds": 30,
    "dnsPolicy": "ClusterFirst",
    "securityContext": {},
    "schedulerName": DEFAULT_SCHEDULER,
    "enableServiceLinks": True,
}

_CONTAINER_DEFAULTS: Final[Mapping[str, Any]] = {
    "terminationMessagePath": "/dev/termination-log",
    "terminationMessagePolicy": "File",
    "resources": {},
}

# The default toleration time for a node that is unreachable or not ready.
_UNHEALTHY_NODE_TAINTS: Final = (NOT_READY, UNREACHABLE)
_UNHEALTHY_NODE_SECONDS: Final = 300


def default_template_spec(spec: Tree) -> Tree:
    """Returns the spec of a pod template: without the defaults of real pods."""
    return _with_container_defaults({**_POD_DEFAULTS, **spec})


def default_pod_spec(spec: Tree) -> Tree:
    defaulted = _with_container_defaults({**_POD_DEFAULTS, **spec})
    if spec.get("hostNetwork"):
        _listen_on_host(defaulted)
    defaulted["tolerations"] = _with_unhealthy_nodes(_objects(spec.get("tolerations")))
    return defaulted


def _with_container_defaults(spec: Tree) -> Tree:
    for member in ("containers", "initContainers"):
        if spec.get(member):
            spec[member] = [_default_container(container) for container in _objects(spec[member])]
    return spec


def _listen_on_host(spec: Tree) -> None:
    """On the host's network, every container port is a host port."""
    for container in (*(spec.get("initContainers") or ()), *(spec.get("containers") or ())):
        for port in container.get("ports") or ():
            if not port.get("hostPort") and port.get("containerPort"):
                port["hostPort"] = port["containerPort"]


def _objects(items: list[Tree | None] | None) -> list[Tree]:
    """Returns the items of a list; null stands for an empty object."""
    return [item or {} for item in items or []]


def _default_container(container: Tree) -> Tree:
    defaulted = {**_CONTAINER_DEFAULTS, **container}
    defaulted.setdefault("imagePullPolicy", _pull_policy(defaulted.get("image") or ""))
    defaulted["resources"] = _default_resources(defaulted["resources"])
    if defaulted.get("ports"):
        defaulted["ports"] = [{"protocol": "TCP", **port} for port in _objects(defaulted["ports"])]
    return defaulted


def _pull_policy(image: str) -> str:
    """An image without a tag can change at any time."""
    name = image.rpartition("/")[2]
    tag = name.rpartition(":")[2] if ":" in name else ""
    return "Always" if "@" not in name and tag in ("", "latest") else "IfNotPresent"


def _default_resources(resources: Tree) -> Tree:
    """A limit without a request is also the request."""
    limits = resources.get("limits")
    return resources if not limits else {**resources, "requests": {**limits, **(resources.get("requests") or {})}}


def _with_unhealthy_nodes(tolerations: list[Tree]) -> list[Tree]:
    added = [
        {"key": taint, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": _UNHEALTHY_NODE_SECONDS}
        for taint in _UNHEALTHY_NODE_TAINTS
        if not any(_tolerates_eviction(toleration, taint) for toleration in tolerations)
    ]
    return [*tolerations, *added]


def _tolerates_eviction(toleration: Tree, taint: str) -> bool:
    return toleration.get("key", "") in ("", taint) and toleration.get("effect", "") in ("", "NoExecute")


def quality_of_service(spec: PodSpec) -> str:
    amounts = [
        (container.resources.requests.get(name), container.resources.limits.get(name))
        for container in (*spec.init_containers, *spec.containers)
        for name in ("cpu", "memory")
    ]
    if not any(request or limit for request, limit in amounts):
        return "BestEffort"
    if all(limit and (request is None or request == limit) for request, limit in amounts):
        return "Guaranteed"
    return "Burstable"


# --- Pod priority ---------------------------------------------------------------------------------------------------
# The priority of a new pod: that of its PriorityClass, or of the default class. A pod that states another one is
# refused.


# Applies to pods without a class.
_UNCLASSED: Final = PriorityClass(preemption_policy=PREEMPT_LOWER)


def class_of_pod(name: str, classes: Mapping[str, PriorityClass]) -> PriorityClass | None:
    """The class that a pod names, if it exists; without a name, the default class.

    If concurrent writes made several default classes, the one with the lowest value counts.
    """
    if not name:
        return min((each for each in classes.values() if each.global_default), key=_value, default=_UNCLASSED)
    if name not in classes and name in SYSTEM_CLASSES:
        return PriorityClass(metadata=ObjectMeta(name=name), value=SYSTEM_CLASSES[name])
    return classes.get(name)


def given_by(found: PriorityClass) -> dict[str, Any]:
    """The fields of a pod's spec that its class decides."""
    return {"priority": found.value, "preemptionPolicy": found.preemption_policy or PREEMPT_LOWER}


def priority_refusal(name: str, found: PriorityClass | None, stated: Mapping[str, Any]) -> str | None:
    """Why a new pod that names this class and states these fields is refused; None if it is not."""
    if found is None:
        return f"no PriorityClass with name {name} was found"
    for member, value in given_by(found).items():
        if stated.get(member) not in (None, value):
            whose = f"its PriorityClass {found.metadata.name}" if found.metadata.name else "a pod without PriorityClass"
            return f"{member} cannot be {stated[member]}: {whose} has {value}"
    return None


def _value(each: PriorityClass) -> int:
    return each.value
