"""Options that mean the same in every command that has them."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

import typer

from dralloc.cli.name_completion import contexts_starting_with, namespaces_starting_with, nodes_starting_with
from dralloc.cli.output import FEATURE_GATES_HELP

FILES_HELP: Final = (
    "A dump (see dralloc dump), manifests or output of kubectl (YAML or JSON), directories of them, or - for standard input. "
    "Without files, the cluster is read; with --kubeconfig or --context, the files are added to it."
)


class OutputFormat(StrEnum):
    """How an answer is printed: for people, for people who want all of it, or for machines."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"

    @property
    def is_for_people(self) -> bool:
        return self in (OutputFormat.TABLE, OutputFormat.WIDE)


class GetFormat(StrEnum):
    """How objects are printed."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"
    NAME = "name"


Files = Annotated[list[str] | None, typer.Option("--filename", "-f", help=FILES_HELP)]
Output = Annotated[
    OutputFormat,
    typer.Option("--output", "-o", metavar="FORMAT", help="table, wide, json or yaml."),
]


def _parse_verbosity(text: str | int) -> int:
    # Components of Kubernetes are started with `-v=7`.
    try:
        return int(str(text).removeprefix("="))
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a number") from None


Verbosity = Annotated[
    int,
    typer.Option(
        "--v",
        "-v",
        metavar="LEVEL",
        parser=_parse_verbosity,
        help="Log to standard error: 0 warnings, 2 also decisions, 7 also each device and each lack of capacity.",
    ),
]
Gates = Annotated[str, typer.Option("--feature-gates", help=FEATURE_GATES_HELP)]
Strategy = Annotated[
    str | None,
    typer.Option(
        "--strategy",
        metavar="NAME",
        help="Which of the nodes that fit a pod gets: Spread (default), Pack or FragmentationAware.",
    ),
]
StatedStrategy = Annotated[
    str | None,
    typer.Option(
        "--strategy",
        metavar="NAME",
        help="Assume this placement strategy: Spread, Pack or FragmentationAware; default: the one that the scheduler has published.",
    ),
]
StatedConfiguration = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        help="Assume this configuration of the scheduler (see dralloc scheduler); default: the one that it has published.",
    ),
]
PreviewPreemption = Annotated[
    bool,
    typer.Option(
        "--dry-run", help="Also show which pods would be evicted for pods that do not fit. Nothing is evicted."
    ),
]
Kubeconfig = Annotated[
    Path | None,
    typer.Option("--kubeconfig", help="The kubeconfig of the server; default: the one that kubectl uses."),
]
Context = Annotated[
    str | None,
    typer.Option("--context", help="The context of the kubeconfig.", autocompletion=contexts_starting_with),
]
Namespace = Annotated[
    str | None,
    typer.Option(
        "--namespace",
        "-n",
        help="The namespace of names without one; default: that of the context.",
        autocompletion=namespaces_starting_with,
    ),
]
OnlyNode = Annotated[str | None, typer.Option("--node", help="Only on this node.", autocompletion=nodes_starting_with)]
ServedKubeconfig = Annotated[
    Path | None,
    typer.Option(
        "--kubeconfig",
        help="The kubeconfig to write or to add an entry to; other entries are kept. Default: in the data directory.",
    ),
]
StoreUrl = Annotated[
    str | None,
    typer.Option(
        "--store", help="memory://, sqlite:///PATH or etcd://HOST:PORT; default: a file in the data directory."
    ),
]
AcceptLostWrites = Annotated[
    bool,
    typer.Option(
        "--accept-lost-writes",
        help="Start although the file of objects lost acknowledged writes (damaged or missing files), with what it has.",
    ),
]
SchedulerNames = Annotated[
    list[str] | None,
    typer.Option(
        "--scheduler-name",
        help="The schedulerName of the pods that the scheduler takes; may be given several times; otherwise dralloc "
        "and default-scheduler.",
    ),
]
MetricsAddress = Annotated[
    str | None,
    typer.Option("--metrics-address", help="HOST:PORT for /metrics and /healthz; default: not served."),
]
LeaderElect = Annotated[bool, typer.Option("--leader-elect", help="Run only while this replica is the leader.")]


def profiles_starting_with(incomplete: str) -> list[str]:
    """For the shell: the profiles of nodes that come with us."""
    from dralloc.node.simulated.profiles import profile_names

    return [name for name in profile_names() if name.startswith(incomplete)]
