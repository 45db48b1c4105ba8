"""`dralloc node` and `dralloc record`: what cannot be done is said in a line, and what is recorded can be published."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from dralloc.apiserver.credentials.kubeconfig import write_kubeconfig
from dralloc.apiserver.http.listener import ListenAddress, listen
from dralloc.client.http_transport import HttpTransport
from dralloc.client.kubeconfig import ConnectionConfig
from dralloc.fleet.fleet import Fleet, FleetSettings
from dralloc.fleet.profiles import load_profile
from dralloc.system_clock import SystemClock
from tests.support.api_server import TOKEN, api_application

pytestmark = pytest.mark.slow


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "dralloc", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def refused(*arguments: str) -> str:
    done = run(*arguments)
    assert done.returncode == 2, done
    assert "Traceback" not in done.stderr
    return done.stderr


def test_what_cannot_be_done_is_said_in_a_line(tmp_path: Path) -> None:
    nobody = str(tmp_path / "kubeconfig")
    write_kubeconfig(Path(nobody), server="http://127.0.0.1:1", authority_pem=None, token="t")
    assert "does not exist" in refused("node", "--kubeconfig", str(tmp_path / "absent"))
    assert "or one of cpu, gpu, mig, nic, tpu" in refused(
        "node", "--kubeconfig", nobody, "--fake", "1", "--profile", "x"
    )
    taken = f"{nobody}/below-a-file"
    assert f"cannot work in {taken}: Not a directory; choose another path with --plugin-dir" in refused(
        "node", "--kubeconfig", nobody, "--plugin-dir", taken
    )
    assert "nothing listens at http://127.0.0.1:1" in refused("record", "--kubeconfig", nobody)


def test_a_recorded_cluster_is_a_profile(tmp_path: Path) -> None:
    async def record() -> tuple[int, str]:
        async with api_application() as application, listen(application, ListenAddress()) as url:
            transport = HttpTransport(ConnectionConfig(server=url, token=TOKEN))
            settings = FleetSettings(profile=load_profile("nic"), profile_name="nic", count=4)
            await Fleet(transport, settings, SystemClock()).publish()
            await transport.close()
            kubeconfig = tmp_path / "kubeconfig"
            write_kubeconfig(kubeconfig, server=url, authority_pem=None, token=TOKEN)
            arguments = ("record", "--kubeconfig", str(kubeconfig), "-o", str(tmp_path / "recorded.yaml"))
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "dralloc", *arguments, stdout=asyncio.subprocess.PIPE
            )
            said, _ = await process.communicate()
            assert process.returncode is not None
            return process.returncode, said.decode()

    code, said = asyncio.run(record())
    assert code == 0
    assert "1 kind of nodes, from 4 nodes and 4 slices" in said
    (kind,) = load_profile(str(tmp_path / "recorded.yaml")).nodes
    assert kind.pools[0].driver == "nic.example.com"
