"""Every `dralloc` command line on a page is valid: the command exists and has these options, even if the line is not run."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import typer.main
import yaml

from dralloc.cli.main import app
from dralloc.driver_kit.driver_skeleton import skeleton_files
from dralloc.primitives.removals import COMMANDS
from tests.support.markdown import blocks_of, pages_of, prose_of

ROOT = Path(__file__).parents[2]
COMMAND: Any = typer.main.get_command(app)
# Commands that they tell of may be gone.
HISTORY = ("CHANGELOG.md",)


def command_lines(page: str) -> Iterator[str]:
    """Command lines in console blocks, and `dralloc …` between backquotes."""
    for block in blocks_of(page):
        if block.language == "console":
            for command in block.commands():
                yield from pieces(command.text)
    for span in re.findall(r"`([^`\n]+)`", prose_of(page)):
        yield from pieces(span.replace("\\|", "|"))


def pieces(line: str) -> Iterator[str]:
    """The calls of `dralloc` in a line of shell."""
    unquoted = re.sub(r"'[^'\n]*'", lambda quoted: re.sub(r"[;&|]", " ", quoted[0]), line.replace("\\\n", " "))
    for piece in re.split(r"\|\||&&|;|\|| & |\$\(|\n", unquoted):
        if re.match(r"\s*(\w+=\S+ )*dralloc( |$)", piece):
            yield re.sub(r"^\s*(\w+=\S+ )*", "", piece)


def faults(line: str) -> Iterator[str]:
    command, words = COMMAND, words_of(line)[1:]
    while hasattr(command, "commands") and words and not words[0].startswith("-"):
        name, *words = words
        if name in ("…", "...", "COMMAND"):
            return
        if name not in command.commands:
            yield f"there is no command {name}"
            return
        command = command.commands[name]
    yield from (f"{command.name} has no option {word}" for word in words if not has_option(command, word))


def words_of(line: str) -> Sequence[str]:
    words = shlex.split(line, comments=True)
    # After `--` comes the command of another program.
    return words[: words.index("--")] if "--" in words else words


def has_option(command: Any, word: str) -> bool:
    if not word.startswith("-") or word == "-" or re.fullmatch(r"-\d+", word):
        return True
    known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    return word.partition("=")[0] in {*known, "-h", "--help"} or word[:2] in known - {word}


@pytest.mark.parametrize("page", pages_of(ROOT), ids=lambda page: str(page.relative_to(ROOT)))
def test_command_lines_of_a_page_can_be_typed(page: Path) -> None:
    gone = tuple(f"dralloc {name}" for name in COMMANDS) if page.name in HISTORY else ()
    lines = [line for line in command_lines(page.read_text()) if not line.startswith(gone)]
    assert [f"`{line}`: {fault}" for line in lines for fault in faults(line)] == []


WORKFLOWS = {
    "action": (ROOT / "examples/drivers/github-action/action.yml").read_text(),
    "workflow": (ROOT / "examples/drivers/github-action/workflow.yml").read_text(),
    "workflow of a new driver": skeleton_files("card.example.com")[".github/workflows/driver.yml"],
}


def scripts_in(document: Any) -> Iterator[str]:
    """The scripts of the steps of a workflow or action."""
    for name, value in document.items() if isinstance(document, dict) else enumerate(document):
        if name == "run":
            yield value
        elif isinstance(value, dict | list):
            yield from scripts_in(value)


@pytest.mark.parametrize("name", WORKFLOWS)
def test_scripts_of_workflows_can_be_run(name: str) -> None:
    scripts = list(scripts_in(yaml.safe_load(WORKFLOWS[name])))
    lines = [line for script in scripts for line in pieces(script)]
    assert any(line.startswith("dralloc driver-test ") for line in lines)
    assert [f"`{line}`: {fault}" for line in lines for fault in faults(line)] == []
    for script in scripts:
        assert "${{" not in script, "texts from outside are passed in the environment"
        subprocess.run(["bash", "-n"], input=script, text=True, check=True)


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("dralloc fly", "there is no command fly"),
        ("dralloc validate --strictly x.yaml", "validate has no option --strictly"),
        ("dralloc top devices -f x --sideways", "devices has no option --sideways"),
        ("dralloc validate x.yaml", None),
        ("dralloc driver-test -- python driver.py --anything", None),
        ("dralloc --version", None),
    ],
)
def test_invalid_command_lines_are_found(line: str, fault: str | None) -> None:
    assert next(faults(line), None) == fault


def test_calls_are_found_within_a_line_of_shell() -> None:
    line = "kubectl get pods -o yaml | dralloc explain pod a/b -f - && X=1 dralloc validate x"
    assert [words[1] for words in map(words_of, pieces(line))] == ["explain", "validate"]
