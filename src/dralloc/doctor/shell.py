"""Commands for a shell, as findings propose them."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from dralloc.api.meta_v1 import ObjectMeta


def kubectl(*words: str, namespace: str = "") -> str:
    """A kubectl command. Words are quoted as far as the shell needs it."""
    return shlex.join(["kubectl", *words, *(["-n", namespace] if namespace else [])])


def json_patch(kind: str, metadata: ObjectMeta, steps: Sequence[Mapping[str, Any]], *, status: bool = False) -> str:
    """A JSON patch of an object, or of its status. It begins with a test of the UID, so that it cannot hit another object."""
    tested = [{"op": "test", "path": "/metadata/uid", "value": metadata.uid}] if metadata.uid else []
    text = msgspec.json.encode([*tested, *steps]).decode()
    words = ["patch", kind, metadata.name, "--type=json", *(["--subresource=status"] if status else []), "-p", text]
    return kubectl(*words, namespace=metadata.namespace)


def delete(kind: str, names: Iterable[str], *options: str, namespace: str = "") -> str:
    return kubectl("delete", kind, *names, *options, namespace=namespace)


def apply(manifest: Mapping[str, Any]) -> str:
    """A command that applies the manifest."""
    return f"kubectl apply -f - <<'END'\n{msgspec.json.encode(manifest).decode()}\nEND"
