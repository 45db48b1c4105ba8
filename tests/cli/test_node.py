"""`dralloc node` and `dralloc record`: what cannot be done is said in a line, and what is recorded can be published."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import aiohttp
import pytest
from msgspec.structs import replace

from dralloc.client.async_client import connect_async
from dralloc.client.http_transport import HttpTransport
from dralloc.client.kubeconfig import ConnectionConfig
from dralloc.kube.core_v1 import Event
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.resource_v1 import ConsumerReference, ResourceClaim
from dralloc.node.simulated.fleet import Fleet, FleetSettings
from dralloc.node.simulated.profiles import load_profile
from dralloc.server.http.listener import ListenAddress, listen
from dralloc.server.identity.kubeconfig import write_kubeconfig
from dralloc.system_clock import SystemClock
from dralloc.testing.builders import allocation, claim, held, request
from tests.support.api_server import TOKEN, api_application
from tests.support.workloads import existing, pod

pytestmark = pytest.mark.slow

JOB = ConsumerReference(api_group="batch", resource="jobs", name="j", uid="u")


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
    assert "--host-ip has no effect with --fake" in refused(
        "node", "--kubeconfig", nobody, "--fake", "1", "--host-ip", "10.0.0.1"
    )
    assert "--heartbeats has no effect without --fake" in refused("node", "--kubeconfig", nobody, "--heartbeats")
    taken = f"{nobody}/below-a-file"
    assert f"cannot work in {taken}: Not a directory; choose another path with --plugin-dir" in refused(
        "node", "--kubeconfig", nobody, "--plugin-dir", taken
    )
    assert "nothing listens at http://127.0.0.1:1" in refused("record", "--kubeconfig", nobody)


def test_simulated_nodes_heed_feature_gates_and_serve_metrics(tmp_path: Path) -> None:
    """A pod that its claim does not list runs only with the gate for workloads."""

    async def outcome_and_metrics(gates: str) -> tuple[str, str]:
        async with (
            asyncio.timeout(60),
            api_application() as application,
            listen(application, ListenAddress()) as url,
            connect_async(url, token=TOKEN) as client,
        ):
            await client.create(claim("shared", request(), reserved_for=JOB))
            status = {"allocation": replace(allocation(held("x")), reserved_for_any_pod=True), "reservedFor": [JOB]}
            await client.patch(ResourceClaim, "shared", {"status": status}, subresource="status")
            write_kubeconfig(tmp_path / "kubeconfig", server=url, authority_pem=None, token=TOKEN)
            options = ("--kubeconfig", str(tmp_path / "kubeconfig"), "--feature-gates", gates)
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "dralloc", "node", "--fake", "1", "--metrics-address", "127.0.0.1:0", *options),
                stdout=asyncio.subprocess.PIPE,
            )
            try:
                said = await lines_until(process, "1 nodes are ready")
                address = next(line.split()[-1] for line in said if line.startswith("metrics on"))
                await client.create(pod("p", {"gpu": existing("shared")}, node="fake-0"))
                refused = False
                while not refused and (await client.get(Pod, "p")).status.phase != "Running":
                    events = await client.list(Event, fields="involvedObject.name=p")
                    refused = any(event.type == "Warning" for event in events)
                async with aiohttp.ClientSession() as session, session.get(address) as answer:
                    return "refused" if refused else "Running", await answer.text()
            finally:
                process.terminate()
                await process.wait()

    outcome, metrics = asyncio.run(outcome_and_metrics("DRAReservedForWorkloads=true"))
    assert "dralloc_simulated_nodes 1" in metrics
    assert outcome == "Running"
    outcome, _ = asyncio.run(outcome_and_metrics("DRAReservedForWorkloads=false"))
    assert outcome == "refused"


async def lines_until(process: asyncio.subprocess.Process, last: str) -> list[str]:
    assert process.stdout is not None
    lines: list[str] = []
    while not lines or lines[-1] != last:
        lines.append((await process.stdout.readline()).decode().strip())
        assert lines[-1], f"the process ended after {lines}"
    return lines


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
