"""A driver as a program: start, metrics, shutdown, and errors at the start."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import aiohttp
import pytest

from dralloc.client.async_client import connect_async
from dralloc.driver_kit.driver_under_test import DriverUnderTest, Patience
from dralloc.kube.core_v1 import Node
from dralloc.kube.meta_v1 import ObjectMeta
from dralloc.server.server_process import ServerSettings, run_server
from tests.support.ports import free_port

PROGRAM = """
from dralloc.driver import DriverFunctions, device
driver = DriverFunctions("gpu.example.com")
driver.devices(lambda: [device(name) for name in {names}])
driver.prepare(lambda claim: [found.prepared() for found in claim.devices])
driver.run()
"""

pytestmark = pytest.mark.slow


def environment(directory: Path, **changes: str) -> dict[str, str]:
    return {
        **{name: value for name, value in os.environ.items() if name not in ("KUBECONFIG", "NODE_NAME")},
        "NODE_NAME": "node-a",
        "DRA_PLUGINS_DIR": str(directory / "plugins"),
        "DRA_REGISTRY_DIR": str(directory / "registry"),
        "DRA_CDI_DIR": str(directory / "cdi"),
        **changes,
    }


def test_a_driver_starts_serves_metrics_and_shuts_down(directory: Path) -> None:
    async def run() -> None:
        settings = ServerSettings(data_dir=directory / "server", port=0, store="memory://")
        address = f"127.0.0.1:{free_port()}"
        async with run_server(settings), connect_async(settings.kubeconfig_path) as client:
            await client.create(Node(metadata=ObjectMeta(name="node-a")))
            given = environment(directory, KUBECONFIG=str(settings.kubeconfig_path), DRA_METRICS_ADDRESS=address)
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-c", PROGRAM.format(names=["gpu-0"]), env=given
            )
            subject = DriverUnderTest(place=directory / "registry", node_name="node-a", patience=Patience(start_s=60))
            try:
                await subject.connect()
                async with aiohttp.ClientSession() as session, session.get(f"http://{address}/metrics") as response:
                    text = await response.text()
                assert 'dra_driver_registered{driver="gpu.example.com"} 1' in text
                process.send_signal(signal.SIGTERM)
                assert await asyncio.wait_for(process.wait(), 60) == 0
            finally:
                await subject.disconnect()
                if process.returncode is None:
                    process.kill()
                    await process.wait()
            assert list((directory / "registry").iterdir()) == []
            assert not (directory / "plugins" / "gpu.example.com" / "dra.sock").exists()

    asyncio.run(run())


@pytest.mark.parametrize(
    ("names", "changes", "want"),
    [
        (["a"], {"NODE_NAME": ""}, "NODE_NAME is not set"),
        (["a"], {"KUBECONFIG": "/proc/nonexistent"}, "/proc/nonexistent"),
        (["a"], {"DRA_REPAIR_DELAY_S": "soon"}, "DRA_REPAIR_DELAY_S must be a number of seconds, not 'soon'"),
        (["a"], {"DRA_METRICS_ADDRESS": "everywhere"}, "DRA_METRICS_ADDRESS must be HOST:PORT, not 'everywhere'"),
        (["a"], {"DRA_REGISTRY_DIR": "/" + "x" * 120}, "the path of a socket can have 107"),
        (["a", "a"], {}, "device a is listed 2 times"),
    ],
    ids=["no node", "no kubeconfig", "no number", "no address", "a long path", "devices with faults"],
)
def test_the_reason_for_a_failed_start_is_one_line(
    directory: Path, names: list[str], changes: dict[str, str], want: str
) -> None:
    kubeconfig = directory / "kubeconfig"
    kubeconfig.write_text(
        "{current-context: c, contexts: [{name: c, context: {cluster: c}}], "
        "clusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}]}"
    )
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(names=names)],
        env=environment(directory, **{"KUBECONFIG": str(kubeconfig), **changes}),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert want in done.stderr
    assert "Traceback" not in done.stderr
