"""`dralloc rotate`: replace certificates and keys of a server while it runs."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from dralloc.cli.options import ServedKubeconfig
from dralloc.cli.output import fail, in_words, say

ResultT = TypeVar("ResultT")
DataDir = Annotated[Path, typer.Option(help="The data directory of the server.")]

app = typer.Typer(
    help="""Replace certificates and keys of a server while it runs; it needs no restart.

    To replace the certificate authority: `rotate authority`, give every client the new `ca.crt`, `rotate server`, wait until clients with
    certificates of the earlier authority have new ones, `rotate retire`.
    """,
    no_args_is_help=True,
    add_completion=False,
)


@app.command()
def server(data_dir: DataDir = Path("~/.dralloc")) -> None:
    """Replace the key and certificate of the server. New connections get it within a second.

    # A new certificate, signed by the newest authority.
    dralloc rotate server --data-dir ./cluster
    """
    from dralloc.apiserver.credentials.certificates import rotate_server_certificate

    _on_certificates(data_dir, lambda tls: rotate_server_certificate(tls, datetime.now(UTC)))
    say("the server has a new certificate; new connections use it")


@app.command()
def authority(data_dir: DataDir = Path("~/.dralloc"), kubeconfig: ServedKubeconfig = None) -> None:
    """Add a new certificate authority beside the earlier ones. Clients trust both, and nothing changes for them yet.

    # The first step; the others are printed.
    dralloc rotate authority --data-dir ./cluster
    """
    from dralloc.apiserver.credentials.certificates import rotate_authority

    _on_certificates(data_dir, lambda tls: rotate_authority(tls, datetime.now(UTC)))
    _update_kubeconfig(data_dir, kubeconfig)
    place = data_dir.expanduser().absolute()
    say(f"{place / 'tls' / 'ca.crt'} has a new authority: give it to every client that has a copy of its own, then run")
    say(f"  dralloc rotate server --data-dir {place}")


@app.command()
def retire(data_dir: DataDir = Path("~/.dralloc"), kubeconfig: ServedKubeconfig = None) -> None:
    """Trust only the newest certificate authority. Client certificates of earlier ones stop working.

    # The last step, when all clients know the new authority.
    dralloc rotate retire --data-dir ./cluster
    """
    from dralloc.apiserver.credentials.certificates import retire_authorities

    retired = _on_certificates(data_dir, lambda tls: retire_authorities(tls, datetime.now(UTC)))
    _update_kubeconfig(data_dir, kubeconfig)
    counted = "1 earlier authority is" if retired == 1 else f"{retired} earlier authorities are"
    say(f"{counted} no longer trusted" if retired else "only one authority is trusted already")


@app.command()
def tokens(data_dir: DataDir = Path("~/.dralloc")) -> None:
    """Replace the key that signs tokens of service accounts. Tokens that were issued before hold until they expire.

    # A new key; the server uses it for the next token.
    dralloc rotate tokens --data-dir ./cluster
    """
    from dralloc.apiserver.credentials.signing_keys import SigningKeys
    from dralloc.apiserver.objects.service_account_tokens import LIFETIME_MAX

    directory = _existing(data_dir)
    keys = directory / "service-accounts"
    try:
        key = SigningKeys(keys, retain=LIFETIME_MAX).rotate(datetime.now(UTC))
    except OSError as error:
        fail(f"cannot write a key to {keys}: {in_words(error)}")
    say(f"tokens are signed with the new key {key.id}")


def _existing(data_dir: Path) -> Path:
    directory = data_dir.expanduser().absolute()
    if not directory.is_dir():
        fail(f"{directory} does not exist: choose the data directory of the server with --data-dir")
    return directory


def _on_certificates(data_dir: Path, change: Callable[[Path], ResultT]) -> ResultT:
    from dralloc.apiserver.credentials.certificate_authorities import UnusableCertificates

    try:
        return change(_existing(data_dir) / "tls")
    except (UnusableCertificates, OSError) as error:
        fail(str(error))


def _update_kubeconfig(data_dir: Path, kubeconfig: Path | None) -> None:
    """Let the server's own kubeconfig trust what the server trusts now."""
    from dralloc.apiserver.credentials.kubeconfig import UnusableKubeconfig, update_trust

    directory = _existing(data_dir)
    path = kubeconfig.expanduser().absolute() if kubeconfig else directory / "kubeconfig"
    try:
        if update_trust(path, (directory / "tls" / "ca.crt").read_bytes()):
            say(f"{path} is updated")
        else:
            say(f"{path} has no entry of this server; name the right one with --kubeconfig")
    except UnusableKubeconfig as error:
        fail(str(error))
