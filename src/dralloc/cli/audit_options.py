"""The options of the audit log, with kube-apiserver's names."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dralloc.cli.output import fail

if TYPE_CHECKING:
    from dralloc.apiserver.server_process import AuditSettings

PolicyFile = Annotated[
    Path | None,
    typer.Option(
        "--audit-policy-file",
        help="The audit policy: which requests are logged (audit.k8s.io/v1 Policy). Default: none.",
    ),
]
LogPath = Annotated[
    Path | None, typer.Option("--audit-log-path", help="The audit log, one JSON event per line; - for standard output.")
]
LogMaxSize = Annotated[
    int, typer.Option("--audit-log-maxsize", metavar="MIB", min=1, help="The audit log is rotated at this size in MiB.")
]
LogMaxBackup = Annotated[
    int,
    typer.Option("--audit-log-maxbackup", metavar="COUNT", min=0, help="Rotated audit logs to keep; 0 keeps all."),
]
LogMaxAge = Annotated[
    int,
    typer.Option("--audit-log-maxage", metavar="DAYS", min=0, help="Days to keep rotated audit logs; 0 is no limit."),
]


def audit_settings(
    policy_file: Path | None, log_path: Path | None, max_size: int, max_backup: int, max_age: int
) -> AuditSettings | None:
    """The settings of the audit log, or `None` without one. Ends the command if an option is missing."""
    if policy_file is None and log_path is None:
        return None
    if policy_file is None:
        fail("--audit-log-path needs --audit-policy-file: without a policy nothing would be logged")
    if log_path is None:
        fail("--audit-policy-file needs --audit-log-path: the file for the events, or - for standard output")
    from dralloc.apiserver.audit.audit_log import LogRotation
    from dralloc.apiserver.server_process import AuditSettings

    return AuditSettings(
        policy_file=policy_file.expanduser(),
        log_path=log_path.expanduser(),
        rotation=LogRotation(size_mib_max=max_size, backups_max=max_backup, age_days_max=max_age),
    )
