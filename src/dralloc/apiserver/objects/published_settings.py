"""ConfigMaps in which other components of a cluster look up how this server authenticates clients."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Final

from dralloc.api.registry import CONFIG_MAP
from dralloc.apiserver.documents.json_documents import Document
from dralloc.apiserver.objects.api_resources import key_of
from dralloc.apiserver.objects.background_task import BackgroundTask
from dralloc.apiserver.objects.writer import Writer
from dralloc.primitives.errors import ApiError, NotFound
from dralloc.store.errors import StoreError

NAMESPACE: Final = "kube-system"
AUTHENTICATION: Final = "extension-apiserver-authentication"
# Controllers delete tokens that were not used since this date.
TOKEN_TRACKING: Final = "kube-apiserver-legacy-service-account-token-tracking"

# How often the server looks whether its authority was replaced.
CHECK_INTERVAL_S: Final = 10.0

# No certificate with this name is issued: this server passes no requests on for others.
_NO_PROXY: Final = "dralloc-has-no-front-proxy"

_logger = logging.getLogger(__name__)


class PublishedSettings:
    """Publishes the certificate authority of a file, and again when it was replaced; without a file, what needs none."""

    def __init__(self, writer: Writer, authority: Path | None) -> None:
        self._writer = writer
        self._authority = authority
        self._published = ""
        self._task = BackgroundTask(self._run, name="publish the authority")

    async def start(self) -> None:
        if self._authority is None:
            await _publish(self._writer, "")
            return
        await self._follow(self._authority)
        self._task.start()

    async def stop(self) -> None:
        await self._task.stop()

    async def _run(self) -> None:
        assert self._authority is not None, "otherwise it is not started"
        while True:
            await asyncio.sleep(CHECK_INTERVAL_S)
            await self._follow(self._authority)

    async def _follow(self, authority: Path) -> None:
        """A failure, as on a full disk, must not prevent a start: clients of this server do not need these objects."""
        try:
            pem = authority.read_text()
            if pem != self._published:
                await _publish(self._writer, pem)
                self._published = pem
        except (ApiError, StoreError, OSError, ValueError) as error:
            _logger.warning("cannot publish the certificate authority, and will try again: %s", error)


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
