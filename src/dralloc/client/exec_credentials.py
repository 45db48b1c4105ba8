"""Credentials from exec plugins of a kubeconfig (`users[].exec`)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from dralloc.primitives.decoders import UNREADABLE, make_decoder

VERSIONS: Final = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
# The plugin may ask its user for a password.
PATIENCE_S: Final = 120.0


class ProgramFailed(Exception):
    """The plugin returned no credentials; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecCredential:
    """The plugin's result: a token, a certificate with its key, or both. PEM text."""

    token: str | None
    certificate_pem: str | None
    key_pem: str | None


class _Variable(msgspec.Struct):
    name: str
    value: str = ""


class _Exec(msgspec.Struct, rename="camel"):
    """The `exec` section of a kubeconfig's user."""

    command: str
    api_version: str
    args: Sequence[str] | None = None
    env: Sequence[_Variable] | None = None
    install_hint: str = ""
    provide_cluster_info: bool = False
    interactive_mode: str = "IfAvailable"


class _Status(msgspec.Struct, rename="camel"):
    token: str | None = None
    client_certificate_data: str | None = None
    client_key_data: str | None = None


class _ExecCredential(msgspec.Struct, rename="camel"):
    api_version: str
    kind: str
    status: _Status = msgspec.field(default_factory=_Status)


def run_credential_program(section: object, cluster: Mapping[str, Any], directory: Path) -> ExecCredential:
    """Returns the plugin's credentials for this cluster. A relative path is relative to the kubeconfig's directory, as
    for kubectl.
    """
    make_decoder(_Exec)  # Reuses what the decoder learned about the type.
    try:
        program = msgspec.convert(section, _Exec)
    except msgspec.ValidationError as error:
        raise ProgramFailed(f"invalid exec section: {error}") from None
    if program.api_version not in VERSIONS:
        raise ProgramFailed(f"unsupported apiVersion {program.api_version!r} of exec; supported: {', '.join(VERSIONS)}")
    command = str(directory / program.command) if os.sep in program.command else program.command
    answer = _run([command, *(program.args or ())], _environment(program, cluster), program.install_hint)
    try:
        credential = make_decoder(_ExecCredential).decode(answer)
    except UNREADABLE as error:
        raise ProgramFailed(f"{command} printed no ExecCredential: {error}") from None
    status = credential.status
    if not status.token and not (status.client_certificate_data and status.client_key_data):
        raise ProgramFailed(f"{command} returned neither a token nor a certificate with its key")
    return ExecCredential(
        token=status.token, certificate_pem=status.client_certificate_data, key_pem=status.client_key_data
    )


def _environment(program: _Exec, cluster: Mapping[str, Any]) -> dict[str, str]:
    is_interactive = program.interactive_mode != "Never" and sys.stdin is not None and sys.stdin.isatty()
    spec: dict[str, Any] = {"interactive": is_interactive}
    if program.provide_cluster_info:
        spec["cluster"] = {name: value for name, value in cluster.items() if name != "extensions"}
    told = {"apiVersion": program.api_version, "kind": "ExecCredential", "spec": spec}
    added = {variable.name: variable.value for variable in program.env or ()}
    return {**os.environ, **added, "KUBERNETES_EXEC_INFO": json.dumps(told)}


def _run(command: list[str], environment: dict[str, str], hint: str) -> bytes:
    """Returns the plugin's standard output; its standard error goes to the user."""
    try:
        done = subprocess.run(
            command, env=environment, stdout=subprocess.PIPE, stdin=None, check=False, timeout=PATIENCE_S
        )
    except OSError as error:
        advice = f"; {hint.strip()}" if hint else ""
        raise ProgramFailed(f"cannot run {command[0]}: {error.strerror or error}{advice}") from None
    except subprocess.TimeoutExpired:
        raise ProgramFailed(f"{command[0]} did not finish within {PATIENCE_S:.0f} s") from None
    if done.returncode != 0:
        raise ProgramFailed(f"{command[0]} failed with exit code {done.returncode}")
    return done.stdout
