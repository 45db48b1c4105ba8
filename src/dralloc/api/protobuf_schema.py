"""The messages of Kubernetes' protobuf encoding, from `protobuf_messages.txt`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Final

Document = dict[str, Any]

MAGIC: Final = b"k8s\x00"

SCALARS: Final = frozenset(
    [
        "string",
        "int",
        "uint",
        "bool",
        "double",
        "bytes",
        "time",
        "microtime",
        "quantity",
        "int-or-string",
        "json",
        "strings",
    ]
)
NUMBERS: Final = frozenset({"int", "uint", "bool", "double"})

# Groups whose package in Kubernetes has another name than the first part of the group.
_PACKAGES: Final = {"": "core", "rbac.authorization.k8s.io": "rbac"}
# Options and results that every group uses.
_META_KINDS: Final = frozenset({"DeleteOptions", "Status", "PartialObjectMetadata", "PartialObjectMetadataList"})


@dataclass(frozen=True, slots=True)
class MessageField:
    name: str
    # A scalar, or the full name of a message.
    type: str
    is_list: bool = False
    is_map: bool = False
    # Its fields are inlined into the containing message.
    is_inlined: bool = False
    # An empty value means absence.
    omits_empty: bool = False


@cache
def messages() -> Mapping[str, Mapping[int, MessageField]]:
    """Every message by its full name. No message contains itself, which bounds the recursion."""
    text = resources.files("dralloc.api").joinpath("protobuf_messages.txt").read_text()
    found: dict[str, dict[int, MessageField]] = {}
    package = ""
    for line in text.splitlines():
        if line.startswith("["):
            package = line.strip("[]")
        elif line and not line.startswith("#"):
            name, _, members = line.partition(":")
            found[f"{package}.{name}"] = dict(
                _parse_member(member, package) for member in members.split(", ") if member.strip()
            )
    return found


def message_name(api_version: str, kind: str) -> str | None:
    """The message of a kind; `None` if it has none."""
    group, _, version = api_version.rpartition("/")
    package = _PACKAGES.get(group, group.partition(".")[0])
    name = f"meta.v1.{kind}" if kind in _META_KINDS else f"{package}.{version}.{kind}"
    return name if name in messages() else None


def _parse_member(text: str, package: str) -> tuple[int, MessageField]:
    number, name, type_ = text.split()
    plain = type_.strip("*%?")
    full = plain if plain in SCALARS or "." in plain else f"{package}.{plain}"
    return int(number), MessageField(
        name=name.lstrip("^"),
        type=full,
        is_list=type_.startswith("*"),
        is_map=type_.startswith("%"),
        is_inlined=name.startswith("^"),
        omits_empty=type_.endswith("?"),
    )
