"""The fenced blocks of a Markdown page, the commands in them, and the comparison of outputs.

The words after the language of a block mean:

    console             lines with `$ ` are commands, followed by their output; `…` stands for omitted text
    console fails       the command ends with exit code 1
    console eventually  the command is repeated until it prints this
    console background  the command keeps running during the rest of the page; its output begins as shown;
                        `$ ^C` ends the last one
    python              a complete program
    text output         the output of the program before it
    LANGUAGE file=NAME  a file that the rest of the page uses
    yaml                manifests; `yaml fragment` is a piece of one
    text                a drawing, or a quotation
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
    """A command line and its output on the page; None if the page shows none."""

    text: str
    output: str | None


@dataclass(frozen=True, slots=True)
class Block:
    language: str
    words: str
    text: str
    line: int

    @property
    def not_run(self) -> str | None:
        """The reason why the block is not run, if it has one."""
        _, marker, reason = self.words.partition("not-run")
        return reason.removeprefix(":").strip() if marker else None

    @property
    def file(self) -> str | None:
        """The name of the file that the block defines, if any."""
        found = re.search(r"\bfile=(\S+)", self.words)
        return found[1] if found else None

    def has(self, word: str) -> bool:
        return self.not_run is None and word in self.words.split()

    def commands(self) -> Iterator[Command]:
        """The commands of a console block with their outputs."""
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
    """The pages of the project: in its root, `docs`, `examples` and `deploy`."""
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
    """True if the output is the one on the page or, for a running program, begins with it."""
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
    """Matches columns of any width, because a page may omit part of a column."""
    return r" {2,}".join(map(re.escape, re.split(r" {2,}", text)))
