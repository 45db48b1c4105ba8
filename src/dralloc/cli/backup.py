"""`dralloc backup`: all objects of a server in one file, while it runs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dralloc.cli.options import Context, Kubeconfig
from dralloc.cli.output import fail, say

if TYPE_CHECKING:
    from dralloc.client.transport import Transport
    from dralloc.server.store.backup import Header


def backup(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The file to write.", show_default=False)],
    data_dir: Annotated[
        Path | None,
        typer.Option(help="The data directory of a server on this machine; it may run. Default: ask the server."),
    ] = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Write all objects of a server to one file, from which dralloc restore makes a new store.

    The objects are those of one moment, while the server and its clients go on. The file appears when it is complete. It contains
    secrets, so only its owner can read it; the server requires the right to get the path /backup, which administrators have. The
    server's own token and certificates are not part of it.

    # The server of kubectl's current context.
    dralloc backup cluster.backup

    # The server of a data directory, whether it runs or not.
    dralloc backup --data-dir ~/.dralloc cluster.backup
    """
    from dralloc.server.store.backup import BadBackup
    from dralloc.server.store.errors import StoreError, StoreInUse

    if data_dir is not None and (kubeconfig or context):
        fail("--data-dir cannot be combined with --kubeconfig or --context")
    try:
        header = None
        if data_dir is not None:
            data_dir = data_dir.expanduser()
            try:
                header = _of_files(data_dir, file)
            except StoreInUse:
                kubeconfig = data_dir / "kubeconfig"
        if header is None:
            header = _of_server(kubeconfig, context, file)
    except (BadBackup, StoreError) as error:
        fail(str(error))
    except OSError as error:
        fail(f"cannot write {file}: {error.strerror}")
    say(f"{file}: {header.records:,} objects at revision {header.revision}", err=True)


def _of_files(data_dir: Path, file: Path) -> Header:
    from dralloc.cli.termination import run_until_terminated
    from dralloc.server.server_process import STORE_FILE
    from dralloc.server.store.backup import backup_pieces
    from dralloc.server.store.store_url import open_store

    path = data_dir / STORE_FILE
    if not path.is_file():
        fail(f"{data_dir} has no {STORE_FILE}: it is not the data directory of a server with a SQLite store")

    async def copy() -> Header:
        async with await open_store(str(path)) as store:
            return await _write(file, backup_pieces(store))

    return run_until_terminated(copy())


def _of_server(kubeconfig: Path | None, context: str | None, file: Path) -> Header:
    from dralloc.cli.server_connection import ask_server, find_server
    from dralloc.client.status_errors import error_of_response
    from dralloc.client.transport import ClientRequest

    async def copy(transport: Transport) -> Header:
        async with transport.stream(ClientRequest(method="GET", path="/backup")) as stream:
            if stream.status != 200:
                raise error_of_response(stream.status, b"".join([piece async for piece in stream.pieces()]))
            return await _write(file, stream.pieces())

    return ask_server(find_server(kubeconfig, context), copy, doing="reading all objects")


async def _write(file: Path, pieces: AsyncIterator[bytes]) -> Header:
    """Writes a file that is complete or not there; raises BadBackup and OSError."""
    import os

    from dralloc.atomic_files import refuse_devices, sync_directory
    from dralloc.client.transport import split_lines
    from dralloc.server.store.backup import BackupReader

    reader = BackupReader()
    refuse_devices(file)
    # A symbolic link stays, and names the new file.
    file = file.resolve()
    unfinished = file.with_name(f".{file.name}.{os.getpid()}")
    descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as writing:
            async for lines in split_lines(pieces):
                for line in lines:
                    reader.read(line)
                    writing.write(line + b"\n")
            header = reader.finish()
            writing.flush()
            os.fsync(writing.fileno())
        unfinished.replace(file)
        # Otherwise a power failure can take the name away.
        sync_directory(file.parent)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise
    return header
