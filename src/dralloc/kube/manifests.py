"""Manifests: the objects in a JSON or YAML text with one or many documents; lists are flattened.

Each object comes out as JSON bytes, whatever the manifest is written in, so that there is one way to decode it.
Positions are looked up afterwards and only for documents with errors.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from msgspec import Raw

from dralloc.kube.codec import encode
from dralloc.kube.json_reader import locate_json, read_json_stream
from dralloc.kube.nesting_limit import LEVELS_MAX, is_nested_too_deeply
from dralloc.kube.positions import Position, SourceError, Steps, position_of
from dralloc.kube.yaml_reader import locate_yaml, read_yaml_stream

_BYTE_ORDER_MARK: Final = "\ufeff"
_ITEMS: Final = msgspec.json.Decoder(list[Raw])
_MEMBERS: Final = msgspec.json.Decoder(dict[str, Raw])


@dataclass(frozen=True, slots=True)
class Document:
    """One object of a manifest: its JSON, and the same as a plain tree."""

    body: bytes
    tree: Any
    # The index of its document in the text, and the path to it if that document is a list.
    index: int
    prefix: Steps = ()

    @property
    def api_version(self) -> str:
        return self._text("apiVersion")

    @property
    def kind(self) -> str:
        return self._text("kind")

    def _text(self, name: str) -> str:
        value = self.tree.get(name) if isinstance(self.tree, dict) else None
        return value if isinstance(value, str) else ""


@dataclass(frozen=True, slots=True)
class Manifest:
    """The documents that could be read, and the error that ended reading, if any."""

    text: str
    documents: tuple[Document, ...] = ()
    error: SourceError | None = None
    # The start of each JSON value; empty for YAML.
    starts: tuple[int, ...] = ()

    def locate(self, documents: Iterable[Document]) -> Mapping[int, dict[Steps, Position]]:
        """Returns the positions of all parts of the documents that these come from."""
        wanted = frozenset(document.index for document in documents)
        if self.starts:
            return {index: locate_json(self.text, self.starts[index]) for index in wanted}
        return locate_yaml(self.text, wanted)


def read_manifest(source: bytes) -> Manifest:
    """Returns the objects in the bytes of a file."""
    try:
        text = source.decode().removeprefix(_BYTE_ORDER_MARK)
    except UnicodeDecodeError as error:
        readable = source[: error.start].decode(errors="replace")
        return Manifest("", error=SourceError(position_of(readable, len(readable)), "not UTF-8 text"))
    if not text.lstrip().startswith(("{", "[")):
        return _read_yaml(text)
    as_json = _read_json(text)
    if as_json.error is None:
        return as_json
    # YAML has braces, too.
    as_yaml = _read_yaml(text)
    return as_yaml if as_yaml.error is None else as_json


def _read_json(text: str) -> Manifest:
    documents: list[Document] = []
    starts: list[int] = []
    error = None
    try:
        for tree, start, end in read_json_stream(text):
            body = text[start:end].encode()
            if is_nested_too_deeply(body):
                raise SourceError(position_of(text, start), f"nested more than {LEVELS_MAX} levels deep")
            documents.extend(_flattened(body, tree, len(starts)))
            starts.append(start)
    except SourceError as stopped:
        error = stopped
    return Manifest(text, tuple(documents), error, tuple(starts))


def _read_yaml(text: str) -> Manifest:
    documents: list[Document] = []
    error = None
    try:
        for index, tree in enumerate(read_yaml_stream(text)):
            if tree is not None:
                documents.extend(_flattened(encode(tree), tree, index))
    except SourceError as stopped:
        error = stopped
    return Manifest(text, tuple(documents), error)


def _flattened(body: bytes, tree: Any, index: int) -> Iterator[Document]:
    """Yields the object, or the objects of a list and of lists in it."""
    pending = [Document(body, tree, index)]
    while pending:
        document = pending.pop()
        if document.kind.endswith("List") and isinstance(document.tree.get("items"), list):
            pending.extend(reversed(list(_items(document))))
        else:
            yield document


def _items(document: Document) -> Iterator[Document]:
    bodies = _ITEMS.decode(_MEMBERS.decode(document.body)["items"])
    inherited = (
        {} if document.kind == "List" else {"apiVersion": document.api_version, "kind": document.kind[: -len("List")]}
    )
    for position, (item, body) in enumerate(zip(document.tree["items"], bodies, strict=True)):
        prefix = (*document.prefix, "items", position)
        missing = {name: value for name, value in inherited.items() if isinstance(item, dict) and not item.get(name)}
        if missing:
            whole = msgspec.json.encode({**_MEMBERS.decode(body), **missing})
            yield Document(whole, {**item, **missing}, document.index, prefix)
        else:
            yield Document(bytes(body), item, document.index, prefix)
