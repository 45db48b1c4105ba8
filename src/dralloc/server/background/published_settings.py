"""ConfigMaps in which other components of a cluster look up how this server authenticates clients."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Final

from dralloc.kube.registry import CONFIG_MAP
from dralloc.primitives.errors import ApiError, NotFound
from dralloc.server.documents.json_documents import Document
from dralloc.server.read.api_resources import key_of
from dralloc.server.store.errors import StoreError
from dralloc.server.write.writer import Writer

NAMESPACE: Final = "kube-system"
AUTHENTICATION: Final = "extension-apiserver-authentication"
# Controllers delete tokens that were not used since this date.
TOKEN_TRACKING: Final = "kube-apiserver-legacy-service-account-token-tracking"

# No certificate with this name is issued: this server passes no requests on for others.
_NO_PROXY: Final = "dralloc-has-no-front-proxy"

_logger = logging.getLogger(__name__)


async def publish_settings(writer: Writer, authority: Path | None) -> None:
    """Publish the certificate authority in the file; without a file, what needs none.

    A failure, as on a full disk, must not prevent a start: clients of this server do not need these objects.
    """
    try:
        await _publish(writer, authority.read_text() if authority is not None else "")
    except (ApiError, StoreError) as error:
        _logger.warning("cannot publish the certificate authority before the next start: %s", error)


async def _publish(writer: Writer, authority_pem: str) -> None:
    """Create the objects, or set what has changed."""
    for name, data in _settings(authority_pem, writer.admission.clock.now()):
        if await writer.create_initial(
            CONFIG_MAP, name, {"metadata": {"namespace": NAMESPACE}, "data": data}, namespace=NAMESPACE
        ):
            continue
        if name == AUTHENTICATION:
            await _update(writer, name, data)


def _settings(authority_pem: str, now: datetime) -> Iterator[tuple[str, dict[str, str]]]:
    yield TOKEN_TRACKING, {"since": now.strftime("%Y-%m-%d")}
    if authority_pem:
        yield (
            AUTHENTICATION,
            {
                "client-ca-file": authority_pem,
                "requestheader-allowed-names": f'["{_NO_PROXY}"]',
                "requestheader-client-ca-file": authority_pem,
                "requestheader-extra-headers-prefix": '["X-Remote-Extra-"]',
                "requestheader-group-headers": '["X-Remote-Group"]',
                "requestheader-username-headers": '["X-Remote-User"]',
            },
        )


async def _update(writer: Writer, name: str, data: dict[str, str]) -> None:
    def with_data(document: Document) -> Document:
        return {**document, "data": {**document.get("data", {}), **data}}

    try:
        await writer.edit(CONFIG_MAP, key_of(CONFIG_MAP, NAMESPACE, name), with_data)
    except NotFound:
        # Deleted in between: created again at the next start.
        return
