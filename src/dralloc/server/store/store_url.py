"""Opens the store that a URL names.

memory://                                    in memory, lost with the process
sqlite:///absolute/path  or any path         one file on this machine; `?synchronous=normal` may lose the last writes on a power failure
etcd://host:port[,host:port][/root]          a real etcd; `?timeout=SECONDS` for a call; `?ca=FILE[&cert=FILE&key=FILE]` for TLS
"""

from __future__ import annotations

from pathlib import Path
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from dralloc.server.store.errors import BadStoreUrl
from dralloc.server.store.interface import HistoryLimits, Store
from dralloc.server.store.memory import MemoryStore

ETCD_PORT = 2379
SYNCHRONOUS = ("full", "normal")


async def open_store(
    url: str, *, limits: HistoryLimits | None = None, accept_lost_writes: bool = False, memory: Path | None = None
) -> Store:
    """Returns the open store for the URL; raises BadStoreUrl, StoreUnavailable, StoreFull, CorruptStore or LostWrites.

    With `accept_lost_writes`, a SQLite store that lost acknowledged writes is opened with those that it has. The file `memory` keeps what was
    seen of an etcd, for the next start.
    """
    if "://" not in url:
        return await _open_sqlite(Path(url), {}, limits, accept_lost_writes)
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise BadStoreUrl(f"{url!r} is not a URL: {error}") from error
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    match parts.scheme:
        case "memory":
            _allow(url, options, ())
            return MemoryStore(limits=limits)
        case "sqlite":
            if parts.netloc or parts.path in ("", "/"):
                raise BadStoreUrl(f"{url!r} names no file: use sqlite:///absolute/path, or just the path")
            _allow(url, options, ("synchronous",))
            return await _open_sqlite(Path(unquote(parts.path)), options, limits, accept_lost_writes)
        case "etcd":
            _allow(url, options, ("timeout", "ca", "cert", "key"))
            return await _open_etcd(parts, options, limits, memory)
        case scheme:
            raise BadStoreUrl(f"{url!r}: unknown store {scheme!r}; supported: memory, sqlite, etcd")


async def _open_sqlite(
    path: Path, options: dict[str, str], limits: HistoryLimits | None, accept_lost_writes: bool
) -> Store:
    from dralloc.server.store.sqlite import SqliteStore

    synchronous = options.get("synchronous", "full")
    if synchronous not in SYNCHRONOUS:
        raise BadStoreUrl(f"synchronous must be {' or '.join(SYNCHRONOUS)}, not {synchronous!r}")
    return await SqliteStore.open(path, limits=limits, synchronous=synchronous, accept_lost_writes=accept_lost_writes)


async def _open_etcd(
    parts: SplitResult, options: dict[str, str], limits: HistoryLimits | None, memory: Path | None
) -> Store:
    # gRPC takes a tenth of a second to import, and most stores do not need it.
    from dralloc.server.store.etcd import EtcdStore
    from dralloc.server.store.etcd_api import EtcdAddress
    from dralloc.server.store.etcd_history import EtcdMemory

    timeout = options.pop("timeout", "5")
    if not timeout.isdecimal() or not int(timeout):
        raise BadStoreUrl(f"timeout must be a number of seconds, not {timeout!r}")
    files = {name: Path(value) for name, value in options.items()}
    if ("cert" in files) != ("key" in files) or ("cert" in files and "ca" not in files):
        raise BadStoreUrl("TLS with etcd requires `ca`; a client certificate requires both `cert` and `key`")
    address = EtcdAddress(
        endpoints=tuple(_endpoint(text) for text in parts.netloc.split(",")),
        timeout_s=int(timeout),
        ca_file=files.get("ca"),
        certificate_file=files.get("cert"),
        key_file=files.get("key"),
    )
    root = unquote(parts.path).rstrip("/")
    return await EtcdStore.open(address, root=root, limits=limits, memory=EtcdMemory(memory) if memory else None)


def _endpoint(text: str) -> str:
    host, port = text, str(ETCD_PORT)
    if ":" in text.rpartition("]")[2]:
        host, _, port = text.rpartition(":")
    if not host or "@" in host or not port.isdecimal():
        raise BadStoreUrl(f"{text!r} is not a host:port of an etcd server")
    return f"{host}:{port}"


def _allow(url: str, options: dict[str, str], names: tuple[str, ...]) -> None:
    unknown = sorted(options.keys() - set(names))
    if unknown:
        raise BadStoreUrl(f"{url!r}: unknown option {', '.join(unknown)}")
