"""Endpoints of discovery, OpenAPI documents and the version. OpenAPI documents are rendered on first use."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from hashlib import sha256
from typing import Final

from dralloc import __version__
from dralloc.kube.codec import encode
from dralloc.kube.kind import Kind
from dralloc.server.describe import discovery
from dralloc.server.describe.openapi_v2 import CONTENT_TYPE as OPENAPI_V2
from dralloc.server.describe.openapi_v2 import openapi_v2_protobuf
from dralloc.server.describe.openapi_v3 import document_place, openapi_document, openapi_index
from dralloc.server.documents.json_documents import Document
from dralloc.server.http.messages import HttpRequest, HttpResponse
from dralloc.server.http.negotiation import discovery_content_type, form_of_discovery

KUBERNETES: Final = "1.37.0"
PRODUCT: Final = f"dralloc.{__version__}"


class DescriptionEndpoints:
    """Responds to requests for descriptions of the API."""

    def __init__(self, kinds: Sequence[Kind]) -> None:
        self._kinds = kinds

    def plain(self, request: HttpRequest, path: str) -> HttpResponse | None:
        """The response to a path outside the API groups, or `None` if nothing is there."""
        match path:
            case "/":
                return _answer(
                    {"paths": ["/api", "/apis", "/healthz", "/livez", "/metrics", "/openapi/v3", "/readyz", "/version"]}
                )
            case "/version":
                return _answer(discovery.version_information(KUBERNETES, PRODUCT))
            case "/api" | "/apis":
                return self._discovery(request, core=path == "/api")
            case "/openapi/v3":
                hashes = {place: sha256(body).hexdigest()[:32].upper() for place, body in self._openapi.items()}
                return _answer(openapi_index(self._kinds, hashes))
            case "/openapi/v2":
                return HttpResponse(body=self._openapi_v2, content_type=OPENAPI_V2)
        document = self._openapi.get(path.removeprefix("/openapi/v3/")) if path.startswith("/openapi/v3/") else None
        return None if document is None else HttpResponse(body=document)

    def group(self, group: str) -> HttpResponse | None:
        document = discovery.api_group(self._kinds, group)
        return None if document is None else _answer(document)

    def version(self, group: str, version: str) -> HttpResponse | None:
        document = discovery.api_resource_list(self._kinds, group, version)
        return None if document is None else _answer(document)

    def _discovery(self, request: HttpRequest, *, core: bool) -> HttpResponse:
        aggregated = form_of_discovery(request.header(b"accept"))
        if aggregated is None:
            host = request.header(b"host")
            return _answer(discovery.api_versions(host) if core else discovery.api_group_list(self._kinds))
        response = _answer(discovery.aggregated_discovery(self._kinds, core=core, version=aggregated))
        response.content_type = discovery_content_type(aggregated)
        return response

    @cached_property
    def _openapi(self) -> dict[str, bytes]:
        return {place: encode(document) for place, document in self._openapi_documents().items()}

    @cached_property
    def _openapi_v2(self) -> bytes:
        return openapi_v2_protobuf(self._openapi_documents().values(), f"v{KUBERNETES}")

    def _openapi_documents(self) -> dict[str, Document]:
        return {
            document_place(group, version): openapi_document(self._kinds, group, version, f"v{KUBERNETES}")
            for group, version in discovery.group_versions(self._kinds)
        }


def _answer(document: Document) -> HttpResponse:
    return HttpResponse(body=encode(document))
