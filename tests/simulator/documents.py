"""The documents that users of a simulation send: objects, and the forms of claims."""

from __future__ import annotations

from typing import Any, Final

RESOURCE: Final = "resource.k8s.io/v1"

Document = dict[str, Any]


def document(
    api_version: str,
    kind: str,
    name: str,
    namespace: str = "",
    *,
    annotations: dict[str, str] | None = None,
    **members: Any,
) -> Document:
    metadata: Document = {"name": name}
    if namespace:
        metadata["namespace"] = namespace
    if annotations:
        metadata["annotations"] = annotations
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **members}


def claim_spec(form: Document) -> Document:
    request = {name: member for name, member in form.items() if name != "constraints"}
    return {"devices": {"requests": [{"name": "request", **request}], "constraints": form.get("constraints", [])}}


def exactly(driver: str, *, bandwidth: str = "", limit: str = "", count: int = 1, **members: Any) -> Document:
    wanted: Document = {"deviceClassName": driver, "count": count, **members}
    if bandwidth:
        wanted["capacity"] = {"requests": {"bandwidth": bandwidth}}
    if limit:
        wanted.setdefault("capacity", {})["limits"] = {"bandwidth": limit}
    return {"exactly": wanted}


def alternative(driver: str, name: str, bandwidth: str) -> Document:
    return {"name": name, "deviceClassName": driver, "capacity": {"requests": {"bandwidth": bandwidth}}}
