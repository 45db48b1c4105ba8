"""`dralloc`: every command, each in a module of its own that is loaded when it is used."""

from __future__ import annotations

import gc
import inspect
import os
import re
import shlex
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from typing import Any, Final, NamedTuple

import typer
from typer.core import TyperGroup
from typer.main import get_command

from dralloc.cli.output import fail

ASK: Final = "Query a cluster or files"
WORK: Final = "Work with a cluster"
RUN: Final = "Run a cluster, or parts of one"
CHECK: Final = "Check and measure"


class Entry(NamedTuple):
    """A command: the function, or the group of sub-commands, that it is made from, and where it stands in the help."""

    module: str
    member: str
    panel: str


COMMANDS: Final = {
    "up": Entry("up", "up", RUN),
    "apiserver": Entry("apiserver", "apiserver", RUN),
    "scheduler": Entry("scheduler", "scheduler", RUN),
    "controllers": Entry("controllers", "controllers", RUN),
    "node": Entry("node", "node", RUN),
    "rotate": Entry("rotate", "app", RUN),
    "explain": Entry("explain", "explain", ASK),
    "top": Entry("top", "app", ASK),
    "doctor": Entry("doctor", "doctor", ASK),
    "allocate": Entry("allocate", "allocate", ASK),
    "plan": Entry("plan", "plan", ASK),
    "fit": Entry("fit", "fit", ASK),
    "drain": Entry("drain", "drain", ASK),
    "defrag": Entry("defrag", "defrag", ASK),
    "simulate": Entry("simulate", "simulate", ASK),
    "dump": Entry("dump", "dump", ASK),
    "validate": Entry("validate", "validate", ASK),
    "convert": Entry("convert", "convert", ASK),
    "cel": Entry("cel", "cel", ASK),
    "get": Entry("get", "get", WORK),
    "apply": Entry("apply", "apply", WORK),
    "delete": Entry("delete", "delete", WORK),
    "backup": Entry("backup", "backup", WORK),
    "restore": Entry("restore", "restore", WORK),
    "record": Entry("record", "record", WORK),
    "forget": Entry("forget", "forget", WORK),
    "driver-test": Entry("driver_test", "driver_test", CHECK),
    "conformance": Entry("conformance", "conformance", CHECK),
    "bench": Entry("bench", "app", CHECK),
}
# Take manifests with -f and nothing without a dash, as kubectl does.
WITH_FILES_ONLY: Final = frozenset({"allocate", "apply", "convert"})
# What people type who know kubectl, and what it does well enough.
OF_KUBECTL: Final = frozenset({"annotate", "cordon", "create", "describe", "edit", "label", "logs", "patch"})
# What other programs have as commands.
OPTIONS: Final = frozenset({"help", "version"})
HELP_OPTIONS: Final = {"help_option_names": ["-h", "--help"]}


@cache
def _load(name: str) -> Any:
    """The command. Making one from its function takes longer than most commands do, so no other is made."""
    entry = COMMANDS[name]
    found = getattr(import_module(f"dralloc.cli.{entry.module}"), entry.member)
    if not isinstance(found, typer.Typer):
        function, found = found, typer.Typer(add_completion=False)
        found.command(name)(function)
    command: Any = get_command(found)
    command.name, command.rich_help_panel, command.context_settings = name, entry.panel, HELP_OPTIONS
    _lay_out(command)
    return command


def _lay_out(command: Any) -> None:
    """Lets paragraphs be as wide as the terminal; typer would keep the line ends of the source."""
    paragraphs = inspect.cleandoc(command.help or "").split("\n\n")
    command.help = "\n\n".join(each if is_example(each) else " ".join(each.split()) for each in paragraphs)
    for inner in getattr(command, "commands", {}).values():
        _lay_out(inner)


def is_example(paragraph: str) -> bool:
    """Whether a paragraph of a help is to be typed: it begins with a comment that says what for."""
    return paragraph.startswith("# ")


class _OnDemand(Mapping[str, Any]):
    def __getitem__(self, name: str) -> Any:
        if name not in COMMANDS:
            raise KeyError(name)
        return _load(name)

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)


class _Commands(TyperGroup):
    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = _OnDemand()  # type: ignore[assignment]  # read-only

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that is called; says what was meant where it can be told."""
        name, *rest = args
        # Not while a shell asks how a line could go on.
        if not ctx.resilient_parsing:
            if name in OPTIONS:
                ctx.fail(f"No such command {name!r}. Did you mean: dralloc --{name}")
            if name in OF_KUBECTL:
                ctx.fail(f"No such command {name!r}. kubectl {name} works with the same kubeconfig.")
            if name == "explain" and rest and (meant := re.fullmatch(r"(pods?|po|\w*claims?)/(\S+)", rest[0])):
                sort = "claim" if "claim" in meant[1] else "pod"
                ctx.fail(f"explain takes kind and name separately. Did you mean: dralloc explain {sort} {meant[2]}")
            if name in WITH_FILES_ONLY and rest and not rest[0].startswith("-"):
                ctx.fail(f"{name} takes files with -f. Did you mean: dralloc {name} -f {shlex.join(rest)}")
        return super().resolve_command(ctx, args)


app = typer.Typer(
    cls=_Commands,
    name="dralloc",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings=HELP_OPTIONS,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        # Takes longer to load than most commands take.
        from importlib import metadata

        typer.echo(f"dralloc {metadata.version('dralloc')}")
        raise typer.Exit


@app.callback()
def root(
    version: bool = typer.Option(False, "--version", help="Print the version.", callback=_print_version, is_eager=True),
) -> None:
    """Kubernetes Dynamic Resource Allocation: shared devices, prioritized alternatives, one claim for thousands of pods.

    # A cluster on this machine, with simulated nodes and devices; then look at it
    # from another terminal.
    dralloc up
    dralloc top devices --watch

    # Why is a pod pending, in the cluster of kubectl's current context?
    dralloc explain pod ml/train-0

    # Every command has --help with examples. dralloc --install-completion sets up
    # the shell.
    # Exit codes: 0 success; 1 negative answer (invalid, does not fit, not found);
    # 2 failure (wrong usage, no server).
    dralloc allocate --help
    """


def main() -> None:
    """Runs the command line. An unexpected exception is reported in one line, with the traceback on request."""
    # API objects have no cycles. Most commands end before a collection would free anything.
    gc.set_threshold(100_000, 20, 100)
    try:
        app()
    except BrokenPipeError:
        # The reader closed the pipe. Without this, Python reports the error again when it closes the output.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except Exception as error:
        if os.environ.get("DRALLOC_TRACEBACK"):
            raise
        fail(f"internal error ({type(error).__name__}: {error}); set DRALLOC_TRACEBACK=1 and report the traceback")


if __name__ == "__main__":
    main()
