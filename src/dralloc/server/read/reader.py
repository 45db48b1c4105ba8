"""Get, list and watch, in every form that clients ask for."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from dralloc.kube.codec import encode
from dralloc.kube.kind import Kind
from dralloc.kube.protobuf_writer import has_message
from dralloc.primitives.clock import Clock
from dralloc.server.describe.tables import (
    API_VERSION,
    IncludeObject,
    partial_metadata,
    read_include_object,
    table_of,
)
from dralloc.server.documents.json_documents import Document
from dralloc.server.http.messages import HttpRequest, HttpResponse
from dralloc.server.http.negotiation import Form, form_of_objects, wants_protobuf
from dralloc.server.http.query_options import ListOptions, list_options, revision_of
from dralloc.server.http.statuses import not_found
from dralloc.server.read.api_resources import ApiResource, key_of, name_of, namespace_of, prefix_of
from dralloc.server.read.record_lists import (
    EVERYTHING,
    RecordList,
    Selection,
    in_pieces,
    list_records,
    wait_for_revision,
)
from dralloc.server.read.selectors import (
    FieldQuery,
    LabelQuery,
    parse_field_selector,
    parse_label_selector,
)
from dralloc.server.read.watch_streams import Frames, JsonFrames, ProtobufFrames, WatchRequest, WatchTable
from dralloc.server.store.interface import Store
from dralloc.server.store.records import Record

INITIAL_EVENTS_END: Final = "k8s.io/initial-events-end"

_BY_METADATA: Final = frozenset({"metadata.name", "metadata.namespace"})


class _Labels(msgspec.Struct, frozen=True, gc=False):
    labels: dict[str, str] = {}


class _Labelled(msgspec.Struct, frozen=True, gc=False):
    metadata: _Labels


_LABELS: Final = msgspec.json.Decoder(_Labelled)


@dataclass(frozen=True, slots=True)
class Collection:
    """All objects of a kind, or those of one namespace."""

    resource: ApiResource
    namespace: str = ""

    @property
    def kind(self) -> Kind:
        return self.resource.kind


class Reader:
    def __init__(self, store: Store, clock: Clock, watches: WatchTable) -> None:
        self._store = store
        self._clock = clock
        self._watches = watches
        self._frames: dict[tuple[ApiResource, Form, IncludeObject, type[Frames]], Frames] = {}

    async def get(self, request: HttpRequest, collection: Collection, name: str) -> HttpResponse:
        resource, kind = collection.resource, collection.kind
        if version := request.query.get("resourceVersion"):
            await wait_for_revision(self._store, revision_of(version))
        record = await self._store.get(key_of(kind, collection.namespace, name))
        if record is None:
            raise not_found(kind.group, kind.plural, name)
        form, include = _form(request)
        render = self._renderer(resource, form, include)
        return HttpResponse(body=render(record.value, record.revision), headers=resource.deprecation)

    # --- lists ----------------------------------------------------------------------------------------------

    async def list(self, request: HttpRequest, collection: Collection) -> HttpResponse:
        options = list_options(request.query)
        prefix, selection = select(collection, options)
        listing = await list_records(self._store, prefix, selection, options)
        resource = collection.resource
        form, include = _form(request)
        parts = self._list_parts(resource, listing, form, include)
        # Decoding and converting takes several times as long as copying.
        work = 1 if parts.copies else 8
        pieces = list(in_pieces(listing.records, lambda record: work * (200 + len(record.value))))
        if len(pieces) <= 1:
            return HttpResponse(body=parts.whole(listing.records), headers=resource.deprecation)
        return HttpResponse(stream=parts.stream(pieces), headers=resource.deprecation)

    def _list_parts(self, resource: ApiResource, listing: RecordList, form: Form, include: IncludeObject) -> _ListParts:
        metadata = encode(_list_metadata(listing))
        presentation = resource.presentation
        if form is Form.TABLE:
            now, kind = self._clock.now(), resource.kind
            table = table_of(kind.group, kind.kind, (), now, list_metadata=_list_metadata(listing))
            head = encode({name: value for name, value in table.items() if name != "rows"})[:-1] + b',"rows":['

            def rows(records: Sequence[Record]) -> list[bytes]:
                documents = [presentation.document(record.value, record.revision) for record in records]
                made = table_of(kind.group, kind.kind, documents, now, include=include, with_columns=False)
                return [encode(row) for row in made["rows"]]

            return _ListParts(head, rows)
        if form is Form.METADATA:
            head = _list_head("PartialObjectMetadataList", API_VERSION, metadata)
            render = self._renderer(resource, form, include)
            return _ListParts(head, lambda records: [render(record.value, record.revision) for record in records])
        head = _list_head(resource.kind.list_kind, resource.api_version, metadata)
        return _ListParts(
            head,
            lambda records: [presentation.item(record.value, record.revision) for record in records],
            copies=_copies(resource, form),
        )

    # --- watches --------------------------------------------------------------------------------------------

    async def watch(self, request: HttpRequest, collection: Collection) -> HttpResponse:
        options = list_options(request.query)
        prefix, selection = select(collection, options)
        after_revision = revision_of(options.resource_version)
        stated = options.send_initial_events
        watch = WatchRequest(
            prefix=prefix,
            selection=selection,
            after_revision=after_revision,
            initial_state=not after_revision if stated is None else stated,
            initial_bookmark=bool(stated) and options.allow_bookmarks,
            bookmarks=options.allow_bookmarks,
            timeout_s=options.timeout_s,
        )
        frames = self._frames_of(collection.resource, request)
        return HttpResponse(
            stream=self._watches.stream(watch, frames),
            content_type=frames.content_type,
            push=lambda sink: self._watches.push(watch, frames, sink),
            headers=collection.resource.deprecation,
        )

    def _frames_of(self, resource: ApiResource, request: HttpRequest) -> Frames:
        form, include = _form(request)
        is_protobuf = wants_protobuf(request.header(b"accept")) and has_message(
            resource.api_version, resource.kind.kind
        )
        frames_type: type[Frames] = ProtobufFrames if is_protobuf else JsonFrames
        frames = self._frames.get((resource, form, include, frames_type))
        if frames is None:
            render = self._renderer(resource, form, include)
            frames = frames_type(
                render,
                lambda revision, is_end: _bookmark(resource, form, revision, is_end),
                copies=not is_protobuf and _copies(resource, form),
            )
            self._frames[resource, form, include, frames_type] = frames
        return frames

    # --- forms ----------------------------------------------------------------------------------------------

    def _renderer(self, resource: ApiResource, form: Form, include: IncludeObject) -> Callable[[bytes, int], bytes]:
        """A function that renders one object in this form."""
        presentation, kind = resource.presentation, resource.kind
        if form is Form.OBJECT:
            return presentation.object
        if form is Form.METADATA:
            return lambda stored, revision: encode(partial_metadata(presentation.document(stored, revision)))

        def table(stored: bytes, revision: int) -> bytes:
            document = presentation.document(stored, revision)
            metadata = {"resourceVersion": str(revision)}
            now = self._clock.now()
            return encode(table_of(kind.group, kind.kind, (document,), now, include=include, list_metadata=metadata))

        return table


@dataclass(frozen=True, slots=True)
class _ListParts:
    """The parts of a list response: what precedes the items, and how items are rendered."""

    head: bytes
    show: Callable[[Sequence[Record]], list[bytes]]
    # Items are shown as they are stored.
    copies: bool = False

    def whole(self, records: Sequence[Record]) -> bytes:
        return self.head + self._items(records) + b"]}"

    async def stream(self, pieces: Sequence[Sequence[Record]]) -> AsyncGenerator[bytes, None]:
        """A long list in pieces; each is rendered when the client has taken the one before."""
        before = self.head
        for records in pieces:
            yield before + self._items(records)
            before = b","
        yield b"]}"

    def _items(self, records: Sequence[Record]) -> bytes:
        return b",".join(self.show(records))


def select(collection: Collection, options: ListOptions) -> tuple[str, Selection]:
    """The key prefix and the selection of a list or watch."""
    kind, namespace = collection.kind, collection.namespace
    labels = parse_label_selector(options.label_selector)
    fields = parse_field_selector(options.field_selector, kind.group, kind.kind)
    if kind.namespaced and not namespace:
        namespace = fields.exact("metadata.namespace") or ""
    prefix = prefix_of(kind, namespace)
    name = fields.exact("metadata.name")
    if name and (namespace or not kind.namespaced):
        prefix += name
    if not (labels.requirements or fields.fields):
        return prefix, EVERYTHING
    return prefix, Selection(_matcher(kind, labels, fields))


def _matcher(kind: Kind, labels: LabelQuery, fields: FieldQuery) -> Callable[[Record], bool]:
    selected = fields.fields
    by_metadata = selected <= _BY_METADATA

    def matches(record: Record) -> bool:
        if labels.requirements and not labels.matches(_LABELS.decode(record.value).metadata.labels):
            return False
        if not selected:
            return True
        if by_metadata:
            place = {"name": name_of(record.key), "namespace": namespace_of(kind, record.key)}
            return fields.matches({"metadata": place})
        return fields.matches(msgspec.json.decode(record.value))

    return matches


def _copies(resource: ApiResource, form: Form) -> bool:
    """True if objects are shown as they are stored."""
    return form is Form.OBJECT and resource.presentation.copies


def _form(request: HttpRequest) -> tuple[Form, IncludeObject]:
    form = form_of_objects(request.header(b"accept"))
    if form is not Form.TABLE:
        return form, IncludeObject.METADATA
    return form, read_include_object(request.query.get("includeObject", ""))


def _list_metadata(listing: RecordList) -> Document:
    metadata: dict[str, Any] = {"resourceVersion": str(listing.revision)}
    if listing.next is not None:
        metadata["continue"] = listing.next.encode()
        if listing.remaining is not None:
            metadata["remainingItemCount"] = listing.remaining
    return metadata


def _list_head(kind: str, api_version: str, metadata: bytes) -> bytes:
    return b'{"kind":%b,"apiVersion":%b,"metadata":%b,"items":[' % (encode(kind), encode(api_version), metadata)


def _bookmark(resource: ApiResource, form: Form, revision: int, is_initial_end: bool) -> bytes:
    metadata: Document = {"resourceVersion": str(revision)}
    if is_initial_end:
        metadata["annotations"] = {INITIAL_EVENTS_END: "true"}
    if form is Form.TABLE:
        return encode(
            {"kind": "Table", "apiVersion": API_VERSION, "metadata": metadata, "columnDefinitions": [], "rows": []}
        )
    if form is Form.METADATA:
        return encode({"kind": "PartialObjectMetadata", "apiVersion": API_VERSION, "metadata": metadata})
    return encode({"kind": resource.kind.kind, "apiVersion": resource.api_version, "metadata": metadata})
