"""Objects of any kind that a server has, as documents: what `get`, `apply` and `delete` say to it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from dralloc.client.discovery import Discovery, ServedResource, UnknownKind
from dralloc.client.status_errors import error_of_response, error_of_status, send_request
from dralloc.client.transport import ClientRequest, Transport, split_lines
from dralloc.kube.resource_v1 import GROUP

Document = dict[str, Any]

PAGE_SIZE: Final = "500"
AS_TABLE: Final = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"}
AS_OBJECTS: Final = {"Accept": "application/json"}

# What people call the kinds of our group when they speak of nothing else.
OUR_WORDS: Final = {
    word: plural
    for plural, words in {
        "resourceclaims": ("claim", "claims"),
        "resourceclaimtemplates": ("template", "templates"),
        "resourceslices": ("slice", "slices"),
        "deviceclasses": ("class", "classes"),
        "devicetaintrules": ("rule", "rules"),
    }.items()
    for word in words
}


@dataclass(frozen=True, slots=True)
class Target:
    """Objects of a resource: one by its name, or those of a namespace or of all namespaces that the selectors choose."""

    resource: ServedResource
    namespace: str = ""
    name: str = ""
    labels: str = ""
    fields: str = ""

    @property
    def path(self) -> str:
        return self.resource.path(namespace=self.namespace, name=self.name)

    def called(self, name: str) -> str:
        """How one of the objects is called in messages, as kubectl does: `pod/p`, `resourceclaim.resource.k8s.io/c`."""
        singular = self.resource.singular or self.resource.kind.lower()
        return f"{singular}.{self.resource.group}/{name}" if self.resource.group else f"{singular}/{name}"

    @property
    def collection(self) -> str:
        return self.resource.path(namespace=self.namespace)

    def selection(self) -> dict[str, str]:
        """The query of a list or a watch. An object is watched as the one of its collection that has the name."""
        fields = f"metadata.name={self.name}" if self.name else self.fields
        chosen = {"labelSelector": self.labels, "fieldSelector": fields}
        return {name: value for name, value in chosen.items() if value}


def resources_of(discovery: Discovery, words: Iterable[str]) -> list[ServedResource]:
    """The resources that the words mean, each of which may mean several (`all`)."""
    return [resource for word in words for resource in discovery.category(word) or (find_resource(discovery, word),)]


def find_resource(discovery: Discovery, word: str) -> ServedResource:
    """The resource that is meant; a server that has no better use for our short words has ours."""
    try:
        return discovery.find(word)
    except UnknownKind:
        if word not in OUR_WORDS:
            raise
    return discovery.find(f"{OUR_WORDS[word]}.{GROUP}")


async def read_pages(transport: Transport, target: Target, headers: Mapping[str, str]) -> AsyncIterator[bytes]:
    """The object, or the lists that the objects come in."""
    if target.name:
        yield (await send_request(transport, "GET", target.path, headers=headers)).body
        return
    query = {"limit": PAGE_SIZE, **target.selection()}
    while True:
        page = (await send_request(transport, "GET", target.path, query, headers=headers)).body
        yield page
        token = _ListHead.of(page).metadata.continue_
        if not token:
            return
        query["continue"] = token


async def follow(
    transport: Transport, target: Target, revision: str, headers: Mapping[str, str]
) -> AsyncIterator[tuple[str, bytes]]:
    """Changes after the revision, as types of events and objects, until the server ends the watch."""
    query = {"watch": "true", "resourceVersion": revision, "allowWatchBookmarks": "true", **target.selection()}
    request = ClientRequest(method="GET", path=target.collection, query=query, headers=headers)
    async with transport.stream(request) as stream:
        if stream.status != 200:
            raise error_of_response(stream.status, b"".join([piece async for piece in stream.pieces()]))
        async for lines in split_lines(stream.pieces()):
            for line in lines:
                event = _EVENT.decode(line)
                if event.type == "ERROR":
                    raise error_of_status(msgspec.json.decode(event.object))
                yield event.type, bytes(event.object)


def revision_of(body: bytes) -> str:
    """The revision of a list, a table or an object."""
    return _ListHead.of(body).metadata.resource_version


class _ListMeta(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class _ListHead(msgspec.Struct):
    metadata: _ListMeta = msgspec.field(default_factory=_ListMeta)

    @staticmethod
    def of(body: bytes) -> _ListHead:
        return _HEAD.decode(body)


class _Event(msgspec.Struct):
    type: str
    object: msgspec.Raw


_HEAD: Final = msgspec.json.Decoder(_ListHead)
_EVENT: Final = msgspec.json.Decoder(_Event)
