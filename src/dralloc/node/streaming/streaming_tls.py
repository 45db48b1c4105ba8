"""The TLS settings of the streaming server: the certificate authority of the cluster may be replaced while it runs."""

from __future__ import annotations

import logging
import ssl
import time
from collections.abc import Callable
from typing import Final

from dralloc.client.kubeconfig import BadKubeconfig
from dralloc.node.streaming.server_identity import ServerIdentity

CHECK_S: Final = 1.0

_logger = logging.getLogger(__name__)

ReadAuthority = Callable[[], str]


class StreamingTls:
    """Each new connection must have a certificate of an authority, in PEM, that is read now. One that cannot be read changes nothing."""

    def __init__(
        self, identity: ServerIdentity, read_authority: ReadAuthority, *, check_every_s: float = CHECK_S
    ) -> None:
        self._identity = identity
        self._read_authority = read_authority
        self._check_every_s = check_every_s
        self._checked_at = time.monotonic()
        self._authority = read_authority()
        self._context = self._trusting(self._authority)

    def listening(self) -> ssl.SSLContext:
        """The context of a listening socket."""
        context = self._trusting(self._authority)
        context.sni_callback = self._choose
        # A client that resumes a session does not show its certificate again. Without tickets, TLS 1.3 has no sessions.
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.num_tickets = 0
        return context

    def _choose(self, connection: ssl.SSLObject | ssl.SSLSocket, name: str | None, context: ssl.SSLContext) -> None:  # noqa: ARG002
        """Called at the begin of each handshake."""
        now = time.monotonic()
        if now - self._checked_at >= self._check_every_s:
            self._checked_at = now
            self._read_again()
        connection.context = self._context

    def _read_again(self) -> None:
        try:
            authority = self._read_authority()
            if authority != self._authority:
                self._context = self._trusting(authority)
                self._authority = authority
        except (BadKubeconfig, OSError, ValueError) as error:
            _logger.warning("the certificate authority of API servers cannot be read again: %s", error)

    def _trusting(self, authority: str) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self._identity.certificate, self._identity.key)
        context.load_verify_locations(cadata=authority)
        context.verify_mode = ssl.CERT_REQUIRED
        return context
