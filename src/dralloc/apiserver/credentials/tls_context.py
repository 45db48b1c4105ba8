"""The TLS settings of new connections: read again when the files of the certificates change.

Open connections keep their settings, except that those of clients whose authority is no longer trusted end (`listener`).
"""

from __future__ import annotations

import logging
import os
import ssl
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from dralloc.apiserver.credentials.certificates import TlsFiles

CHECK_S: Final = 1.0

_logger = logging.getLogger(__name__)


class ServedTls:
    """The context for new connections. Unusable new files are logged, and change nothing."""

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

    def authorities(self) -> frozenset[bytes]:
        """The certificates of the authorities that are trusted now."""
        return frozenset(self.current().get_ca_certs(binary_form=True))

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


def is_issued_by(certificate: bytes, authorities: Iterable[bytes]) -> bool:
    """True if one of the authorities has signed the certificate itself."""
    # Slow to import, and only needed when an authority is retired.
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm

    issued = x509.load_der_x509_certificate(certificate)
    for authority in authorities:
        try:
            issued.verify_directly_issued_by(x509.load_der_x509_certificate(authority))
        except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm):
            continue
        return True
    return False


def _context(files: TlsFiles) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.certificate, files.key)
    context.load_verify_locations(files.authority)
    # Clients without a certificate bring a token.
    context.verify_mode = ssl.CERT_OPTIONAL
    return context
