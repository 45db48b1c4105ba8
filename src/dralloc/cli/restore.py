"""`dralloc restore`: the store of a server from a backup."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dralloc.cli.output import fail, in_words, say


def restore(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="The file that dralloc backup wrote.", show_default=False)
    ],
    data_dir: Annotated[Path, typer.Option(help="The data directory of the server, which must be stopped.")],
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the objects that the data directory has.")
    ] = False,
) -> None:
    """Make the store of a server from a backup. The server must be stopped; its clients may go on.

    The file is checked as a whole first. The new store has a new identity and higher revisions than any before, so that schedulers,
    controllers, nodes and all other clients notice it and list everything again when the server is back. The files of the data
    directory other than the store, such as tokens and certificates, stay.

    # Go back to a backup.
    dralloc restore cluster.backup --data-dir ~/.dralloc --overwrite

    # A copy of a cluster, in a new directory.
    dralloc restore cluster.backup --data-dir /tmp/copy
    dralloc apiserver --data-dir /tmp/copy --port 0
    """
    from dralloc.cli.termination import exit_when_terminated

    with exit_when_terminated():
        _restore(file, data_dir.expanduser(), overwrite=overwrite)


def _restore(file: Path, data_dir: Path, *, overwrite: bool) -> None:
    from dralloc.server.server_process import STORE_FILE
    from dralloc.server.store.backup import read_backup, restore_sqlite
    from dralloc.server.store.disk import Disk
    from dralloc.server.store.errors import StoreError, StoreInUse
    from dralloc.system_clock import SystemClock

    path, disk = data_dir / STORE_FILE, Disk()
    try:
        with file.open("rb") as lines:
            header, records = read_backup(lines)
    except (OSError, StoreError) as error:
        fail(f"cannot restore {in_words(error) if isinstance(error, OSError) else f'{file}: {error}'}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not disk.is_empty(path) and not overwrite:
            fail(f"{path} exists; replace it with --overwrite, or choose another directory")
        revision = restore_sqlite(path, header, records, clock=SystemClock(), disk=disk)
    except StoreInUse:
        fail(f"{path} is in use by a running server; stop it first")
    except (OSError, StoreError) as error:
        # Errors of a full disk name no file.
        where = f" to {path}" if isinstance(error, OSError) and not error.filename else ""
        fail(f"cannot restore{where}: {in_words(error)}")
    say(f"{path}: {header.records:,} objects; revision {header.revision} is now {revision}", err=True)
