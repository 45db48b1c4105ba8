"""A cluster goes back to a backup; its scheduler and controllers, which notice it, end and are started again: real processes and sockets."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.campaign.campaign import cluster
from tests.campaign.checkers import revision_of
from tests.campaign.load import (
    CLAIMS,
    NAMESPACED_CLAIMS,
    POD_PATH,
    TEMPLATES,
    ServerClient,
    claim_document,
    pod_document,
    template_document,
)
from tests.campaign.processes import KilledProcess

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
PODS = 4


def dralloc(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "dralloc", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def run_dralloc(*arguments: str) -> str:
    """What a command that must succeed says."""
    ended = dralloc(*arguments)
    assert ended.returncode == 0, ended
    return ended.stderr


@asynccontextmanager
async def running(directory: Path) -> AsyncIterator[tuple[dict[str, KilledProcess], ServerClient]]:
    async with AsyncExitStack() as stack:
        processes, (url,) = await stack.enter_async_context(cluster(directory, on_etcd=False))
        client = ServerClient(url)
        stack.push_async_callback(client.close)
        yield {process.name: process for process in processes}, client


async def until_bound(client: ServerClient, name: str) -> dict[str, Any]:
    async with asyncio.timeout(120):
        while not (pod := (await client.ask("GET", f"{POD_PATH}/{name}")).document)["spec"].get("nodeName"):
            await asyncio.sleep(0.05)
        return pod


def test_components_end_after_a_restore_and_know_nothing_of_before_when_they_are_started_again(tmp_path: Path) -> None:
    data, file = tmp_path / "server-0", tmp_path / "cluster.backup"

    async def main() -> None:
        async with running(tmp_path) as (processes, client):
            await client.ask("POST", TEMPLATES, template_document("gpu"))
            await client.ask("POST", POD_PATH, pod_document("before", "gpu"))
            await until_bound(client, "before")
            said = await asyncio.to_thread(run_dralloc, "backup", "--data-dir", str(data), str(file))
            assert f"{file}: " in said
            assert file.stat().st_mode & 0o777 == 0o600
            # The devices are used up, by pods that the backup does not have.
            for number in range(1, PODS):
                await client.ask("POST", POD_PATH, pod_document(f"lost-{number}", "gpu"))
                await until_bound(client, f"lost-{number}")
            for number in range(100):
                await client.ask("POST", NAMESPACED_CLAIMS, claim_document(f"lost-{number}", "1"))
            known = revision_of((await client.ask("GET", CLAIMS)).document)

            server = processes["server-0"]
            await server.kill()
            arguments = ("restore", str(file), "--data-dir", str(data))
            refused = await asyncio.to_thread(dralloc, *arguments)
            assert (refused.returncode, "--overwrite" in refused.stderr) == (2, True)
            await asyncio.to_thread(run_dralloc, *arguments, "--overwrite")
            await server.start()
            await server.until_ready()

            listed = (await client.ask("GET", CLAIMS)).document
            assert revision_of(listed) > known
            assert [item["metadata"]["ownerReferences"][0]["name"] for item in listed["items"]] == ["before"]
            async with aclosing(client.watch(CLAIMS, known)) as events:
                assert (await anext(events))["object"]["code"] == 410
            await restarted(processes)
            # The scheduler knows that the devices are free again.
            for number in range(1, PODS):
                await client.ask("POST", POD_PATH, pod_document(f"after-{number}", "gpu"))
                await until_bound(client, f"after-{number}")
            allocated = [
                result["pool"] + result["device"]
                for item in (await client.ask("GET", CLAIMS)).document["items"]
                for result in item["status"]["allocation"]["devices"]["results"]
            ]
            assert len(set(allocated)) == PODS
            assert sum(process.kills for process in processes.values()) == 1
            assert not any(process.has_ended for process in processes.values())

    asyncio.run(main())


async def restarted(processes: dict[str, KilledProcess]) -> None:
    """All that follow the server have ended with a line, and run again."""
    followers = [process for name, process in processes.items() if name != "server-0"]
    async with asyncio.timeout(120):
        while not all(process.has_ended for process in followers):
            await asyncio.sleep(0.05)
    for process in followers:
        (line,) = (line for line in process.logged().splitlines() if "restored" in line)
        assert line.startswith("dralloc: the API server was restored from a backup: it was at revision "), line
        assert "Traceback" not in process.logged()
        await process.revive()
        await process.until_ready()


def test_backup_and_restore_say_what_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("my notes\n")
    for arguments, said in (
        (("restore", str(tmp_path / "notes"), "--data-dir", str(tmp_path / "data")), "it is not a backup"),
        (("restore", str(tmp_path / "nothing"), "--data-dir", str(tmp_path / "data")), "No such file"),
        (("backup", "--data-dir", str(tmp_path), str(tmp_path / "b")), "has no state.db"),
        (("backup", "--data-dir", str(tmp_path), "--context", "c", str(tmp_path / "b")), "cannot be combined"),
    ):
        ended = dralloc(*arguments)
        assert (ended.returncode, said in ended.stderr, "Traceback" in ended.stderr) == (2, True, False), ended
    assert sorted(each.name for each in tmp_path.iterdir()) == ["notes"]


def test_only_administrators_may_read_a_backup(tmp_path: Path) -> None:
    from tests.support.server_process import server_process

    tokens = tmp_path / "tokens"
    tokens.write_text('secret,somebody,1,"people"\n')
    with server_process(tmp_path / "data", "--token-file", str(tokens)) as server:
        run_dralloc("backup", "--kubeconfig", str(server.kubeconfig), str(tmp_path / "b"))
        assert json.loads((tmp_path / "b").read_text().splitlines()[0])["format"] == "dralloc-backup"
        text = server.kubeconfig.read_text()
        token = (tmp_path / "data" / "admin.token").read_text()
        (tmp_path / "other").write_text(text.replace(token, "secret"))
        refused = dralloc("backup", "--kubeconfig", str(tmp_path / "other"), str(tmp_path / "c"))
        assert (refused.returncode, "denies access" in refused.stderr) == (2, True), refused
        assert not (tmp_path / "c").exists()
