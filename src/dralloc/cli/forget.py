"""`dralloc forget`: remove claims from the checkpoint of a node."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dralloc.cli.output import fail, in_words, say


def forget(
    claims: Annotated[list[str], typer.Argument(metavar="UID", help="The UIDs of the claims.", show_default=False)],
    checkpoint: Annotated[Path, typer.Option(metavar="FILE", help="The checkpoint: a kubelet's dra_manager_state.")],
) -> None:
    """Remove claims from the checkpoint of a kubelet or of dralloc node. Stop it first: it would write the file again.

    No driver is called for a claim that is forgotten. So do this only if the driver that prepared it is gone for good; otherwise start the
    driver, and the node unprepares the claim by itself. `dralloc doctor` finds such claims.

    # On the node, with its kubelet stopped.
    claim=7c9e6679-7425-40de-944b-e07fc1f90ae7
    dralloc forget --checkpoint /var/lib/kubelet/dra_manager_state $claim
    """
    import os

    from dralloc.atomic_files import write_atomically
    from dralloc.node.checkpoint import DirectoryInUse, decode_checkpoint, encode_checkpoint, lock_directory

    try:
        records = decode_checkpoint(checkpoint.read_bytes())
        if (checkpoint.parent / "lock").exists():
            # Of an agent of ours; it ends with this process.
            lock_directory(checkpoint.parent)
    except (OSError, ValueError, DirectoryInUse) as error:
        fail(f"{checkpoint}: {in_words(error)}" if not isinstance(error, OSError) else in_words(error))
    known = {record.uid: record for record in records}
    if unknown := [uid for uid in claims if uid not in known]:
        listed = ", ".join(f"{record.uid} ({record.namespace}/{record.name})" for record in records) or "none"
        fail(f"{checkpoint} has no claim {unknown[0]}; it has: {listed}")
    mode = os.stat(checkpoint).st_mode & 0o777
    try:
        write_atomically(checkpoint, encode_checkpoint(each for each in records if each.uid not in claims))
        os.chmod(checkpoint, mode)
    except OSError as error:
        fail(in_words(error))
    for uid in dict.fromkeys(claims):
        say(f"forgot claim {known[uid].namespace}/{known[uid].name}")
