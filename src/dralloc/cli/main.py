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
from itertools import takewhile
from typing import Any, Final, NoReturn

import typer
from typer.core import TyperGroup
from typer.main import get_command

from dralloc.cli.command_table import COMMANDS
from dralloc.cli.output import fail
from dralloc.cli.program_name import PLUGIN, PRODUCT, as_called, is_plugin, program_name
from dralloc.cli.shell_completion import set_up_completion
from dralloc.primitives import removals

# Take manifests with -f and nothing without a dash, as kubectl does.
WITH_FILES_ONLY: Final = frozenset({"allocate", "apply", "convert"})
# What people type who know kubectl, and what it does well enough.
OF_KUBECTL: Final = frozenset({"annotate", "cordon", "create", "describe", "edit", "label", "logs", "patch"})
# What other programs have as commands.
OPTIONS: Final = frozenset({"help", "version"})
# Options of most commands that users of kubectl write where they like.
BEFORE_COMMANDS: Final = frozenset({"--kubeconfig", "--context", "--namespace", "-n"})
# Where the context of a command line has those that stand before the command.
LEADING: Final = "dralloc.leading_options"
# Set by the scripts that typer writes for shells.
COMPLETION: Final = "_DRALLOC_COMPLETE"
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
    """Lets paragraphs be as wide as the terminal; typer would keep the line ends of the source. Names commands as they are called."""
    paragraphs = inspect.cleandoc(as_called(command.help or "")).split("\n\n")
    command.help = "\n\n".join(each if is_example(each) else " ".join(each.split()) for each in paragraphs)
    for parameter in command.params:
        parameter.help = as_called(getattr(parameter, "help", None) or "")
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
        self.help = as_called(self.help or "")

    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        """Takes the options for a server before the command, too, as kubectl does."""
        leading, rest = _split_leading_options(args)
        if not is_plugin():
            set_up_completion(ctx, rest)
        ctx.meta[LEADING] = leading
        if not ctx.resilient_parsing:
            _tell_removed_option(args)
        path, inner = rest[:1], self.commands.get(rest[0]) if leading and rest else None
        for word in rest[1:]:
            if word not in getattr(inner, "commands", ()):
                break
            inner = inner.commands[word]  # type: ignore[union-attr]  # a group has commands
            path.append(word)
        return super().parse_args(ctx, [*path, *leading, *rest[len(path) :]] if path else args)

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        """Commands, or values for the last of the options before them; the command `get` has all of these options."""
        *before, last = ctx.meta.get(LEADING) or [""]
        if last not in BEFORE_COMMANDS:
            return super().shell_complete(ctx, incomplete)
        inner = self.commands["get"].make_context("get", before, parent=ctx, resilient_parsing=True)
        option = next(each for each in inner.command.params if last in each.opts)
        return option.shell_complete(inner, incomplete)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that is called; says what was meant where it can be told."""
        name, *rest = args
        # Not while a shell asks how a line could go on.
        if not ctx.resilient_parsing:
            program = program_name()
            if (removal := removals.COMMANDS.get(name)) is not None:
                fail(removal.told_of(f"{PRODUCT} {name}"))
            if name in OPTIONS:
                ctx.fail(f"No such command {name!r}. Did you mean: {program} --{name}")
            if name in OF_KUBECTL:
                ctx.fail(f"No such command {name!r}. kubectl {name} works with the same kubeconfig.")
            if name == "explain" and rest and (meant := re.fullmatch(r"(pods?|po|\w*claims?)/(\S+)", rest[0])):
                sort = "claim" if "claim" in meant[1] else "pod"
                ctx.fail(f"explain takes kind and name separately. Did you mean: {program} explain {sort} {meant[2]}")
            if name == "new" and rest and "." in rest[0]:
                ctx.fail(f"Did you mean: {program} new driver {shlex.join(rest)}")
            if name in WITH_FILES_ONLY and rest and not rest[0].startswith("-"):
                ctx.fail(f"{name} takes files with -f. Did you mean: {program} {name} -f {shlex.join(rest)}")
        return super().resolve_command(ctx, args)


def _tell_removed_option(arguments: list[str]) -> None:
    """Ends the command if an option of an earlier version is used. What follows `--` is for another program."""
    for argument in takewhile(lambda each: each != "--", arguments):
        name = argument.partition("=")[0]
        if (removal := removals.OPTIONS.get(name)) is not None:
            fail(removal.told_of(name))


def _split_leading_options(arguments: list[str]) -> tuple[list[str], list[str]]:
    """The options for a server that stand before the command, with their values, and what follows."""
    taken = 0
    while taken < len(arguments):
        name, has_value, _ = arguments[taken].partition("=")
        if name in BEFORE_COMMANDS:
            taken += 1 if has_value else 2
        elif re.match(r"-n[^-]", name):
            taken += 1
        else:
            break
    return arguments[:taken], arguments[taken:]


app = typer.Typer(
    cls=_Commands,
    name="dralloc",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings=HELP_OPTIONS,
    # kubectl completes its plugins itself: cli/kubectl_completion.py.
    add_completion=not is_plugin(),
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from dralloc.cli.product_version import version_text

        typer.echo(f"dralloc {version_text()}")
        raise typer.Exit


@app.callback()
def root(
    version: bool = typer.Option(
        False, "--version", help="Print the version and the commit.", callback=_print_version, is_eager=True
    ),
) -> None:
    """Kubernetes Dynamic Resource Allocation: shared devices, prioritized alternatives, one claim for thousands of pods.

    # A cluster on this machine, with simulated nodes and devices; then look at it
    # from another terminal.
    dralloc up
    dralloc top devices --watch

    # Why is a pod pending, in the cluster of kubectl's current context?
    dralloc explain pod ml/train-0

    # Every command has --help with examples. dralloc --install-completion sets up
    # the shell. --kubeconfig, --context and -n may also stand before the command.
    # Exit codes: 0 success; 1 negative answer (invalid, does not fit, not found);
    # 2 failure (wrong usage, no server).
    dralloc allocate --help
    """


def main() -> None:
    """Runs the command line. An unexpected exception is reported in one line, with the traceback on request."""
    # API objects have no cycles. Most commands end before a collection would free anything.
    gc.set_threshold(100_000, 20, 100)
    if COMPLETION in os.environ:
        complete()
    try:
        # Otherwise the name of the file.
        app(prog_name=PLUGIN if is_plugin() else None)
    except BrokenPipeError:
        # The reader closed the pipe. Without this, Python reports the error again when it closes the output.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except Exception as error:
        if os.environ.get("DRALLOC_TRACEBACK"):
            raise
        fail(f"internal error ({type(error).__name__}: {error}); set DRALLOC_TRACEBACK=1 and report the traceback")


def complete(*, last_line: str = "") -> NoReturn:
    """Answers a shell that asks how a line could go on: without a question to the user, a message, or a wait for anything."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, sys.stdin.fileno())
    os.dup2(nowhere, sys.stderr.fileno())
    code: Any = 1
    try:
        app(prog_name=PRODUCT)
    except SystemExit as ended:
        code = ended.code
    finally:
        sys.stdout.write(last_line)
        sys.stdout.flush()
        # A thread that still waits for a name server or a credential plugin would hold the shell.
        os._exit(code if isinstance(code, int) else 0)


if __name__ == "__main__":
    main()
