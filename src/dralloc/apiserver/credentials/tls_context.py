"""The TLS settings of new connections: read again when the files of the certificates change."""

from __future__ import annotations

import logging
import os
import ssl
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from dralloc.apiserver.credentials.certificates import TlsFiles

CHECK_S: Final = 1.0

_logger = logging.getLogger(__name__)


class ServedTls:
    """The context for new connections. Open connections keep theirs. Unusable new files are logged, and change nothing."""

    def __init__(self, files: TlsFiles, *, check_every_s: float = CHECK_S) -> None:
        self._files = files
        self._check_every_s = check_every_s
        self._checked_at = time.monotonic()
        self._state = self._state_of_files()
        self._context = _context(files)

    def current(self) -> ssl.SSLContext:
        now = time.monotonic()
        if now - self._checked_at >= self._check_every_s:
            self._checked_at = now
            self._read_again()
        return self._context

    def _read_again(self) -> None:
        try:
            state = self._state_of_files()
            if state == self._state:
                return
            self._context = _context(self._files)
        except (OSError, ssl.SSLError) as error:
            # A certificate is replaced before or after its key: the next look finds both.
            _logger.warning("the certificates have changed, but cannot be used yet: %s", error)
            return
        self._state = state
        _logger.warning("the certificates have changed: new connections use them")

    def _state_of_files(self) -> tuple[tuple[int, int], ...]:
        statuses = [os.stat(path) for path in (self._files.authority, self._files.certificate, self._files.key)]
        return tuple((status.st_ino, status.st_mtime_ns) for status in statuses)


def _context(files: TlsFiles) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.certificate, files.key)
    context.load_verify_locations(files.authority)
    # Clients without a certificate bring a token.
    context.verify_mode = ssl.CERT_OPTIONAL
    return context
