"""Kubernetes' own protobuf messages: the descriptors that the kubectl binary carries."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, ParamSpec

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

KUBECTL = Path(__file__).parents[2] / ".tools" / "kubectl-debian" / "usr" / "bin" / "kubectl"
P = ParamSpec("P")
_GZIP = rb"\x1f\x8b\x08\x00\x00\x00\x00\x00"


def compares_with_kubernetes(test: Callable[P, None]) -> Callable[P, None]:
    """Marks a test that needs these messages."""
    is_missing = pytest.mark.skipif(
        not KUBECTL.exists(), reason="needs kubectl: scripts/install-system-tools installs it"
    )
    return pytest.mark.real(is_missing(test))


@cache
def files() -> Mapping[str, FileDescriptorProto]:
    """The descriptors in the binary by package, such as `core.v1`."""
    binary = KUBECTL.read_bytes()
    found: dict[str, FileDescriptorProto] = {}
    for match in re.finditer(_GZIP, binary):
        try:
            content = zlib.decompressobj(31).decompress(binary[match.start() : match.start() + (1 << 20)])
            file = FileDescriptorProto.FromString(content)
        except Exception:  # noqa: BLE001 - other compressed data
            continue
        file.name = _plain(file.name)
        found[file.name] = file
    for file in found.values():
        _strip(file, found)
    return found


def _plain(name: str) -> str:
    return name.removeprefix("k8s.io/kubernetes/vendor/")


def _strip(file: FileDescriptorProto, known: Mapping[str, FileDescriptorProto]) -> None:
    """Remove what is only for the generator of Go code."""
    needed = [name for each in file.dependency if (name := _plain(each)) in known]
    del file.dependency[:]
    file.dependency.extend(needed)
    file.ClearField("options")
    for message in file.message_type:
        if not message.options.map_entry:
            message.ClearField("options")
        for field in message.field:
            field.ClearField("options")


def message_class(name: str) -> Any:
    """The class of the message, such as `k8s.io.api.core.v1.Pod`."""
    return GetMessageClass(_pool().FindMessageTypeByName(name))


@cache
def _pool() -> DescriptorPool:
    made = DescriptorPool()
    waiting = dict(files())

    def add(name: str) -> None:
        file = waiting.pop(name, None)
        if file is not None:
            for needed in file.dependency:
                add(needed)
            made.Add(file)

    for name in files():
        if name.startswith("k8s.io/api"):
            add(name)
    return made
