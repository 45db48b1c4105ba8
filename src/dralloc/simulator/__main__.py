"""`python -m dralloc.simulator --seeds 0-9 --hours 10`: one line for each seed; stops at the first that fails."""

from __future__ import annotations

import argparse
import os
import sys

from dralloc.simulator.soak import SoakFailed, soak
from dralloc.simulator.virtual_time import run_virtual


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", default="0-9", help="one seed, or a range like 0-9")
    parser.add_argument("--hours", type=float, default=10.0, help="simulated hours for each seed")
    parser.add_argument(
        "--elected", action="store_true", help="give the first scheduler a standby with leader election"
    )
    options = parser.parse_args()
    _disable_hash_randomization()
    first, _, last = options.seeds.partition("-")
    for seed in range(int(first), int(last or first) + 1):
        try:
            actions = run_virtual(soak(seed, hours=options.hours, elected=options.elected))
        except SoakFailed as failure:
            sys.stdout.write(f"{failure}\n")
            return 1
        sys.stdout.write(f"seed {seed}: {options.hours:g} hours, {actions} actions, no violation\n")
        sys.stdout.flush()
    return 0


def _disable_hash_randomization() -> None:
    """Restart with fixed hashes: the iteration order of sets is part of what a seed decides."""
    if sys.flags.hash_randomization:
        command = [sys.executable, "-m", "dralloc.simulator", *sys.argv[1:]]
        os.execve(sys.executable, command, {**os.environ, "PYTHONHASHSEED": "0"})


if __name__ == "__main__":
    sys.exit(main())
