"""Runs a server from its settings: opens the store, loads or creates credentials, listens, and stops cleanly."""

from __future__ import annotations

import logging
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from dralloc.primitives.clock import Clock
from dralloc.primitives.features import FeatureGates
from dralloc.server.access.users import ADMINISTRATOR, User
from dralloc.server.http.application import ApiApplication
from dralloc.server.http.authentication import (
    ADMINISTRATOR_TOKEN_FILE,
    Authenticator,
    TokenFile,
    administrator_token,
    kept_token,
)
from dralloc.server.http.listener import ListenAddress, listen
from dralloc.server.http.listener_limits import ListenerLimits
from dralloc.server.http.site_guard import is_loopback
from dralloc.server.http.static_pages import StaticPages
from dralloc.server.identity.kubeconfig import write_kubeconfig
from dralloc.server.identity.signing_keys import SigningKeys
from dralloc.server.pod_logs import NodeCredentials
from dralloc.server.read.api_resources import REGISTRY
from dralloc.server.read.stored_form import HEAD
from dralloc.server.server import ApiServer, ServerExtension
from dralloc.server.store.interface import Store
from dralloc.server.store.store_url import open_store
from dralloc.server.write.service_account_tokens import ISSUER, ServiceAccountTokens
from dralloc.system_clock import SystemClock

if TYPE_CHECKING:
    from dralloc.server.identity.certificates import TlsFiles


STORE_FILE: Final = "state.db"
# Only with a store in etcd.
ETCD_MEMORY_FILE: Final = "etcd-seen.json"


_logger = logging.getLogger(__name__)


class BadServerSettings(ValueError):
    """Settings that contradict each other or cannot be used on this machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    data_dir: Path
    bind: str = "127.0.0.1"
    port: int = 6443
    # The store's URL or path; default: a file in the data directory.
    store: str | None = None
    # Start although acknowledged writes are missing from the store.
    accept_lost_writes: bool = False
    kubeconfig: Path | None = None
    token_file: Path | None = None
    # Further users with a token: by the name of the file in the data directory that keeps it.
    kept_tokens: Mapping[str, User] = field(default_factory=dict)
    # Further users by token, known to this process only.
    tokens: Mapping[str, User] = field(default_factory=dict)
    # Names this cluster in the tokens of its service accounts.
    service_account_issuer: str = ISSUER
    # Plain http without authentication, for tests.
    insecure_http: bool = False
    gates: FeatureGates = field(default_factory=FeatureGates.defaults)
    limits: ListenerLimits = field(default_factory=ListenerLimits)
    # For browsers: `dralloc.web.page.device_page()`.
    pages: StaticPages | None = None
    extensions: tuple[ServerExtension, ...] = ()
    clock: Clock = field(default_factory=SystemClock)

    @property
    def store_url(self) -> str:
        return self.store or str(self.data_dir / STORE_FILE)

    @property
    def kubeconfig_path(self) -> Path:
        return self.kubeconfig or self.data_dir / "kubeconfig"


@dataclass(frozen=True, slots=True)
class RunningServer:
    url: str
    # For clients on this machine, and the file of what they must trust if it is https.
    local_url: str
    authority: Path | None
    token: str
    application: ApiApplication
    server: ApiServer


@asynccontextmanager
async def run_server(settings: ServerSettings) -> AsyncIterator[RunningServer]:
    if settings.insecure_http and not is_loopback(settings.bind):
        raise BadServerSettings(
            f"plain http is limited to loopback addresses: {settings.bind} is reachable from other machines"
        )
    settings.data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    _warn_of_a_missing_store(settings)
    token = administrator_token(settings.data_dir)
    kept = {kept_token(settings.data_dir / name): user for name, user in settings.kept_tokens.items()}
    token_file = TokenFile(settings.token_file) if settings.token_file is not None else None
    tls = None if settings.insecure_http else _certificates(settings)
    async with await open_store(
        settings.store_url,
        accept_lost_writes=settings.accept_lost_writes,
        memory=settings.data_dir / ETCD_MEMORY_FILE,
    ) as store:
        await _check_origin(store)
        keys = SigningKeys(settings.data_dir / "service-accounts")
        accounts = ServiceAccountTokens(store, keys, clock=settings.clock, issuer=settings.service_account_issuer)
        authenticator = Authenticator(
            {token: ADMINISTRATOR, **kept, **settings.tokens},
            without_credential=ADMINISTRATOR if settings.insecure_http else None,
            token_file=token_file,
            verifier=accounts,
            audiences=(accounts.issuer,),
        )
        server = ApiServer(
            store,
            clock=settings.clock,
            gates=settings.gates,
            enforces_roles=True,
            accounts=accounts,
            authenticator=authenticator,
            extensions=settings.extensions,
            authority=tls.authority if tls else None,
            node_credentials=NodeCredentials(tls.client_certificate, tls.client_key) if tls else None,
        )
        application = ApiApplication(server, authenticator, settings.pages)
        await server.start()
        try:
            async with _listening(settings, server, application, tls, token) as running:
                yield running
        finally:
            await server.stop()


async def _check_origin(store: Store) -> None:
    """Raises BadServerSettings if another program has its objects in the store, above all a Kubernetes cluster in its etcd: each would
    damage those of the other.
    """
    first = await store.list_prefix(REGISTRY, limit=1)
    for record in first.records:
        if not record.value.startswith(HEAD):
            raise BadServerSettings(
                f"the store has objects of another program, such as {record.key}: use an etcd of its own for dralloc, or name a root for it, "
                "as in etcd://HOST:PORT/dralloc"
            )


@asynccontextmanager
async def _listening(
    settings: ServerSettings, server: ApiServer, application: ApiApplication, tls: TlsFiles | None, token: str
) -> AsyncIterator[RunningServer]:
    """Answers on the network inside the block, with a kubeconfig for it."""
    async with listen(application, ListenAddress(settings.bind, settings.port, tls, settings.limits)) as url:
        write_kubeconfig(
            settings.kubeconfig_path,
            server=_reachable(url),
            authority_pem=tls.authority_pem if tls else None,
            token=token,
        )
        yield RunningServer(url, _reachable(url), tls.authority if tls else None, token, application, server)


def _warn_of_a_missing_store(settings: ServerSettings) -> None:
    """Its high-water mark would tell, but a person who deletes the files of a store deletes that, too."""
    is_used = (settings.data_dir / ADMINISTRATOR_TOKEN_FILE).exists()
    if settings.store is None and is_used and not (settings.data_dir / STORE_FILE).exists():
        _logger.warning(
            "%s was used before, and has no %s: the server starts with an empty store; if it had objects, stop the server and put "
            "the files of the store back, or restore a backup with `dralloc restore --overwrite`",
            settings.data_dir,
            STORE_FILE,
        )


def _certificates(settings: ServerSettings) -> TlsFiles:
    # Slow to import, and not needed without TLS.
    from dralloc.server.identity.certificates import ensure_certificates

    names = [settings.bind]
    if not is_loopback(settings.bind):
        names += [socket.gethostname(), socket.getfqdn()]
    usable = [name for name in names if name not in ("", "0.0.0.0", "::")]
    try:
        return ensure_certificates(settings.data_dir / "tls", usable, settings.clock.now())
    except ValueError as error:
        # Also one of the library: certificates have no time before 1950.
        raise BadServerSettings(str(error)) from None


def _reachable(url: str) -> str:
    """The URL for clients; a server that listens on all addresses is reached on loopback."""
    return url.replace("//0.0.0.0:", "//127.0.0.1:").replace("//[::]:", "//[::1]:")
