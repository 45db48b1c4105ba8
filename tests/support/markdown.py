"""What a Markdown page shows: its fenced blocks, the commands in them, and whether an output is the one that is shown.

A block says in the words after its language how it is to be read:

    console             lines with `$ ` are commands, what follows each is its output; `…` stands for what is left out
    console fails       the answer is no: a command ends with exit code 1
    console eventually  the output is shown after a moment: the command is repeated until it is so
    console background  the command goes on while the rest of the page is read; its output begins as shown
                        `$ ^C` ends what was started last
    python              a program that can be run as it stands
    text output         what the program before it prints
    LANGUAGE file=NAME  a file that the rest of the page uses
    yaml                manifests; `yaml fragment` is a piece of one
    text                a picture, or what somebody else says
    LANGUAGE not-run: REASON
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_FENCE = re.compile(r"^(?P<indent> *)```(?P<language>[\w-]*)(?P<words>[^`\n]*)$")
_LEFT_OUT = ("…", "...")


@dataclass(frozen=True, slots=True)
class Command:
    """A command line, and the output that the page shows for it; `None` where it shows none."""

    text: str
    output: str | None


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block of a page."""

    language: str
    words: str
    text: str
    line: int

    @property
    def not_run(self) -> str | None:
        """Why it cannot be run, if it says so."""
        _, marker, reason = self.words.partition("not-run")
        return reason.removeprefix(":").strip() if marker else None

    @property
    def file(self) -> str | None:
        """The name of the file that it is."""
        found = re.search(r"\bfile=(\S+)", self.words)
        return found[1] if found else None

    def has(self, word: str) -> bool:
        return self.not_run is None and word in self.words.split()

    def commands(self) -> Iterator[Command]:
        """The commands of a console, each with what it prints."""
        text: list[str] = []
        output: list[str] = []
        for line in self.text.splitlines():
            if text and text[-1].endswith("\\"):
                text.append(line)
            elif line.startswith("$ "):
                if text:
                    yield Command("\n".join(text), "\n".join(output) if output else None)
                text, output = [line[2:]], []
            else:
                output.append(line)
        if text:
            yield Command("\n".join(text), "\n".join(output) if output else None)


def pages_of(project: Path) -> list[Path]:
    """The pages that readers of a project find: beside its code, in `docs`, with its examples and manifests."""
    folders = ("*.md", "docs/**/*.md", "examples/**/*.md", "deploy/**/*.md")
    return sorted(path for folder in folders for path in project.glob(folder))


def blocks_of(page: str) -> Iterator[Block]:
    """The fenced blocks of a page, in order."""
    opened: re.Match[str] | None = None
    inside: list[str] = []
    start = 0
    for number, line in enumerate(page.splitlines(), start=1):
        fence = _FENCE.match(line)
        if opened is None:
            if fence:
                opened, inside, start = fence, [], number
        elif fence and not fence["language"] and fence["indent"] == opened["indent"]:
            yield Block(opened["language"], opened["words"].strip(), "".join(inside), start)
            opened = None
        else:
            inside.append(line.removeprefix(opened["indent"]) + "\n")


def prose_of(page: str) -> str:
    """The page without its fenced blocks."""
    lines = page.splitlines()
    for block in blocks_of(page):
        for number in range(block.line - 1, block.line + len(block.text.splitlines()) + 1):
            lines[number] = ""
    return "\n".join(lines)


def shows(shown: str, printed: str, *, is_beginning: bool = False) -> bool:
    """Whether what was printed is what the page shows, or, where it goes on, begins so."""
    pattern = "".join(_line_pattern(line) for line in shown.rstrip("\n").splitlines())
    text = "".join(f"{line.rstrip()}\n" for line in printed.splitlines())
    if is_beginning:
        return re.match(pattern, text) is not None
    return re.fullmatch(rf"{pattern}\n*", text) is not None


def _line_pattern(line: str) -> str:
    if line.strip() in _LEFT_OUT:
        return r"(?:.*\n)*?"
    return r"[^\n]*".join(map(_columns_pattern, line.rstrip().split("…"))) + r" *\n"


def _columns_pattern(text: str) -> str:
    """Columns are as wide as what is in them, of which a page may leave something out."""
    return r" {2,}".join(map(re.escape, re.split(r" {2,}", text)))
