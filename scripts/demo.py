"""`make demo`: a whole cluster and a short story about devices, told as it happens.

Every chapter is a manifest in `examples/demo` and commands that everybody can type. On a terminal the cluster goes on running
afterwards; elsewhere it ends with the story, unless --stay is given.
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
# Far beyond what anything takes that works.
DEADLINE_S: Final = 120.0
# More pods than this are counted and not named.
NAMED_MAX: Final = 5


@dataclass(frozen=True, slots=True)
class Chapter:
    """A manifest, how many of its pods come to run, the command that shows what happened, and what that ends with."""

    title: str
    lesson: str
    file: str
    runs: int
    look: str
    code: int = 0


STORY: Final = (
    Chapter(
        "A network card is shared, and everybody's bandwidth is guaranteed",
        "Each pod asks for 40G of a card with 100G. Two share a card, the third gets another. eth0 is for management: it has no bandwidth to give.",
        "1-shared-nic.yaml",
        3,
        "top devices --node nic-0",
    ),
    Chapter(
        "Two pods on one GPU, by memory",
        "One asks for 50Gi and one for 30Gi: together the 80Gi of one card.",
        "2-gpu-memory.yaml",
        2,
        "get resourceclaims 50-gib 30-gib",
    ),
    Chapter(
        "Three alternatives, of which the second fits",
        "A new card, else a whole one, else a partition. There are no new cards.",
        "3-alternatives.yaml",
        1,
        "explain claim best-card",
    ),
    Chapter(
        "A job with 500 pods on one claim",
        "The claim is reserved for the job, so it is written once and not 500 times.",
        "4-job.yaml",
        500,
        "get resourceclaims sweep-dataset",
    ),
    Chapter(
        "A pod that does not fit, and why",
        "It asks for 96Gi of a card. Whoever waits is told what is missing, and what would help.",
        "5-too-much.yaml",
        0,
        "explain pod too-much",
        code=1,
    ),
)


def main() -> int:
    options = argparse.ArgumentParser(
        prog="make demo", description="A whole cluster and a short story about devices, told as it happens."
    )
    choice = options.add_mutually_exclusive_group()
    choice.add_argument(
        "--stay", action="store_true", help="go on running when the story is told, also without a terminal"
    )
    choice.add_argument("--end", action="store_true", help="end with the story, also on a terminal")
    options.add_argument("--chapters", type=int, default=len(STORY), metavar="N", help="only the first N of the story")
    chosen = options.parse_args()
    stays = chosen.stay or (sys.stdout.isatty() and not chosen.end)
    os.chdir(ROOT)
    started = time.monotonic()
    say(f"{bold('A whole cluster in one process')}: API server, scheduler, controllers, and 12 fake nodes with devices")
    say(command("dralloc up --ephemeral --port 0"))
    with start_cluster("--ephemeral") as process:
        try:
            return tell(process, STORY[: chosen.chapters], started, stays=stays)
        except KeyboardInterrupt:
            say("\nended")
            return 0
        finally:
            process.terminate()
            process.wait(timeout=STOP_TIMEOUT_S)


def tell(process: subprocess.Popen[str], story: Sequence[Chapter], started: float, *, stays: bool) -> int:
    # While the cluster comes up there is time for this.
    from dralloc.cli.main import app

    cluster = ready(process)
    os.environ["KUBECONFIG"] = str(cluster.kubeconfig)
    say(f"up after {time.monotonic() - started:.1f} s: {cluster.url}/ui/ in a browser shows what follows")
    say(command(f"export KUBECONFIG={cluster.kubeconfig}"))
    told: set[str] = set()
    for number, chapter in enumerate(story, start=1):
        say(f"\n{bold(f'{number}. {chapter.title}')}\n{chapter.lesson}")
        run(app, f"apply -f {FOLDER / chapter.file}")
        if chapter.runs:
            asyncio.run(follow(cluster.kubeconfig, told, chapter.runs))
        run(app, chapter.look, chapter.code)
    say(f"\n{bold('That was the story')}, {time.monotonic() - started:.1f} s with the start of the cluster.")
    if not stays:
        reason = "As you wish" if sys.stdout.isatty() else "This is no terminal"
        say(f"{reason}, so the cluster ends here; make demo ARGS=--stay leaves it running.")
        return 0
    say(f"The cluster goes on running: {bold(f'{cluster.url}/ui/')}, or with kubectl and dralloc after")
    say(
        f"{command(f'export KUBECONFIG={cluster.kubeconfig}')}\nCtrl-C ends it. To keep one, with your own data: {program()} up"
    )
    return process.wait()


def run(app: Callable[..., object], line: str, code: int = 0) -> None:
    """A command of ours, as it is typed; in this process, which is quicker than starting one."""
    say(command(f"dralloc {line}"))
    try:
        ended = app(line.split(), standalone_mode=False) or 0
    except SystemExit as left:
        ended = left.code
    if ended == INTERRUPTED:
        raise KeyboardInterrupt
    if ended != code:
        raise SystemExit(f"the story went wrong: dralloc {line} ended with {ended}, not with {code}")


def program() -> str:
    """How dralloc is called in the reader's terminal."""
    return "dralloc" if shutil.which("dralloc") else ".venv/bin/dralloc"


async def follow(kubeconfig: Path, told: set[str], count: int) -> None:
    """Tell which pods run that did not before, as they come to, until so many do."""
    from dralloc.api.pod_v1 import Pod
    from dralloc.client.async_client import connect_async

    new: set[str] = set()
    nodes: set[str] = set()
    try:
        async with asyncio.timeout(DEADLINE_S), connect_async(kubeconfig) as client:
            async for event in client.watch(Pod):
                name, node = event.object.metadata.name, event.object.spec.node_name
                if event.object.status.phase == "Running" and name not in told:
                    told.add(name)
                    new.add(name)
                    nodes.add(node)
                    if count <= NAMED_MAX:
                        say(f"{name} runs on {node}")
                    elif sys.stdout.isatty():
                        say(f"\r{len(new)} of {count} pods run", end="")
                if len(new) == count:
                    break
    except TimeoutError:
        raise SystemExit(f"the story went wrong: only {len(new)} of {count} pods run") from None
    if count > NAMED_MAX:
        say(f"{chr(13) if sys.stdout.isatty() else ''}{count} pods run on {len(nodes)} nodes")


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
    sys.exit(main())
