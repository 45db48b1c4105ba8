"""The response in the form that the client prefers: YAML or protobuf instead of JSON."""

from __future__ import annotations

from dralloc.api.protobuf_writer import UnencodableValue, has_message, to_protobuf
from dralloc.apiserver.http.flow_control import compute
from dralloc.apiserver.http.messages import JSON, PROTOBUF, HttpRequest, HttpResponse
from dralloc.apiserver.http.negotiation import YAML, wants_protobuf, wants_yaml
from dralloc.apiserver.objects.stored_form import read_document


async def convert(response: HttpResponse, request: HttpRequest) -> None:
    """Convert the body to what the request accepts; most accept JSON."""
    accept = request.headers.get(b"accept", b"")
    if b"yaml" in accept and wants_yaml(request.header(b"accept")):
        await _convert_to_yaml(response)
    elif b"protobuf" in accept and wants_protobuf(request.header(b"accept")):
        await _convert_to_protobuf(response)


async def _convert_to_yaml(response: HttpResponse) -> None:
    """Convert the body to YAML. Streams stay JSON."""
    if response.content_type == JSON and response.stream is None:
        # Slow to import, and few clients ask for YAML.
        from dralloc.api.yaml_writer import write_yaml

        body = response.body
        response.body = await compute(20 * len(body), lambda: write_yaml(read_document(body)).encode())
        response.content_type = YAML


async def _convert_to_protobuf(response: HttpResponse) -> None:
    """Convert the body to protobuf, unless it has no message. Watches are protobuf already."""
    if response.content_type != JSON:
        return
    if response.stream is not None:
        # A long list: a message needs its length before its content.
        response.body = b"".join([piece async for piece in response.stream])
        response.stream = None
    body = response.body
    made = await compute(20 * len(body), _protobuf_of, body)
    if made is not None:
        response.body, response.content_type = made, PROTOBUF


def _protobuf_of(body: bytes) -> bytes | None:
    document = read_document(body)
    if not has_message(document.get("apiVersion", ""), document.get("kind", "")):
        return None
    try:
        return to_protobuf(document)
    except UnencodableValue:
        return None
