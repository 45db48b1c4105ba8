"""Objects as documents that people read and tools take."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from dralloc.kube.codec import encode
from dralloc.kube.conversion import from_hub
from dralloc.kube.json_reader import read_json
from dralloc.kube.meta_v1 import ApiObject
from dralloc.kube.registry import find_kind, print_object
from dralloc.kube.resource_v1 import GROUP
from dralloc.kube.yaml_writer import write_yaml


def as_manifest(obj: ApiObject, version: str) -> bytes:
    """The object's JSON in a version of the API, or in its own where it does not exist in that one.

    It is without what only a server gives.
    """
    obj = replace(obj, metadata=replace(obj.metadata, uid="", creation_timestamp=None, generation=0))
    kind = find_kind(obj.api_version, obj.kind)
    if kind is None or kind.group != GROUP or kind.served(version) is None:
        return print_object(obj)
    return encode(from_hub(obj, version))


def to_yaml(bodies: Sequence[bytes]) -> str:
    """One document after the other."""
    return "---\n".join(write_yaml(read_json(body.decode())) for body in bodies)


def to_json(bodies: Sequence[bytes], *, is_list: bool = False) -> str:
    """The one object, or a list of all."""
    return pretty(bodies[0] if len(bodies) == 1 and not is_list else as_list(bodies))


def as_list(bodies: Sequence[bytes], **more: Any) -> bytes:
    """A list that every tool takes apart, with whatever else there is to say."""
    return msgspec.json.encode({"apiVersion": "v1", "kind": "List", "items": [*map(Raw, bodies)], **more})


def plain_yaml(value: dict[str, Any]) -> str:
    """A value that is no object of the API."""
    return write_yaml(value)


def plain_json(value: dict[str, Any]) -> str:
    return pretty(msgspec.json.encode(value))


def pretty(body: bytes) -> str:
    return msgspec.json.format(body, indent=2).decode()
