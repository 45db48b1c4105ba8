"""Applies the changes of a remedy, as JSON has them, to manifests. Shares no code with what made them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from dralloc.answers.cluster_objects import ClusterObjects, decode_object
from dralloc.kube.codec import encode
from dralloc.kube.registry import find_kind
from dralloc.primitives.features import FeatureGates

Manifest = dict[str, Any]


def manifests_of(objects: ClusterObjects) -> list[Manifest]:
    found = []
    for kind, members in objects.objects.items():
        for obj in members.values():
            manifest = json.loads(encode(obj))
            version = "v1" if kind.__name__ in ("Pod", "Node") else "resource.k8s.io/v1"
            found.append({**manifest, "apiVersion": version, "kind": kind.__name__})
    return found


def objects_of(manifests: Iterable[Manifest], gates: FeatureGates) -> ClusterObjects:
    objects = ClusterObjects(gates)
    for manifest in manifests:
        kind = find_kind(manifest["apiVersion"], manifest["kind"])
        assert kind is not None, manifest["kind"]
        objects.add(decode_object(kind, "v1", json.dumps(manifest).encode()))
    return objects


def changed(
    manifests: Iterable[Manifest], gates: FeatureGates, changes: Iterable[Manifest]
) -> tuple[list[Manifest], FeatureGates]:
    by_name = {_key(manifest): json.loads(json.dumps(manifest)) for manifest in manifests}
    for change in changes:
        if change["action"] == "enableFeatureGate":
            gates = gates.override({change["featureGate"]: True})
            continue
        key = (change["apiVersion"], change["kind"], change.get("namespace", ""), change["name"])
        match change["action"]:
            case "delete":
                del by_name[key]
            case "release":
                by_name[key]["status"] = {}
            case "set":
                _set(by_name[key], change)
    return list(by_name.values()), gates


def _key(manifest: Manifest) -> tuple[str, str, str, str]:
    metadata = manifest["metadata"]
    return manifest["apiVersion"], manifest["kind"], metadata.get("namespace", ""), metadata["name"]


def _set(manifest: Manifest, change: Manifest) -> None:
    *parents, last = [step.replace("~1", "/").replace("~0", "~") for step in change["path"].split("/")[1:]]
    container: Any = manifest
    for step in parents:
        container = container[int(step)] if isinstance(container, list) else container[step]
    if last == "-":
        container.append(change["to"])
        return
    key: Any = int(last) if isinstance(container, list) else last
    if "from" in change:
        assert container[key] == change["from"]
    else:
        assert key not in container
    if "to" in change:
        container[key] = change["to"]
    else:
        del container[key]
