"""The transport over HTTP(S): explains what went wrong, and asks again with newer credentials."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, TypeVar

from yarl import URL

from dralloc.client.kubeconfig import BadKubeconfig, ConnectionConfig
from dralloc.client.transport import ClientRequest, ClientResponse, Stream, TransportError

if TYPE_CHECKING:
    from dralloc.client.http_session import HttpSession, HttpStream

CONNECT_TIMEOUT_S: Final = 10.0
ANSWER_TIMEOUT_S: Final = 60.0
USER_AGENT: Final = "dralloc"
UNAUTHORIZED: Final = 401

_logger = logging.getLogger(__name__)

AnswerT = TypeVar("AnswerT", ClientResponse, "HttpStream")


class HttpTransport:
    """Requests over as many connections as there are watches; idle connections are reused."""

    def __init__(self, connection: ConnectionConfig) -> None:
        self._base = URL(connection.server.rstrip("/"))
        self._connection = connection
        # Opened at the first request, because connections belong to the event loop that creates them.
        self._session: HttpSession | None = None
        # With earlier credentials: requests may be under way on them.
        self._retired: list[HttpSession] = []
        self._renewing = asyncio.Lock()

    async def send(self, request: ClientRequest) -> ClientResponse:
        return await self._renewing_credentials(self._exchange, request)

    async def _exchange(self, request: ClientRequest) -> ClientResponse:
        try:
            return await self._open().exchange(request)
        except OSError as error:
            raise TransportError(self._explain(request, error)) from error

    @asynccontextmanager
    async def stream(self, request: ClientRequest) -> AsyncIterator[Stream]:
        response = await self._renewing_credentials(self._start, request)
        try:
            yield response
        finally:
            response.close()

    async def close(self) -> None:
        self._retire()
        while self._retired:
            await self._retired.pop().close()

    def _retire(self) -> None:
        if self._session is not None:
            self._retired.append(self._session)
            self._session = None

    async def _renewing_credentials(
        self, ask: Callable[[ClientRequest], Awaitable[AnswerT]], request: ClientRequest
    ) -> AnswerT:
        """Asks again if the server rejects our credentials, or we do not trust its certificate, and there are newer ones.

        A server that hangs up may have rejected our certificate. It may also have read the request, so that only reads are asked again.
        """
        used = self._connection
        try:
            answer = await ask(request)
        except TransportError as error:
            is_distrust = _is_distrust(error)
            if not (is_distrust or self._may_be_rejected(error)) or not await self._renew(used):
                raise
            if not is_distrust and request.method != "GET":
                raise
            return await ask(request)
        if answer.status != UNAUTHORIZED or not await self._renew(used):
            return answer
        if not isinstance(answer, ClientResponse):
            answer.close()
        return await ask(request)

    async def _renew(self, used: ConnectionConfig) -> bool:
        """True if there are credentials or authorities newer than those used."""
        async with self._renewing:
            if self._connection is used and used.renew is not None:
                try:
                    fresh = await asyncio.to_thread(_usable, used.renew)
                except (BadKubeconfig, OSError, ValueError) as error:
                    _logger.warning(
                        "credentials or certificates are rejected, and newer ones cannot be read: %s", error
                    )
                    return False
                if fresh != used:
                    self._retire()
                    self._connection = fresh
            return self._connection is not used

    async def _start(self, request: ClientRequest) -> HttpStream:
        try:
            return await self._open().start(request)
        except OSError as error:
            raise TransportError(self._explain(request, error)) from error

    def _open(self) -> HttpSession:
        if self._session is None:
            # Late import: takes a tenth of a second, and commands that read files do not need it.
            from dralloc.client.http_session import HttpSession

            self._session = HttpSession(
                self._base,
                self._headers(),
                tls=self._connection.ssl_context(),
                connect_timeout_s=CONNECT_TIMEOUT_S,
                answer_timeout_s=ANSWER_TIMEOUT_S,
            )
        return self._session

    def _headers(self) -> dict[str, str]:
        token = self._connection.token
        return {"User-Agent": USER_AGENT, **({"Authorization": f"Bearer {token}"} if token else {})}

    def _explain(self, request: ClientRequest, error: BaseException) -> str:
        reason = str(error) or type(error).__name__
        if self._may_be_rejected(error):
            reason += "; it may not accept the client certificate of the kubeconfig"
        return f"no answer from {self._base} to {request.method} {request.path}: {reason}"

    def _may_be_rejected(self, error: BaseException) -> bool:
        """True if the server hung up on a client with a certificate. Few servers say that they do not accept it."""
        if self._connection.certificate_pem is None or _is_distrust(error):
            return False
        from dralloc.client.http_session import Disconnected

        return _is_caused_by(error, (Disconnected, ConnectionResetError, BrokenPipeError, ssl.SSLError))


def _usable(renew: Callable[[], ConnectionConfig]) -> ConnectionConfig:
    """Newer credentials; raises if their certificates cannot be used, as those in files that are being written."""
    fresh = renew()
    fresh.ssl_context()
    return fresh


def _is_distrust(error: BaseException) -> bool:
    """True if this side does not accept the certificate of the server, which has not read the request then."""
    return _is_caused_by(error, (ssl.SSLCertVerificationError,))


def _is_caused_by(error: BaseException | None, kinds: tuple[type[BaseException], ...]) -> bool:
    while error is not None and not isinstance(error, kinds):
        error = error.__cause__
    return error is not None
