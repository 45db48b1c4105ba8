"""Draws the moving picture of `dralloc explain`: real commands on a real cluster, as an SVG whose text can be read and compared.

It has no script and no font of its own, repeats for ever, and stands still for readers who prefer less motion.
"""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

from tests.support.cluster_process import cluster_process

ROOT = Path(__file__).parents[1]
PICTURE = ROOT / "docs" / "screenshots" / "explain.svg"
COMMANDS = (
    "dralloc apply -f examples/demo/5-too-much.yaml",
    "dralloc explain pod too-much | head -9",
)
COLUMNS = 112
CHARACTER = (7.4, 18)
MARGIN = 16
# Seconds.
TYPED_IN = 1.2
UNTIL_OUTPUT = 0.4
UNTIL_NEXT = 1.0
HOLD = 9.0

STYLE = """\
text { font: 12.3px ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; fill: #d7dae0; white-space: pre }
.command { fill: #ffffff; font-weight: 600 } .answer { fill: #ffd479; font-weight: 600 } .remedy { fill: #a5e075 }
@media (prefers-reduced-motion: reduce) { text { animation: none !important } }"""


@dataclass(frozen=True, slots=True)
class Line:
    text: str
    kind: str
    # When it appears, and how long it takes to be typed.
    at_s: float
    typed_s: float = 0.0


def run(commands: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The commands with their output, on a cluster as `dralloc up` starts it."""
    with cluster_process("--ephemeral") as cluster:
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        environment = {**os.environ, "PATH": path, "KUBECONFIG": str(cluster.kubeconfig), "COLUMNS": str(COLUMNS)}
        for command in commands:
            done = subprocess.run(
                command, shell=True, cwd=ROOT, env=environment, capture_output=True, text=True, check=True
            )
            yield command, done.stdout + done.stderr


def lines_of(session: Sequence[tuple[str, str]]) -> Iterator[Line]:
    at_s = 0.5
    for command, output in session:
        yield Line(f"$ {command}", "command", at_s, TYPED_IN)
        at_s += TYPED_IN + UNTIL_OUTPUT
        for number, line in enumerate(output.splitlines()):
            kind = (
                "answer"
                if "does not fit" in line and number == 0
                else "remedy"
                if line.startswith("  - ")
                else "output"
            )
            for piece in textwrap.wrap(line, COLUMNS, subsequent_indent="  ", drop_whitespace=False) or [""]:
                yield Line(piece.rstrip(), kind, at_s)
        at_s += UNTIL_NEXT


def draw(session: Sequence[tuple[str, str]]) -> str:
    lines = list(lines_of(session))
    whole_s = lines[-1].at_s + HOLD
    width, height = COLUMNS * CHARACTER[0] + 2 * MARGIN, len(lines) * CHARACTER[1] + 2 * MARGIN
    spoken = "\n".join(line.text for line in lines)
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" role="img">',
            f"<title>dralloc explain in a terminal</title><desc>{escape(spoken)}</desc>",
            f"<style>{STYLE}",
            *(_motion(number, line, whole_s) for number, line in enumerate(lines)),
            '</style><rect width="100%" height="100%" rx="8" fill="#1d2027"/>',
            *(_text(number, line) for number, line in enumerate(lines)),
            "</svg>\n",
        ]
    )


def _motion(number: int, line: Line, whole_s: float) -> str:
    """A line is hidden until its time; a command grows letter by letter."""
    begins, ends = (100 * moment / whole_s for moment in (line.at_s, line.at_s + line.typed_s))
    steps = f"steps({len(line.text)})" if line.typed_s else "step-end"
    return (
        f"@keyframes l{number} {{ 0%, {begins:.2f}% {{ clip-path: inset(0 100% 0 0) }} {ends:.2f}%, 100% {{ clip-path: inset(0) }} }}"
        f" #l{number} {{ animation: l{number} {whole_s:.1f}s {steps} infinite }}"
    )


def _text(number: int, line: Line) -> str:
    length = len(line.text) * CHARACTER[0]
    y = MARGIN + (number + 0.75) * CHARACTER[1]
    fitted = f' textLength="{length:.1f}"' if line.text else ""
    return f'<text id="l{number}" class="{line.kind}" x="{MARGIN}" y="{y:.1f}"{fitted}>{escape(line.text)}</text>'


if __name__ == "__main__":
    PICTURE.write_text(draw(list(run(COMMANDS))))
