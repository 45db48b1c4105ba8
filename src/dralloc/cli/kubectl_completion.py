"""`kubectl_complete-dra`: what kubectl calls while the user types `kubectl dra …`, since kubectl 1.26.

kubectl passes the words after `dra`, the last of them incomplete. Each line of the answer is a candidate, perhaps with a tab and
a description, as fish has them; the last line is a colon and a number.
"""

from __future__ import annotations

import os
import shlex
import sys
from typing import Final

from dralloc.cli.main import COMPLETION, complete
from dralloc.cli.program_name import PRODUCT

# The shell completes file names where there is no candidate.
FILES_OTHERWISE: Final = ":0"


def main() -> None:
    """Prints the candidates for the last argument."""
    *words, incomplete = sys.argv[1:] or [""]
    line = f"{shlex.join([PRODUCT, *words])} {incomplete and shlex.quote(incomplete)}"
    os.environ |= {
        COMPLETION: "complete_fish",
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
        "_TYPER_COMPLETE_ARGS": line,
    }
    complete(last_line=FILES_OTHERWISE)
