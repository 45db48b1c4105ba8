"""Kills processes of a real cluster under load, and checks what it promises.

    python -m tests.campaign.campaign --kills 1000

runs half of the kills on SQLite (one API server) and half on etcd (etcd and two API servers). Victims are the API servers, the
scheduler, the controllers, the nodes and etcd; a tenth of the kills hit a process that is starting. Writers, pods that come and go,
and watches never stop. Prints figures; ends with 1 if a promise was broken.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from math import inf
from pathlib import Path
from typing import Final, TextIO

from tests.campaign.checkers import (
    Violation,
    WatchJournal,
    check_acknowledged,
    compare_journals,
    revision_of,
)
from tests.campaign.load import (
    CLAIMS,
    NAMESPACED_CLAIMS,
    POD_PATH,
    PODS,
    PROGRESS_TIMEOUT_S,
    TEMPLATES,
    WATCHES,
    Figures,
    Load,
    ServerClient,
    Unanswered,
    claim_document,
    pod_document,
    template_document,
)
from tests.campaign.processes import KilledEtcd, KilledProcess, dralloc
from tests.support.etcd_server import EtcdServer
from tests.support.ports import free_port

KILLS_DURING_START: Final = 0.1
# A process that starts is killed within this time: about as long as it takes on an idle machine.
START_S: Final = 1.2
PROGRESS_EVERY: Final = 50
PROFILE: Final = """\
classes:
  - metadata: {name: gpu.campaign.example.com}
    spec: {selectors: [{cel: {expression: 'device.driver == "campaign.example.com" && !device.allowMultipleAllocations'}}]}
  - metadata: {name: nic.campaign.example.com}
    spec: {selectors: [{cel: {expression: 'device.driver == "campaign.example.com" && device.allowMultipleAllocations'}}]}
nodes:
  - capacity: {cpu: "96", memory: 1Ti, pods: "110"}
    pools:
      - driver: campaign.example.com
        slices:
          - devices:
              - {repeat: 2, name: "gpu-{i}"}
              - name: nic
                allowMultipleAllocations: true
                capacity: {bandwidth: {value: "10", requestPolicy: {default: "4"}}}
"""


@asynccontextmanager
async def cluster(directory: Path, *, on_etcd: bool) -> AsyncIterator[tuple[list[KilledProcess], list[str]]]:
    """The processes of a cluster, ready, and the URLs of its API servers."""
    profile = directory / "profile.yaml"
    profile.write_text(PROFILE)
    victims: list[KilledProcess] = []
    etcd = EtcdServer(directory / "etcd-data")
    if on_etcd:
        (directory / "etcd-data").mkdir()
        victims.append(KilledEtcd(etcd, directory))
    urls: list[str] = []
    for number in range(2 if on_etcd else 1):
        data, port = directory / f"server-{number}", free_port()
        store = ("--store", f"etcd://{etcd.endpoint}") if on_etcd else ()
        command = dralloc("apiserver", "--data-dir", str(data), "--port", str(port), "--insecure-http", *store)
        victims.append(KilledProcess(f"server-{number}", command, "kubeconfig:", directory))
        urls.append(f"http://127.0.0.1:{port}")
    first, last = (str(directory / f"server-{number}" / "kubeconfig") for number in (0, len(urls) - 1))
    victims += [
        KilledProcess("scheduler", dralloc("scheduler", "--kubeconfig", first), "scheduling on", directory),
        KilledProcess("controllers", dralloc("controllers", "--kubeconfig", last), "working on", directory),
        KilledProcess(
            "node",
            dralloc("node", "--fake", "2", "--profile", str(profile), "--kubeconfig", first),
            "nodes are ready",
            directory,
        ),
    ]
    try:
        for victim in victims:
            await victim.start()
            await victim.until_ready()
        yield victims, urls
    finally:
        for victim in reversed(victims):
            await victim.stop()


async def run_campaign(
    directory: Path, *, kills: int, seed: int, on_etcd: bool, seconds: float = inf, progress: TextIO | None = None
) -> Figures:
    """Returns the figures; raises Violation. Ends with fewer kills after that time."""
    rng, figures, began = random.Random(seed), Figures(), time.monotonic()
    async with AsyncExitStack() as stack:
        victims, urls = await stack.enter_async_context(cluster(directory, on_etcd=on_etcd))
        servers = [ServerClient(url) for url in urls]
        for server in servers:
            stack.push_async_callback(server.close)
        load = Load(servers, rng, figures)
        for sort in ("gpu", "nic"):
            await load.insist("POST", TEMPLATES, template_document(sort))
        listed = (await load.read(CLAIMS)).document
        load.journals = [WatchJournal.after_list(listed) for _ in range(WATCHES)]
        async with asyncio.TaskGroup() as tasks:
            watching = [
                tasks.create_task(load.watch(journal, None if number else load.ledger))
                for number, journal in enumerate(load.journals)
            ]
            working = [tasks.create_task(load.write(register)) for register in load.registers]
            working += [tasks.create_task(load.come_and_go(number)) for number in range(PODS)]
            async for done in _kill(victims, load, rng, kills):
                if progress is not None and done % PROGRESS_EVERY == 0:
                    progress.write(f"{done} kills, {load.acknowledged} acknowledged writes\n")
                    progress.flush()
                if time.monotonic() - began > seconds:
                    break
            for victim in victims:
                await victim.until_ready()
            await _settle(load)
            load.ending.set()
            await asyncio.wait(working)
            for register in load.registers:
                found = await load.read(f"{NAMESPACED_CLAIMS}/{register.key.partition('/')[2]}")
                register.look(None if found.code == 404 else found.document)
            final = await _last_write(load)
            async with asyncio.timeout(PROGRESS_TIMEOUT_S):
                while min(journal.revision for journal in load.journals) < final:
                    await asyncio.sleep(0.02)
            for task in watching:
                task.cancel()
        last = await load.read(CLAIMS, resourceVersion=str(final), resourceVersionMatch="Exact")
        compare_journals(load.journals, listed, last.document)
        figures.acknowledged = check_acknowledged(load.registers, load.journals[0], revision_of(listed))
        figures.changes = len(load.journals[0].changes)
        figures.allocations = load.ledger.allocations
        for victim in victims:
            if "Traceback" in (logged := victim.logged()):
                raise Violation(f"{victim.name} had an internal error: {logged[logged.index('Traceback') :][:2000]}")
            sort = victim.name.partition("-")[0]
            figures.kills[sort] = figures.kills.get(sort, 0) + victim.kills
            figures.kills_during_start += victim.kills_during_start
    figures.seconds = time.monotonic() - began
    return figures


async def _kill(victims: Sequence[KilledProcess], load: Load, rng: random.Random, kills: int) -> AsyncIterator[int]:
    """Yields the number of kills so far."""
    while (done := sum(victim.kills for victim in victims)) < kills:
        for each in victims:
            await each.revive()
        victim = rng.choice(victims)
        if rng.random() < KILLS_DURING_START and done + 2 <= kills:
            await victim.kill()
            await victim.start()
            await asyncio.sleep(rng.uniform(0, START_S))
        else:
            await victim.until_ready()
            await load.reach(load.acknowledged + rng.randrange(3, 30))
        await victim.kill()
        await victim.start()
        yield done + 1


async def _settle(load: Load) -> None:
    """The cluster still works: a new pod of each sort is bound."""
    # The other pods go on, so a device is free sooner or later.
    for sort in ("gpu", "nic"):
        await load.insist("POST", POD_PATH, pod_document(f"last-{sort}", sort))
        async with asyncio.timeout(PROGRESS_TIMEOUT_S):
            while not (await load.read(f"{POD_PATH}/last-{sort}")).document["spec"].get("nodeName"):
                await asyncio.sleep(0.1)


async def _last_write(load: Load) -> int:
    """Writes once more; every watch must reach the revision that is returned."""
    async with asyncio.timeout(PROGRESS_TIMEOUT_S):
        while True:
            with suppress(Unanswered):
                answer = await load.server().ask("POST", NAMESPACED_CLAIMS, claim_document("last", "last"))
                return revision_of(answer.document)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--minutes", type=float, default=inf, help="end after this time on each store")
    parser.add_argument("--store", choices=("both", "sqlite", "etcd"), default="both")
    options = parser.parse_args()
    stores = ("sqlite", "etcd") if options.store == "both" else (options.store,)
    for number, store in enumerate(stores):
        kills = options.kills // len(stores) + (number < options.kills % len(stores))
        with tempfile.TemporaryDirectory(prefix="dralloc-campaign-", ignore_cleanup_errors=True) as directory:
            campaign = run_campaign(
                Path(directory),
                kills=kills,
                seed=options.seed,
                on_etcd=store == "etcd",
                seconds=60 * options.minutes,
                progress=sys.stderr,
            )
            try:
                said, code = str(asyncio.run(campaign)), 0
            except (BaseExceptionGroup, Violation) as error:
                said, code = "; ".join(f"{type(each).__name__}: {each}" for each in _leaves(error)), 1
        sys.stdout.write(f"{store}, seed {options.seed}: {said}\n")
        sys.stdout.flush()
        if code:
            return code
    return 0


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if not isinstance(error, BaseExceptionGroup):
        yield error
        return
    for each in error.exceptions:
        yield from _leaves(each)


if __name__ == "__main__":
    sys.exit(main())
