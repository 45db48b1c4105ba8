"""Runs dralloc from the directories that the first two arguments name. `kubectl-dra` beside this file starts it."""

import sys
from pathlib import Path

sys.path[:0] = sys.argv[1:3]
# The program that the user called.
sys.argv[:3] = [str(Path(__file__).with_name("kubectl-dra"))]

from dralloc.cli.main import main  # noqa: E402

if __name__ == "__main__":
    main()
