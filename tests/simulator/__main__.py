"""`python -m tests.simulator --seeds 0-99 --steps 10000`: one line for each seed, and what was violated."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial

from tests.simulator.soak import STORES, run_seed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", default="0-9", help="one seed, or a range like 0-9")
    parser.add_argument("--steps", type=int, default=1000, help="steps for each seed")
    parser.add_argument("--store", default="", choices=("", *STORES), help="the store; by default the seed chooses it")
    parser.add_argument(
        "--elected", action="store_true", help="give the first scheduler a standby with leader election"
    )
    parser.add_argument("--workers", type=int, default=1, help="seeds that run at the same time")
    options = parser.parse_args()
    _disable_hash_randomization()
    first, _, last = options.seeds.partition("-")
    seeds = range(int(first), int(last or first) + 1)
    run = partial(run_seed, steps=options.steps, store=options.store, elected=options.elected)
    failed = 0
    for line, is_right in _outcomes(run, seeds, options.workers):
        sys.stdout.write(line)
        sys.stdout.flush()
        failed += not is_right
    sys.stdout.write(f"{len(seeds)} seeds, {len(seeds) * options.steps} steps, {failed} seeds with violations\n")
    return 1 if failed else 0


def _outcomes(run: partial[tuple[str, bool]], seeds: range, workers: int) -> Iterator[tuple[str, bool]]:
    if workers == 1:
        yield from map(run, seeds)
        return
    with ProcessPoolExecutor(workers, max_tasks_per_child=1) as pool:
        yield from pool.map(run, seeds)


def _disable_hash_randomization() -> None:
    """Restart with fixed hashes: the iteration order of sets is part of what a seed decides."""
    if sys.flags.hash_randomization:
        command = [sys.executable, "-m", "tests.simulator", *sys.argv[1:]]
        os.execve(sys.executable, command, {**os.environ, "PYTHONHASHSEED": "0"})


if __name__ == "__main__":
    sys.exit(main())
