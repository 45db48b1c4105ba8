"""The response in the form that the client prefers: YAML or protobuf instead of JSON."""

from __future__ import annotations

import asyncio
from typing import Final

import msgspec
from msgspec import Raw

from dralloc.kube.protobuf_writer import UnencodableValue, content_of, has_message, in_envelope, to_protobuf
from dralloc.server.http.messages import JSON, PROTOBUF, HttpRequest, HttpResponse
from dralloc.server.http.negotiation import YAML, wants_protobuf, wants_yaml
from dralloc.server.read.stored_form import read_document

ITEMS_PER_PIECE: Final = 16

_MEMBERS: Final = msgspec.json.Decoder(dict[str, Raw])
_ITEMS: Final = msgspec.json.Decoder(list[Raw])


async def convert(response: HttpResponse, request: HttpRequest) -> None:
    """Convert the body to what the request accepts; most accept JSON."""
    accept = request.headers.get(b"accept", b"")
    if b"yaml" in accept and wants_yaml(request.header(b"accept")):
        _convert_to_yaml(response)
    elif b"protobuf" in accept and wants_protobuf(request.header(b"accept")):
        await _convert_to_protobuf(response)


def _convert_to_yaml(response: HttpResponse) -> None:
    """Convert the body to YAML. Streams stay JSON."""
    if response.content_type == JSON and response.stream is None:
        # Slow to import, and few clients ask for YAML.
        from dralloc.kube.yaml_writer import write_yaml

        response.body = write_yaml(read_document(response.body)).encode()
        response.content_type = YAML


async def _convert_to_protobuf(response: HttpResponse) -> None:
    """Convert the body to protobuf, unless it has no message. Watches are protobuf already."""
    if response.content_type != JSON:
        return
    try:
        if response.stream is None:
            made = _protobuf_of(response.body)
        else:
            # A message needs its length before its content.
            response.body = b"".join([piece async for piece in response.stream])
            response.stream = None
            made = await _protobuf_of_list(response.body)
    except UnencodableValue:
        return
    if made is not None:
        response.body, response.content_type = made, PROTOBUF


def _protobuf_of(body: bytes) -> bytes | None:
    document = read_document(body)
    is_known = has_message(document.get("apiVersion", ""), document.get("kind", ""))
    return to_protobuf(document) if is_known else None


async def _protobuf_of_list(body: bytes) -> bytes | None:
    """Made in pieces: thousands of objects take half a second, and other requests are answered meanwhile."""
    raw = _MEMBERS.decode(body)
    items = _ITEMS.decode(raw.pop("items", b"[]"))
    members = {name: msgspec.json.decode(value) for name, value in raw.items()}
    api_version, kind = members.get("apiVersion", ""), members.get("kind", "")
    if not has_message(api_version, kind):
        return None
    content = [content_of(api_version, kind, members)]
    for start in range(0, len(items), ITEMS_PER_PIECE):
        await asyncio.sleep(0)
        piece = [read_document(bytes(item)) for item in items[start : start + ITEMS_PER_PIECE]]
        content.append(content_of(api_version, kind, {"items": piece}))
    return in_envelope(api_version, kind, b"".join(content))
