"""The verbs of the API as functions on values: builds the request, sends it, decodes the answer or raises the error."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from enum import Enum
from typing import Any, Final, Generic, TypeVar, cast

import msgspec
from msgspec import Struct

from dralloc.client.informer import KnownHistory
from dralloc.client.server_extensions import ServerExtensions
from dralloc.client.status_errors import error_of_response, error_of_status, send_request
from dralloc.client.transport import ClientRequest, Transport, TransportError, split_lines
from dralloc.client.typed_resource import Object, ObjectKey, TypedResource, key_of, version_of
from dralloc.client.unreadable_objects import UnreadableObject, report_unreadable
from dralloc.kube.codec import DecodeError, decode, encode
from dralloc.kube.meta_v1 import ApiObject
from dralloc.kube.protobuf_writer import merge_protobuf
from dralloc.primitives.decoders import UNREADABLE

AnswerT = TypeVar("AnswerT")

JSON: Final = {"Content-Type": "application/json"}
PROTOBUF: Final = "application/vnd.kubernetes.protobuf"


class PatchType(Enum):
    """The type of a patch; the value is its content type."""

    JSON = "application/json-patch+json"
    MERGE = "application/merge-patch+json"
    STRATEGIC = "application/strategic-merge-patch+json"
    APPLY = "application/apply-patch+yaml"


class WatchEvent(Struct, Generic[Object], frozen=True, gc=False):
    """ADDED, MODIFIED, DELETED or BOOKMARK; a bookmark's object has only a resource version.

    Of an object that is `unreadable` there is the metadata.
    """

    type: str
    object: Object
    unreadable: UnreadableObject | None = None


class ListPage(Struct, Generic[Object], frozen=True, gc=False):
    """A page of a list; all pages have the same revision, and `continues` is the token for the next one."""

    items: tuple[Object, ...]
    revision: str
    continues: str
    unreadable: tuple[UnreadableObject, ...] = ()


class _ListMeta(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class _List(msgspec.Struct):
    metadata: _ListMeta = msgspec.field(default_factory=_ListMeta)
    items: list[msgspec.Raw] = msgspec.field(default_factory=list)


class _Event(msgspec.Struct):
    type: str
    object: msgspec.Raw


_LIST: Final = msgspec.json.Decoder(_List)
_EVENT: Final = msgspec.json.Decoder(_Event)


class ApiCalls:
    """The verbs over one transport; writes are recorded under the field manager.

    Without a field manager, servers record the name of the program. `field_validation` is Warn, Strict (unknown fields
    are rejected) or Ignore (saves the server work if all objects come from our own types).
    """

    def __init__(self, transport: Transport, *, field_manager: str = "dralloc", field_validation: str = "") -> None:
        self._transport = transport
        self.history = KnownHistory()
        self.extensions = ServerExtensions(transport)
        self.release = ServerRelease(transport)
        self._options = _filled(fieldManager=field_manager, fieldValidation=field_validation)

    async def get(self, resource: TypedResource[Object], key: ObjectKey) -> Object:
        response = await send_request(self._transport, "GET", resource.path(namespace=key.namespace, name=key.name))
        return _readable(resource.decode, response.body, resource)

    async def page(
        self, resource: TypedResource[Object], *, namespace: str = "", query: Mapping[str, str]
    ) -> ListPage[Object]:
        response = await send_request(self._transport, "GET", resource.path(namespace=namespace), query)
        answer = _decoded(_LIST, response.body)
        items: list[Object] = []
        unreadable: list[UnreadableObject] = []
        for item in answer.items:
            try:
                items.append(_readable(resource.decode, bytes(item), resource))
            except UnreadableObject as problem:
                unreadable.append(problem)
        return ListPage(tuple(items), answer.metadata.resource_version, answer.metadata.continue_, tuple(unreadable))

    async def list_all(
        self,
        resource: TypedResource[Object],
        *,
        namespace: str = "",
        page_size: int = 500,
        field_selector: str = "",
        label_selector: str = "",
        on_unreadable: Callable[[UnreadableObject], None] = report_unreadable,
    ) -> tuple[tuple[Object, ...], str]:
        """Returns all objects at one revision, read in pages, and that revision. Those that cannot be decoded are left out."""
        items: list[Object] = []
        query = _filled(limit=str(page_size), fieldSelector=field_selector, labelSelector=label_selector)
        while True:
            page = await self.page(resource, namespace=namespace, query=query)
            items += page.items
            for problem in page.unreadable:
                on_unreadable(problem)
            if not page.continues:
                return tuple(items), page.revision
            query["continue"] = page.continues

    async def create(
        self, resource: TypedResource[Object], item: Object | Mapping[str, Any], *, namespace: str = ""
    ) -> Object:
        path = resource.path(namespace=namespace or _namespace_of(item))
        response = await send_request(
            self._transport, "POST", path, self._options, body=_body(resource, item), headers=JSON
        )
        return _readable(resource.decode_change, response.body, resource)

    async def replace(
        self, resource: TypedResource[Object], item: Object | Mapping[str, Any], *, subresource: str | None = None
    ) -> Object:
        """Replaces the object; raises Conflict if it changed since it was read."""
        path = resource.path(namespace=_namespace_of(item), name=_name_of(item), subresource=subresource)
        response = await send_request(
            self._transport, "PUT", path, self._options, body=_body(resource, item), headers=JSON
        )
        return _readable(resource.decode_change, response.body, resource)

    async def patch(
        self,
        resource: TypedResource[Object],
        key: ObjectKey,
        patch: Any,
        *,
        type: PatchType = PatchType.MERGE,
        subresource: str | None = None,
    ) -> Object:
        path = resource.path(namespace=key.namespace, name=key.name, subresource=subresource)
        headers = {"Content-Type": type.value}
        response = await send_request(
            self._transport, "PATCH", path, self._options, body=encode(patch), headers=headers
        )
        return _readable(resource.decode_change, response.body, resource)

    async def merge(
        self, resource: TypedResource[Object], key: ObjectKey, patch: Any, *, subresource: str | None = None
    ) -> Object:
        """A merge patch that changes no byte of the rest of the object: it is read and replaced in protobuf.

        Kubernetes refuses patches of objects that contain the JSON of others: it prints that anew, and then takes it for changed.
        """
        path = resource.path(namespace=key.namespace, name=key.name)
        found = await send_request(self._transport, "GET", path, headers={"Accept": PROTOBUF})
        body = merge_protobuf(found.body, msgspec.json.decode(encode(patch)))
        target = resource.path(namespace=key.namespace, name=key.name, subresource=subresource)
        headers = {"Content-Type": PROTOBUF, "Accept": JSON["Content-Type"]}
        response = await send_request(self._transport, "PUT", target, self._options, body=body, headers=headers)
        return _readable(resource.decode_change, response.body, resource)

    async def apply(
        self,
        resource: TypedResource[Object],
        key: ObjectKey,
        item: Object | Mapping[str, Any],
        *,
        force: bool = False,
        subresource: str | None = None,
        manager: str = "",
    ) -> Object:
        """Server-side apply: sets our fields to the item's; with `force`, also fields owned by other managers.

        Applied objects are usually written by people, so unknown fields are rejected by default. `manager` is the field manager
        for calls that have none.
        """
        query = {"fieldValidation": "Strict"} | self._options | ({"force": "true"} if force else {})
        query |= _filled(fieldManager=manager)
        path = resource.path(namespace=key.namespace, name=key.name, subresource=subresource)
        headers = {"Content-Type": PatchType.APPLY.value}
        response = await send_request(
            self._transport, "PATCH", path, query, body=_body(resource, item), headers=headers
        )
        return _readable(resource.decode_change, response.body, resource)

    async def post(self, resource: TypedResource[Object], key: ObjectKey, subresource: str, body: Any) -> None:
        """Posts to a subresource that answers with a Status: a binding, an eviction."""
        path = resource.path(namespace=key.namespace, name=key.name, subresource=subresource)
        await send_request(self._transport, "POST", path, body=encode(body), headers=JSON)

    async def delete(
        self,
        resource: TypedResource[Object],
        key: ObjectKey,
        *,
        grace_period_s: int | None = None,
        propagation: str | None = None,
    ) -> None:
        """Deletes the object of this name, whichever it is: for users, who name what they want."""
        await self._delete(resource, key, grace_period_s=grace_period_s, propagation=propagation)

    async def delete_unchanged(
        self,
        resource: TypedResource[Object],
        item: Object,
        *,
        grace_period_s: int | None = None,
        propagation: str | None = None,
    ) -> None:
        """Deletes the object; raises Conflict if it has changed since it was read (see `version_of`)."""
        await self._delete(
            resource,
            key_of(item),
            preconditions=version_of(item),
            grace_period_s=grace_period_s,
            propagation=propagation,
        )

    async def _delete(
        self,
        resource: TypedResource[Object],
        key: ObjectKey,
        *,
        preconditions: Mapping[str, str] | None = None,
        grace_period_s: int | None = None,
        propagation: str | None = None,
    ) -> None:
        options: dict[str, Any] = {"kind": "DeleteOptions", "apiVersion": "v1"}
        if preconditions is not None:
            options["preconditions"] = preconditions
        if grace_period_s is not None:
            options["gracePeriodSeconds"] = grace_period_s
        if propagation is not None:
            options["propagationPolicy"] = propagation
        path = resource.path(namespace=key.namespace, name=key.name)
        await send_request(self._transport, "DELETE", path, body=encode(options), headers=JSON)

    async def watch(
        self,
        resource: TypedResource[Object],
        *,
        resource_version: str,
        timeout_s: int,
        namespace: str = "",
        field_selector: str = "",
        label_selector: str = "",
    ) -> AsyncIterator[WatchEvent[Object]]:
        """Yields every change after the revision until the server ends the stream. Raises Gone if the revision is too
        old, and ResourceVersionTooLarge if the server has not reached it.
        """
        query = {"watch": "true", "allowWatchBookmarks": "true", "timeoutSeconds": str(timeout_s)}
        query |= _filled(resourceVersion=resource_version, fieldSelector=field_selector, labelSelector=label_selector)
        request = ClientRequest(method="GET", path=resource.path(namespace=namespace), query=query)
        async with self._transport.stream(request) as stream:
            if stream.status != 200:
                raise error_of_response(stream.status, b"".join([piece async for piece in stream.pieces()]))
            async for lines in split_lines(stream.pieces()):
                for line in lines:
                    yield _read_event(line, resource)

    async def close(self) -> None:
        await self._transport.close()


def _read_event(line: bytes, resource: TypedResource[Object]) -> WatchEvent[Object]:
    """Returns the event of a line of a watch; raises the error of an ERROR event."""
    event = _decoded(_EVENT, line)
    if event.type == "ERROR":
        raise error_of_status(msgspec.json.decode(event.object))
    body = bytes(event.object)
    try:
        return WatchEvent(event.type, _readable(resource.decode_change, body, resource))
    except UnreadableObject as problem:
        return WatchEvent(event.type, cast("Object", decode(body, ApiObject)), problem)


def _readable(read: Callable[[bytes], Object], body: bytes, resource: TypedResource[Object]) -> Object:
    """Returns the object; raises UnreadableObject, or TransportError for an answer that is no object at all."""
    try:
        return read(body)
    except DecodeError as error:
        try:
            metadata = decode(body, ApiObject).metadata
        except DecodeError:
            raise TransportError(f"the answer is no object of {resource.plural}: {error}") from None
        raise UnreadableObject(resource.plural, metadata.namespace, metadata.name, error) from None


def _decoded(decoder: msgspec.json.Decoder[AnswerT], body: bytes) -> AnswerT:
    try:
        return decoder.decode(body)
    except UNREADABLE as error:
        raise TransportError(f"the answer is no answer of an API server: {error}") from error


def _filled(**parameters: str) -> dict[str, str]:
    return {name: value for name, value in parameters.items() if value}


def _body(resource: TypedResource[Object], item: Object | Mapping[str, Any]) -> bytes:
    if not isinstance(item, ApiObject):
        return encode({"apiVersion": resource.api_version, "kind": resource.kind, **item})
    if not item.kind:
        item = msgspec.structs.replace(item, api_version=resource.api_version, kind=resource.kind)
    return encode(item)


def _namespace_of(item: Object | Mapping[str, Any]) -> str:
    if not isinstance(item, ApiObject):
        return str(item.get("metadata", {}).get("namespace") or "")
    return item.metadata.namespace


def _name_of(item: Object | Mapping[str, Any]) -> str:
    if not isinstance(item, ApiObject):
        return str(item.get("metadata", {}).get("name") or "")
    return item.metadata.name


# --- Server release -------------------------------------------------------------------------------------------------
# The release of Kubernetes that a server is of: up to the newest one that this version models, all members of its
# objects are known.


MAJOR: Final = "1"
MINOR_MAX: Final = 37
PATH: Final = "/version"


class _Version(Struct):
    # The minor version of a provider's build has a plus sign.
    major: str = ""
    minor: str = ""


_ANSWER: Final = msgspec.json.Decoder(_Version)


class ServerRelease:
    """The release of one server, asked for when it is needed first. A server is not known until it has answered."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._is_known: bool | None = None

    async def is_known(self) -> bool:
        """True if its objects have no members that this version does not have."""
        if self._is_known is None:
            self._is_known = await self._ask()
        return self._is_known or False

    async def _ask(self) -> bool | None:
        try:
            response = await self._transport.send(ClientRequest(method="GET", path=PATH))
        except TransportError:
            return None
        if response.status != 200:
            # Whether it may be asked does not change; whether it can answer does.
            return None if response.status == 429 or response.status >= 500 else False
        try:
            version = _ANSWER.decode(response.body)
        except UNREADABLE:
            return False
        minor = version.minor.removesuffix("+")
        return version.major == MAJOR and minor.isdecimal() and len(minor) < 4 and int(minor) <= MINOR_MAX
