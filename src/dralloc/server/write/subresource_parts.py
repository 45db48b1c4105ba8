"""Subresources that show a part of a stored object, and write only that part: scale, ephemeral containers.

A client reads and writes the part as a document; every write of it is admitted as a write of the object.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from dralloc.primitives.errors import BadRequest
from dralloc.primitives.field_errors import FieldPath
from dralloc.primitives.field_errors import invalid as invalid_field
from dralloc.server.documents.json_documents import Document
from dralloc.server.http.statuses import invalid
from dralloc.server.write.request_bodies import member

SCALE_VERSION: Final = "autoscaling/v1"
_REPLICAS_MAX: Final = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class SubresourcePart:
    """How a part is shown, and how the object is made from the stored one and a part that a client sent."""

    show: Callable[[Document], Document]
    merge: Callable[[Document, Document], Document]
    # The subresource that admission handles the write as.
    admitted_as: str = ""


def _same(document: Document) -> Document:
    return document


# --- scale --------------------------------------------------------------------------------------------------


def _scale_of(workload: Document) -> Document:
    metadata, spec, status = workload["metadata"], workload.get("spec") or {}, workload.get("status") or {}
    identity = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    scaled: Document = {"replicas": status.get("replicas") or 0}
    if selector := _printed_selector(spec.get("selector") or {}):
        scaled["selector"] = selector
    return {
        "kind": "Scale",
        "apiVersion": SCALE_VERSION,
        "metadata": {name: metadata[name] for name in identity if name in metadata},
        "spec": {"replicas": replicas} if (replicas := spec.get("replicas", 1)) else {},
        "status": scaled,
    }


def _scaled(workload: Document, scale: Document) -> Document:
    if scale.get("kind", "Scale") != "Scale":
        raise BadRequest(f"the body is a {scale['kind']}, and must be a Scale of {SCALE_VERSION}")
    replicas = member(scale, "spec").get("replicas") or 0
    if not isinstance(replicas, int) or isinstance(replicas, bool) or replicas > _REPLICAS_MAX:
        raise BadRequest("spec.replicas of a Scale must be a whole number of 32 bits")
    if replicas < 0:
        fault = invalid_field(FieldPath.of("spec", "replicas"), replicas, "must be greater than or equal to 0")
        raise invalid("autoscaling", "Scale", workload["metadata"]["name"], [fault])
    spec = {**(workload.get("spec") or {}), "replicas": replicas}
    return {**workload, "metadata": _preconditions(workload, scale), "spec": spec}


def _printed_selector(selector: Document) -> str:
    """The selector as a `labelSelector` parameter; a ReplicationController has a plain map of labels."""
    if "matchLabels" not in selector and "matchExpressions" not in selector:
        return ",".join(f"{key}={value}" for key, value in sorted(selector.items()))
    terms = [f"{key}={value}" for key, value in sorted((selector.get("matchLabels") or {}).items())]
    for expression in selector.get("matchExpressions") or ():
        key, values = expression.get("key", ""), ",".join(sorted(expression.get("values") or ()))
        match expression.get("operator"):
            case "Exists":
                terms.append(key)
            case "DoesNotExist":
                terms.append(f"!{key}")
            case operator:
                terms.append(f"{key} {str(operator).lower()} ({values})")
    return ",".join(terms)


# --- ephemeral containers ---------------------------------------------------------------------------------------


def _with_ephemeral_containers(pod: Document, sent: Document) -> Document:
    spec = {name: value for name, value in (pod.get("spec") or {}).items() if name != "ephemeralContainers"}
    if containers := member(sent, "spec").get("ephemeralContainers"):
        spec["ephemeralContainers"] = containers
    return {**pod, "metadata": _preconditions(pod, sent), "spec": spec}


def _preconditions(stored: Document, sent: Document) -> dict[str, Any]:
    """The stored metadata, with the UID and the revision that the client expects, if it states them."""
    stated = {name: value for name in ("uid", "resourceVersion") if (value := member(sent, "metadata").get(name))}
    return {**{name: value for name, value in stored["metadata"].items() if name != "resourceVersion"}, **stated}


PARTS: Final[Mapping[str, SubresourcePart]] = {
    "scale": SubresourcePart(_scale_of, _scaled),
    "ephemeralcontainers": SubresourcePart(_same, _with_ephemeral_containers, "ephemeralcontainers"),
}
