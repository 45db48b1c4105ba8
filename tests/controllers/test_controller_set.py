"""Controllers as processes: leader election, terms of leadership, the command."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import urllib.request
from pathlib import Path
from random import Random

import pytest
from typer.testing import CliRunner

from dralloc.cli.main import app
from dralloc.client.async_client import AsyncClient, connect_async
from dralloc.client.in_process_transport import InProcessTransport
from dralloc.client.transport import ClientRequest, ClientResponse, Transport
from dralloc.controllers.controller_set import LEASE, ControllerSet
from dralloc.kube.coordination_v1 import Lease
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.resource_v1 import ResourceClaim
from dralloc.primitives.features import FeatureGates
from dralloc.testing.builders import request
from dralloc.testing.virtual_time import VirtualClock, run_virtual
from tests.simulator.network import Faults
from tests.support.api_server import TOKEN, api_application
from tests.support.child_process import child_process
from tests.support.controlled_cluster import controlled_cluster
from tests.support.faulty_transport import FaultyTransport
from tests.support.relay_transport import RelayTransport
from tests.support.server_process import server_process
from tests.support.workloads import claim_template, pod, template

CUT_OFF = Faults(lose_request=1.0)
STOP_TIMEOUT_S = 60


def test_one_of_two_processes_leads_and_the_other_takes_over() -> None:
    async def main() -> None:
        clock = VirtualClock(asyncio.get_running_loop())
        async with api_application(clock=clock) as application:
            sound = InProcessTransport(application, token=TOKEN)
            client = AsyncClient(sound)

            async def in_charge() -> tuple[str | None, int]:
                """The holder of the lease, and the number of claims, each of one pod."""
                lease = await client.get(Lease, LEASE.name, namespace=LEASE.namespace)
                number = len(await client.list(Pod))
                await client.create(pod(f"p{number}", {"gpu": template("t")}))
                await asyncio.sleep(1)
                return lease.spec.holder_identity, len(await client.list(ResourceClaim))

            await client.create(claim_template("t", request()))
            networks = {name: FaultyTransport(sound, Random(0), Faults()) for name in ("a", "b")}
            running = {}
            for name, network in networks.items():
                controllers = ControllerSet(network, clock=clock, gates=FeatureGates.defaults())
                running[name] = asyncio.create_task(controllers.run_elected(name))
                await asyncio.sleep(1)
            assert await in_charge() == ("a", 1)

            # Without a connection the leader stops, and the other one starts.
            networks["a"].faults = CUT_OFF
            await asyncio.sleep(30)
            networks["a"].faults = Faults()
            assert await in_charge() == ("b", 2)

            # A leader that ends releases the lease, and the other one starts immediately.
            running["b"].cancel()
            await asyncio.sleep(5)
            assert await in_charge() == ("a", 3)
            running["a"].cancel()
            await asyncio.gather(*running.values(), return_exceptions=True)

    run_virtual(main())


class WithoutResource(RelayTransport):
    """A server that does not serve a resource, or forbids to read it."""

    def __init__(self, inner: Transport, plural: str, status: int) -> None:
        super().__init__(inner)
        self._plural, self._status = plural, status

    async def send(self, request: ClientRequest) -> ClientResponse:
        if request.path.endswith(f"/{self._plural}"):
            return ClientResponse(status=self._status, body=b"404 page not found")
        return await self._inner.send(request)


@pytest.mark.parametrize(
    ("plural", "status", "wants_claims"),
    [("devicetaintrules", 404, True), ("jobs", 403, True), ("resourceclaims", 403, False)],
    ids=[
        "a server that is older than taint rules",
        "jobs are forbidden: only the controllers that need them wait",
        "claims are forbidden: the claim controllers wait",
    ],
)
def test_a_kind_that_cannot_be_watched_stops_only_controllers_that_need_it(
    plural: str, status: int, wants_claims: bool
) -> None:
    async def main() -> None:
        clock = VirtualClock(asyncio.get_running_loop())
        async with api_application(clock=clock) as application:
            sound = InProcessTransport(application, token=TOKEN)
            client = AsyncClient(sound)
            transport = WithoutResource(sound, plural, status)
            running = asyncio.create_task(ControllerSet(transport, clock=clock, gates=FeatureGates.defaults()).run())
            await client.create(claim_template("t", request()))
            await client.create(pod("p", {"gpu": template("t")}))
            await asyncio.sleep(60)
            assert not running.done()
            assert bool(await client.list(ResourceClaim)) == wants_claims
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    run_virtual(main())


def test_processes_with_different_controllers_use_different_leases() -> None:
    async def main() -> None:
        async with controlled_cluster(only=("jobs",)) as jobs, controlled_cluster(only=("quota",)) as quota:
            assert jobs.controllers.lease != quota.controllers.lease

    run_virtual(main())


def test_the_queues_of_an_ended_term_leave_the_metrics() -> None:
    async def main() -> None:
        async with controlled_cluster() as cluster:
            await cluster.settle()
            for _ in range(3):
                await cluster.kill()
                cluster.start()
            # The last one loses the connection before its first list.
            await asyncio.sleep(0)
            await cluster.kill()
            assert cluster.controllers.metrics.queues.readings == []

    run_virtual(main())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--only", "claim-templates,nonsense"], "unknown controller 'nonsense'"),
        (["--kubeconfig", "/nowhere"], "/nowhere"),
        (["--feature-gates", "Nonsense=true"], "Nonsense"),
    ],
    ids=["an unknown controller", "no kubeconfig", "an unknown gate"],
)
def test_wrong_arguments_are_refused_with_one_line(arguments: list[str], words: str) -> None:
    result = CliRunner().invoke(app, ["controllers", *arguments])
    assert result.exit_code == 2
    assert words in result.output
    assert "Traceback" not in result.output


@pytest.mark.slow
def test_the_command_runs_until_it_is_interrupted(tmp_path: Path) -> None:
    with server_process(tmp_path) as server:
        command = [sys.executable, "-m", "dralloc", "controllers", "--kubeconfig", str(server.kubeconfig)]
        command += ["--leader-elect", "--metrics-address", "127.0.0.1:0"]
        with child_process(command, stdout=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout is not None
                assert process.stdout.readline().startswith(f"working on {server.url}: claim-templates, ")
                metrics_url = process.stdout.readline().split()[-1]
                claim_name = asyncio.run(_claim_of_a_new_pod(server.kubeconfig))
                with urllib.request.urlopen(metrics_url) as answer:
                    metrics = answer.read().decode()
            finally:
                process.terminate()
                code = process.wait(timeout=STOP_TIMEOUT_S)
    assert claim_name.startswith("p-gpu-")
    assert 'resourceclaim_controller_create_total{prioritized_list="false"} 1' in metrics
    assert code == 0


async def _claim_of_a_new_pod(kubeconfig: Path) -> str:
    async with asyncio.timeout(STOP_TIMEOUT_S), connect_async(kubeconfig) as client:
        await client.create(claim_template("t", request()))
        await client.create(pod("p", {"gpu": template("t")}))
        async for event in client.watch(Pod):
            for status in event.object.status.resource_claim_statuses:
                return status.resource_claim_name or ""
    raise AssertionError("a watch does not end by itself")
