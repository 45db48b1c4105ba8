"""`make demo`: starts a complete cluster and demonstrates device allocation in five steps.

Every step is a manifest in `examples/demo` and ordinary commands. On a terminal the cluster keeps running afterwards;
elsewhere it stops after the last step, unless --stay is given.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dralloc.cli.output import INTERRUPTED
from tests.support.cluster_process import STOP_TIMEOUT_S, ready, start_cluster

ROOT: Final = Path(__file__).parents[1]
FOLDER: Final = Path("examples/demo")
# Far longer than any step takes.
DEADLINE_S: Final = 120.0
# More pods than this are counted instead of named.
NAMED_MAX: Final = 5


@dataclass(frozen=True, slots=True)
class Step:
    """A manifest, the number of its pods that must run, and the command that shows the result with its exit code."""

    title: str
    lesson: str
    file: str
    runs: int
    look: str
    code: int = 0


STEPS: Final = (
    Step(
        "Pods share a network card with guaranteed bandwidth",
        "Each pod requests 40G of a card with 100G. Two pods share a card, the third gets another one. eth0 is for management and has no bandwidth to share.",
        "1-shared-nic.yaml",
        3,
        "top devices --node nic-0",
    ),
    Step(
        "Two pods share a GPU by memory",
        "One requests 50Gi and one 30Gi: together the 80Gi of one card.",
        "2-gpu-memory.yaml",
        2,
        "get resourceclaims 50-gib 30-gib",
    ),
    Step(
        "The second of three alternatives fits",
        "In order of preference: a new card, a whole card, a partition. There are no new cards.",
        "3-alternatives.yaml",
        1,
        "explain claim best-card",
    ),
    Step(
        "A job with 500 pods uses one claim",
        "The claim is reserved for the job, so it is written once instead of 500 times.",
        "4-job.yaml",
        500,
        "get resourceclaims sweep-dataset",
    ),
    Step(
        "A pod that does not fit, and why",
        "It requests 96Gi, more than any card has. `explain` shows what is missing and which changes would help.",
        "5-too-much.yaml",
        0,
        "explain pod too-much",
        code=1,
    ),
)


def main() -> int:
    options = argparse.ArgumentParser(
        prog="make demo", description="Start a complete cluster and demonstrate device allocation."
    )
    choice = options.add_mutually_exclusive_group()
    choice.add_argument(
        "--stay", action="store_true", help="keep the cluster running afterwards, even without a terminal"
    )
    choice.add_argument("--end", action="store_true", help="stop the cluster afterwards, even on a terminal")
    options.add_argument("--chapters", type=int, default=len(STEPS), metavar="N", help="run only the first N steps")
    chosen = options.parse_args()
    stays = chosen.stay or (sys.stdout.isatty() and not chosen.end)
    os.chdir(ROOT)
    started = time.monotonic()
    say(
        f"{bold('A complete cluster in one process')}: API server, scheduler, controllers, and 12 simulated nodes with devices"
    )
    say(command("dralloc up --ephemeral --port 0"))
    with start_cluster("--ephemeral") as process:
        try:
            return demonstrate(process, STEPS[: chosen.chapters], started, stays=stays)
        except KeyboardInterrupt:
            say("\nstopped")
            return 0
        finally:
            process.terminate()
            process.wait(timeout=STOP_TIMEOUT_S)


def demonstrate(process: subprocess.Popen[str], steps: Sequence[Step], started: float, *, stays: bool) -> int:
    # Import while the cluster starts.
    from dralloc.cli.main import app

    cluster = ready(process)
    os.environ["KUBECONFIG"] = str(cluster.kubeconfig)
    say(f"ready after {time.monotonic() - started:.1f} s; open {cluster.url}/ui/ in a browser to watch")
    say(command(f"export KUBECONFIG={cluster.kubeconfig}"))
    running: set[str] = set()
    for number, step in enumerate(steps, start=1):
        say(f"\n{bold(f'{number}. {step.title}')}\n{step.lesson}")
        run(app, f"apply -f {FOLDER / step.file}")
        if step.runs:
            asyncio.run(follow(cluster.kubeconfig, running, step.runs))
        run(app, step.look, step.code)
    say(f"\n{bold('Done')} in {time.monotonic() - started:.1f} s, including the start of the cluster.")
    if not stays:
        reason = "--end is set" if sys.stdout.isatty() else "The output is not a terminal"
        say(f"{reason}, so the cluster stops now; make demo ARGS=--stay keeps it running.")
        return 0
    say(f"The cluster keeps running: open {bold(f'{cluster.url}/ui/')}, or use kubectl and dralloc after")
    say(
        f"{command(f'export KUBECONFIG={cluster.kubeconfig}')}\nCtrl-C stops it. For a cluster that keeps its data: {program()} up"
    )
    return process.wait()


def run(app: Callable[..., object], line: str, code: int = 0) -> None:
    """Runs a dralloc command in this process, which is faster than starting one."""
    say(command(f"dralloc {line}"))
    try:
        ended = app(line.split(), standalone_mode=False) or 0
    except SystemExit as left:
        ended = left.code
    if ended == INTERRUPTED:
        raise KeyboardInterrupt
    if ended != code:
        raise SystemExit(f"the demo failed: dralloc {line} exited with {ended}, expected {code}")


def program() -> str:
    """Returns the command that starts dralloc in the reader's terminal."""
    return "dralloc" if shutil.which("dralloc") else ".venv/bin/dralloc"


async def follow(kubeconfig: Path, running: set[str], count: int) -> None:
    """Reports newly running pods until there are `count` of them; adds them to `running`."""
    from dralloc.client.async_client import connect_async
    from dralloc.kube.pod_v1 import Pod

    new: set[str] = set()
    nodes: set[str] = set()
    try:
        async with asyncio.timeout(DEADLINE_S), connect_async(kubeconfig) as client:
            async for event in client.watch(Pod):
                name, node = event.object.metadata.name, event.object.spec.node_name
                if event.object.status.phase == "Running" and name not in running:
                    running.add(name)
                    new.add(name)
                    nodes.add(node)
                    if count <= NAMED_MAX:
                        say(f"{name} is running on {node}")
                    elif sys.stdout.isatty():
                        say(f"\r{len(new)} of {count} pods are running", end="")
                if len(new) == count:
                    break
    except TimeoutError:
        raise SystemExit(f"the demo failed: only {len(new)} of {count} pods are running") from None
    if count > NAMED_MAX:
        say(f"{chr(13) if sys.stdout.isatty() else ''}{count} pods are running on {len(nodes)} nodes")


def bold(text: str) -> str:
    return _styled(text, "1")


def command(line: str) -> str:
    return _styled(f"$ {line}", "36")


def _styled(text: str, code: str) -> str:
    return f"\033[{code}m{text}\033[0m" if sys.stdout.isatty() and not os.environ.get("NO_COLOR") else text


def say(text: str, end: str = "\n") -> None:
    sys.stdout.write(text + end)
    sys.stdout.flush()


if __name__ == "__main__":
    # Not sys.exit: CPython ends the process with SIGINT if Ctrl-C came during an exec() of an import, even if it was caught.
    os._exit(main())
