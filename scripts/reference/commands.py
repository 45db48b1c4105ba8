"""docs/reference/cli.md: every command with its options."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import typer.main

from dralloc.cli.main import app, is_example
from scripts.reference.markdown import anchor, table


def commands_page() -> Iterator[str]:
    root: Any = typer.main.get_command(app)
    yield "# Commands"
    yield "Exit codes: 0 means success, 1 a negative result (an invalid manifest, a pod that does not fit, a failed test), 2 an error: the last"
    yield "line of the output then says what to do. 130 and 143 mean that the command was interrupted by Ctrl-C or SIGTERM; everything that it had"
    yield "started has ended, too. `dralloc COMMAND --help` shows the contents of this page."
    yield ""
    listed = list(commands(root, "dralloc"))
    yield from table(
        ["command", "what it does"],
        ([f"[`{name}`](#{anchor(name)})", sentence(command.help)] for name, command in listed),
    )
    for name, command in listed:
        yield from command_section(name, command)


def commands(command: Any, name: str) -> Iterator[tuple[str, Any]]:
    if hasattr(command, "commands"):
        for each, found in sorted(command.commands.items()):
            yield from commands(found, f"{name} {each}")
    elif not command.hidden:
        yield name, command


def command_section(name: str, command: Any) -> Iterator[str]:
    arguments = [each for each in command.params if each.param_type_name == "argument"]
    options = [each for each in command.params if each.param_type_name == "option" and not each.hidden]
    usage = [name, *("[OPTIONS]" if options else "",), *(placeholder(each) for each in arguments)]
    yield f"## {name}"
    yield ""
    yield f"`{' '.join(filter(None, usage))}`"
    yield ""
    yield from help_text(command.help)
    rows = [[f"`{placeholder(each)}`", each.help or ""] for each in arguments]
    rows += [[f"`{spelling(each)}`", f"{each.help or ''}{default_of(each)}"] for each in options]
    if rows:
        yield from table(["argument or option", "meaning"], rows)


def help_text(text: str) -> Iterator[str]:
    """Yields the help of a command; indented paragraphs are examples."""
    for paragraph in re.split(r"\n\s*\n", text.strip()):
        lines = paragraph.split("\n")
        if is_example(paragraph):
            yield "```console not-run: an example"
            yield from map(example_line, lines)
            yield "```"
        else:
            yield from (line.strip() for line in lines)
        yield ""


def example_line(line: str) -> str:
    return line if line.startswith("#") else f"$ {line}"


def placeholder(argument: Any) -> str:
    name = argument.metavar or argument.name.upper()
    several = f"{name}…" if argument.nargs == -1 else name
    return several if argument.required else f"[{several}]"


def spelling(option: Any) -> str:
    names = ", ".join([*option.opts, *option.secondary_opts])
    return names if option.is_flag or option.count else f"{names} {option.metavar or option.name.upper()}"


def default_of(option: Any) -> str:
    if option.required:
        return " Required."
    if option.is_flag or option.default in (None, "", (), []) or callable(option.default):
        return ""
    value = getattr(option.default, "value", option.default)
    return f" Default: `{value}`."


def sentence(text: str) -> str:
    first = re.split(r"\n\s*\n", text.strip())[0]
    return " ".join(first.split()).partition(". ")[0].rstrip(".") + "."
