"""How the user calls the program: `dralloc`, or `kubectl dra` where kubectl found it as its plugin `kubectl-dra`."""

from __future__ import annotations

import re
import sys
from pathlib import PurePath
from typing import Final

from dralloc.cli.command_table import COMMANDS

PRODUCT: Final = "dralloc"
PLUGIN: Final = "kubectl dra"


def program_name() -> str:
    """The words before a command on the user's command line."""
    return PLUGIN if is_plugin() else PRODUCT


def is_plugin() -> bool:
    return PurePath(sys.argv[0]).stem == "kubectl-dra"


def as_called(text: str) -> str:
    """A text of ours with every command line in it as this user would type it."""
    if not is_plugin():
        return text
    return re.sub(rf"\b{PRODUCT} (?=(?:{'|'.join(COMMANDS)}|--help|--version)\b)", f"{PLUGIN} ", text)
