"""Processor time and memory of the components that a benchmark started, read from /proc."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
_MODULE: Final = "dralloc"


def components() -> Mapping[str, int]:
    """The processes below this one by the `dralloc` command that they run."""
    found = ((_command(pid), pid) for pid in _descendants(os.getpid()))
    return {command: pid for command, pid in found if command}


def cpu_s(pid: int) -> float:
    """The processor time that the process has used so far."""
    # The name of the program, in brackets, may contain anything.
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S


def memory_mb(pid: int) -> float:
    """The resident memory of the process now."""
    return _status_kb(pid, "VmRSS") / 1024


def peak_memory_mb(pid: int) -> float:
    return _status_kb(pid, "VmHWM") / 1024


def _status_kb(pid: int, field: str) -> int:
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    return int(status.partition(f"{field}:")[2].split()[0])


def _descendants(pid: int) -> Iterator[int]:
    waiting = [pid]
    while waiting:
        for task in Path(f"/proc/{waiting.pop()}/task").iterdir():
            children = [int(child) for child in (task / "children").read_text(encoding="ascii").split()]
            yield from children
            waiting.extend(children)


def _command(pid: int) -> str:
    """The word after `-m dralloc`; empty if the process runs something else."""
    words = Path(f"/proc/{pid}/cmdline").read_text(encoding="utf-8").split("\0")
    for module, command in itertools.pairwise(words):
        if module == _MODULE:
            return command
    return ""
