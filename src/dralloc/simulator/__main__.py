"""`python -m dralloc.simulator --seeds 0-9 --steps 10000`: one line for each seed; stops at the first that fails."""

from __future__ import annotations

import argparse
import os
import sys

from dralloc.simulator.soak import STORES, SoakFailed, soak
from dralloc.simulator.virtual_time import run_virtual


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", default="0-9", help="one seed, or a range like 0-9")
    parser.add_argument("--steps", type=int, default=1000, help="steps for each seed")
    parser.add_argument("--store", default="", choices=("", *STORES), help="the store; by default the seed chooses it")
    parser.add_argument(
        "--elected", action="store_true", help="give the first scheduler a standby with leader election"
    )
    options = parser.parse_args()
    _disable_hash_randomization()
    first, _, last = options.seeds.partition("-")
    for seed in range(int(first), int(last or first) + 1):
        try:
            revisions = run_virtual(soak(seed, steps=options.steps, store=options.store, elected=options.elected))
        except SoakFailed as failure:
            sys.stdout.write(f"{failure}\n")
            return 1
        sys.stdout.write(f"seed {seed}: {options.steps} steps, {revisions} revisions, no violation\n")
        sys.stdout.flush()
    return 0


def _disable_hash_randomization() -> None:
    """Restart with fixed hashes: the iteration order of sets is part of what a seed decides."""
    if sys.flags.hash_randomization:
        command = [sys.executable, "-m", "dralloc.simulator", *sys.argv[1:]]
        os.execve(sys.executable, command, {**os.environ, "PYTHONHASHSEED": "0"})


if __name__ == "__main__":
    sys.exit(main())
