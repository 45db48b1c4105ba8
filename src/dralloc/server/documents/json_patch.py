"""JSON patch (RFC 6902) and JSON merge patch (RFC 7386), as Kubernetes applies them.

As in Kubernetes, and unlike in the RFCs, a test of an absent member against `null` succeeds, and the result must be an object.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from dralloc.kube.codec import encode
from dralloc.primitives.errors import BadRequest, RequestEntityTooLarge
from dralloc.server.documents.json_documents import Document, Json, refuses_deep_nesting, same_json
from dralloc.server.http.statuses import bad_patch

# The limits of Kubernetes.
OPERATIONS_MAX: Final = 10_000
COPIED_BYTES_MAX: Final = 3 * 1024 * 1024


@refuses_deep_nesting
def apply_merge_patch(document: Document, patch: Json) -> Document:
    """The document with the patch's members set, and removed where the patch has `null`."""
    if not isinstance(patch, dict):
        raise BadRequest("a merge patch must be a JSON object")
    return _merge(document, patch)


@refuses_deep_nesting
def apply_json_patch(document: Document, operations: Json) -> Document:
    """The document after all operations; if one fails, none takes effect."""
    if not isinstance(operations, list):
        raise BadRequest("a JSON patch must be a list of operations")
    if len(operations) > OPERATIONS_MAX:
        raise RequestEntityTooLarge(
            f"The allowed maximum operations in a JSON patch is {OPERATIONS_MAX}, got {len(operations)}"
        )
    draft = _Draft(document)
    for position, operation in enumerate(operations):
        try:
            _run(draft, operation)
        except _DoesNotFit as error:
            raise bad_patch(f"operation {position}: {error}") from None
    if not isinstance(draft.root, dict):
        raise bad_patch("the result is not an object")
    return draft.root


def _merge(target: Json, patch: Mapping[str, Json]) -> Document:
    merged = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        elif isinstance(value, dict):
            merged[name] = _merge(merged.get(name), value)
        else:
            merged[name] = value
    return merged


class _DoesNotFit(Exception):
    """An operation that cannot be applied to the document."""


class _Draft:
    """A document that is being patched: a copy, as is what is put into it, so that the original and the patch stay unchanged."""

    def __init__(self, root: Json) -> None:
        self.root = _copied(root)
        self._bytes_copied = 0

    def read(self, path: Sequence[str]) -> Json:
        value = self.root
        for step in path:
            value = _member(value, step)
        return value

    def add(self, path: Sequence[str], value: Json) -> None:
        value = _copied(value)
        if not path:
            self.root = value
            return
        container, step = self._container(path), path[-1]
        if isinstance(container, dict):
            container[step] = value
        elif step == "-":
            container.append(value)
        else:
            container.insert(_position(step, len(container)), value)

    def replace(self, path: Sequence[str], value: Json) -> None:
        value = _copied(value)
        if not path:
            self.root = value
            return
        container = self._container(path)
        container[_existing_key(container, path[-1])] = value

    def remove(self, path: Sequence[str]) -> None:
        if not path:
            raise _DoesNotFit("the whole document cannot be removed")
        container = self._container(path)
        del container[_existing_key(container, path[-1])]

    def copy(self, path: Sequence[str]) -> Json:
        """The value at the path, counted as a copy."""
        value = self.read(path)
        self._bytes_copied += len(encode(value))
        if self._bytes_copied > COPIED_BYTES_MAX:
            raise _DoesNotFit(f"the patch copies more than {COPIED_BYTES_MAX} bytes")
        return value

    def _container(self, path: Sequence[str]) -> Any:
        """The object or list that contains the path's last step."""
        container = self.read(path[:-1])
        if not isinstance(container, dict | list):
            raise _DoesNotFit(f"{_pointer(path[:-1])} is neither an object nor a list")
        return container


def _copied(value: Json) -> Json:
    if isinstance(value, dict):
        return {name: _copied(member) for name, member in value.items()}
    return [_copied(item) for item in value] if isinstance(value, list) else value


def _run(draft: _Draft, operation: Json) -> None:
    if not isinstance(operation, dict):
        raise BadRequest("invalid JSON patch: an operation must be an object")
    path = _steps(operation, "path")
    match operation.get("op"):
        case "add":
            draft.add(path, _value(operation))
        case "remove":
            draft.remove(path)
        case "replace":
            draft.replace(path, _value(operation))
        case "move":
            origin = _steps(operation, "from")
            moved = draft.read(origin)
            if origin != path:
                draft.remove(origin)
                draft.add(path, moved)
        case "copy":
            draft.add(path, draft.copy(_steps(operation, "from")))
        case "test":
            if not same_json(_read_or_null(draft, path), _value(operation)):
                raise _DoesNotFit(f"test of {_pointer(path)} failed: the value differs")
        case other:
            raise _DoesNotFit(f"unknown operation {other!r}")


def _read_or_null(draft: _Draft, path: Sequence[str]) -> Json:
    if path and isinstance(parent := draft.read(path[:-1]), dict):
        return parent.get(path[-1])
    return draft.read(path)


def _value(operation: Document) -> Json:
    if "value" not in operation:
        raise _DoesNotFit("the operation has no value")
    return operation["value"]


def _steps(operation: Document, name: str) -> list[str]:
    """The parts of a JSON pointer (RFC 6901)."""
    pointer = operation.get(name)
    if not isinstance(pointer, str):
        raise _DoesNotFit(f"the operation has no {name}")
    if not pointer:
        return []
    if not pointer.startswith("/"):
        raise _DoesNotFit(f"{name} {pointer!r} does not start with '/'")
    steps = pointer[1:].split("/")
    return [step.replace("~1", "/").replace("~0", "~") for step in steps] if "~" in pointer else steps


def _pointer(path: Sequence[str]) -> str:
    return "".join("/" + step.replace("~", "~0").replace("/", "~1") for step in path) or "the document"


def _member(container: Json, step: str) -> Json:
    if not isinstance(container, dict | list):
        raise _DoesNotFit(f"the parent of {step!r} is neither an object nor a list")
    return container[_existing_key(container, step)]


def _existing_key(container: Any, step: str) -> Any:
    """The dict key or list index of a pointer's step."""
    if isinstance(container, list):
        return _position(step, len(container) - 1)
    if step not in container:
        raise _DoesNotFit(f"there is no {step!r}")
    return step


def _position(step: str, last: int) -> int:
    """The list index that a pointer's step names: digits without leading zeros."""
    if not (step.isascii() and step.isdigit()) or (step != "0" and step.startswith("0")):
        raise _DoesNotFit(f"{step!r} is not a list index")
    if len(step) > 9 or int(step) > last:
        raise _DoesNotFit(f"index {step} is out of range")
    return int(step)
