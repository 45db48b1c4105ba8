"""The response in the form that the client prefers: YAML or protobuf instead of JSON."""

from __future__ import annotations

import asyncio

from dralloc.api.protobuf_writer import UnencodableValue, content_pieces, has_message, in_envelope
from dralloc.apiserver.http.messages import JSON, PROTOBUF, HttpRequest, HttpResponse
from dralloc.apiserver.http.negotiation import YAML, wants_protobuf, wants_yaml
from dralloc.apiserver.objects.stored_form import read_document


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
        from dralloc.api.yaml_writer import write_yaml

        response.body = write_yaml(read_document(response.body)).encode()
        response.content_type = YAML


async def _convert_to_protobuf(response: HttpResponse) -> None:
    """Convert the body to protobuf, unless it has no message. Watches are protobuf already."""
    if response.content_type != JSON:
        return
    if response.stream is not None:
        # A long list: a message needs its length before its content.
        response.body = b"".join([piece async for piece in response.stream])
        response.stream = None
    made = await _protobuf_of(response.body)
    if made is not None:
        response.body, response.content_type = made, PROTOBUF


async def _protobuf_of(body: bytes) -> bytes | None:
    document = read_document(body)
    if not has_message(document.get("apiVersion", ""), document.get("kind", "")):
        return None
    content: list[bytes] = []
    try:
        for piece in content_pieces(document):
            content.append(piece)
            # Thousands of objects take half a second, and other requests are answered meanwhile.
            if len(content) > 1:
                await asyncio.sleep(0)
    except UnencodableValue:
        return None
    return in_envelope(document, content)
