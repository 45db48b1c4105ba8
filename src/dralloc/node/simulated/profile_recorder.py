"""Makes a profile from the objects of a real cluster.

Nodes that differ only in their names become one kind with a weight. Values that are unique to each device, such as serial numbers, are
replaced by other unique values: selectors do not use them, and they would make every node a kind of its own.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from dralloc.devices.published_slice import newest_slices
from dralloc.kube.codec import encode
from dralloc.kube.core_v1 import Node
from dralloc.kube.resource_v1 import DeviceClass, ResourceSlice
from dralloc.node.simulated.placeholders import escape
from dralloc.node.simulated.profiles import PROFILE_LABEL

# Labels that identify a node.
OWN_LABELS: Final = frozenset({"kubernetes.io/hostname", PROFILE_LABEL})
# The key for the name of a device among the names of its attributes, which are never empty.
OWN_NAME: Final = ""
PLACEMENT: Final = ("nodeSelector", "allNodes", "perDeviceNodeSelection")
Document = dict[str, Any]


def record_profile(
    nodes: Sequence[Node], slices: Iterable[ResourceSlice], classes: Iterable[DeviceClass], description: str
) -> Document:
    """The profile of a cluster with these objects, as a document for a YAML file."""
    newest = (item for pool in newest_slices(slices).values() for item in pool)
    current = sorted(newest, key=lambda item: item.metadata.name)
    unique = _unique_values(current)
    own: dict[str, list[ResourceSlice]] = {}
    for item in current:
        own.setdefault(item.spec.node_name or "", []).append(item)
    shared = own.pop("", [])
    kinds: Counter[bytes] = Counter()
    for node in nodes:
        kinds[encode(_node_kind(node, own.get(node.metadata.name, ()), unique))] += 1
    return _filled(
        description=description,
        classes=[_class(item) for item in classes],
        nodes=_weighted(kinds),
        cluster=[_pool(position, pool, "", unique) for position, pool in enumerate(newest_slices(shared).values())],
    )


def _unique_values(slices: Iterable[ResourceSlice]) -> frozenset[tuple[str, str]]:
    """The (driver, attribute) pairs whose string value differs on every device, for at least two devices."""
    values: dict[tuple[str, str], list[str]] = {}
    for item in slices:
        for device in item.spec.devices or ():
            for name, attribute in device.attributes.items():
                if attribute.string is not None:
                    values.setdefault((item.spec.driver, name), []).append(attribute.string)
    return frozenset(key for key, texts in values.items() if len(texts) == len(set(texts)) > 1)


def _node_kind(node: Node, slices: Sequence[ResourceSlice], unique: frozenset[tuple[str, str]]) -> Document:
    name = node.metadata.name
    labels = {key: value for key, value in node.metadata.labels.items() if key not in OWN_LABELS}
    return _filled(
        labels=_without_name(labels, name),
        capacity={key: str(amount) for key, amount in node.status.capacity.items()},
        pools=[_pool(position, pool, name, unique) for position, pool in enumerate(newest_slices(slices).values())],
    )


def _pool(position: int, slices: Sequence[ResourceSlice], node: str, unique: frozenset[tuple[str, str]]) -> Document:
    first = slices[0].spec
    # Node, pool, slice and device keep unique values unique.
    specs = [
        _slice(item, node, unique, mark=("{number}." if node else "") + f"{position}.{index}")
        for index, item in enumerate(slices)
    ]
    placement: Document = {key: specs[0][key] for key in PLACEMENT if key in specs[0]}
    for spec in specs:
        for key in PLACEMENT:
            spec.pop(key, None)
    return {"driver": first.driver, "name": _without_name(first.pool.name, node), **placement, "slices": specs}


def _slice(item: ResourceSlice, node: str, unique: frozenset[tuple[str, str]], *, mark: str) -> Document:
    spec: Document = msgspec.json.decode(encode(item.spec))
    for key in ("driver", "pool", "nodeName"):
        spec.pop(key, None)
    devices = spec.get("devices") or []
    named = _named_after(devices, node)
    spec = _without_name(spec, "")
    if devices:
        spec["devices"] = [_device(device, node, named) for device in devices]
    for position, device in enumerate(spec.get("devices") or ()):
        for name in device.get("attributes") or {}:
            if (item.spec.driver, name) in unique:
                device["attributes"][name] = {"string": f"{mark}.{position}"}
        for taint in device.get("taints") or ():
            taint.pop("timeAdded", None)
    return spec


def _named_after(devices: Sequence[Document], node: str) -> frozenset[str]:
    """The attributes (and OWN_NAME) that contain the node's name on all devices; on some only, it is a coincidence."""
    values: dict[str, list[str]] = {}
    for device in devices:
        values.setdefault(OWN_NAME, []).append(device["name"])
        for name, attribute in (device.get("attributes") or {}).items():
            values.setdefault(name, []).append(attribute.get("string", ""))
    return frozenset(name for name, texts in values.items() if all(_parts(text, node)[1:] for text in texts))


def _device(device: Document, node: str, named: frozenset[str]) -> Document:
    attributes = {
        escape(name): _without_name(value, node if name in named else "")
        for name, value in (device.get("attributes") or {}).items()
    }
    own = _without_name(device["name"], node if OWN_NAME in named else "")
    filled = {**_without_name(device, ""), "name": own}
    return {**filled, "attributes": attributes} if attributes else filled


def _parts(text: str, node: str) -> list[str]:
    """The text split at the node's name as a whole word: `node-1` is not in `node-10`."""
    return re.split(rf"(?<![A-Za-z0-9]){re.escape(node)}(?![A-Za-z0-9])", text) if node else [text]


def _without_name(tree: Any, node: str) -> Any:
    """The tree with the node's name replaced by a placeholder, and all other braces escaped."""
    match tree:
        case str():
            return "{node}".join(map(escape, _parts(tree, node)))
        case list():
            return [_without_name(item, node) for item in tree]
        case dict():
            return {_without_name(key, node): _without_name(value, node) for key, value in tree.items()}
        case _:
            return tree


def _weighted(kinds: Mapping[bytes, int]) -> list[Document]:
    """The kinds, the most frequent first, with weights divided by their greatest common divisor."""
    divisor = math.gcd(*kinds.values()) if kinds else 1
    ordered = sorted(kinds.items(), key=lambda entry: (-entry[1], entry[0]))
    return [{"weight": count // divisor, **msgspec.json.decode(kind)} for kind, count in ordered]


def _class(item: DeviceClass) -> Document:
    document: Document = msgspec.json.decode(encode(item))
    return {"metadata": {"name": item.metadata.name}, "spec": document.get("spec") or {}}


def _filled(**members: Any) -> Document:
    return {key: value for key, value in members.items() if value}
