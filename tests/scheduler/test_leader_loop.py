"""The scheduler as a process: leader election, metrics, end by a signal."""

from __future__ import annotations

import asyncio
import logging
import re
import signal
import subprocess
import sys
import urllib.request
from contextlib import suppress
from pathlib import Path

import pytest

from dralloc import connect
from dralloc.client.async_client import AsyncClient
from dralloc.client.in_process_transport import InProcessTransport
from dralloc.kube.device_parts import capacity
from dralloc.kube.pod_v1 import Pod
from dralloc.scheduler.leader_loop import FOLLOWED_AT_ONCE, SchedulerLoop
from dralloc.scheduler.settings import SchedulerSettings
from dralloc.testing.builders import alternative, claim, device, device_class, first_available, request, resource_slice
from dralloc.testing.virtual_time import VirtualClock, run_virtual
from tests.support.api_server import TOKEN, api_application
from tests.support.child_process import child_process
from tests.support.scheduled_cluster import ScheduledCluster, in_cluster, node, our_pod
from tests.support.server_process import server_process

NODES = 3 * FOLLOWED_AT_ONCE


def test_one_leader_schedules_and_the_next_takes_over() -> None:
    async def main() -> None:
        clock = VirtualClock(asyncio.get_running_loop())
        async with api_application(clock=clock) as application:
            transport = InProcessTransport(application, token=TOKEN)
            client = AsyncClient(transport)
            terms = [SchedulerLoop(transport, clock=clock, settings=SchedulerSettings()) for _ in range(2)]
            running = [asyncio.ensure_future(term.run_elected(f"s{number}")) for number, term in enumerate(terms)]
            await client.create(node("node-a"))
            await client.create(our_pod("p"))
            await asyncio.sleep(10)
            placed = [term.metrics.attempts.value("scheduled", "dralloc") for term in terms]
            assert sorted(placed) == [0, 1]
            leader = placed.index(1)
            running[leader].cancel()
            await client.create(our_pod("q"))
            await asyncio.sleep(10)
            assert (await client.get(Pod, "q")).spec.node_name == "node-a"
            assert terms[1 - leader].metrics.attempts.value("scheduled", "dralloc") == 1
            running[1 - leader].cancel()
            await asyncio.gather(*running, return_exceptions=True)

    run_virtual(main())


@pytest.mark.parametrize("elected", [False, True], ids=["alone", "elected"])
def test_a_scheduler_that_cannot_list_or_elect_logs_why(caplog: pytest.LogCaptureFixture, elected: bool) -> None:
    async def main() -> None:
        clock = VirtualClock(asyncio.get_running_loop())
        async with api_application(clock=clock) as application:
            transport = InProcessTransport(application, token="not ours")
            terms = SchedulerLoop(transport, clock=clock, settings=SchedulerSettings())
            with suppress(TimeoutError):
                async with asyncio.timeout(30):
                    await (terms.run_elected("s") if elected else terms.run())

    run_virtual(main())
    told = [(record.levelname, record.getMessage()) for record in caplog.records]
    if elected:
        assert told == [("WARNING", "leader election with lease kube-system/dralloc-scheduler: Unauthorized")]
    else:
        watched = ("nodes", "namespaces", "deviceclasses", "resourceslices", "devicetaintrules")
        assert {("WARNING", f"cannot watch {plural}: Unauthorized") for plural in watched} == set(told)


def test_other_tasks_run_while_metrics_of_many_nodes_are_computed() -> None:
    async def main() -> tuple[int, str]:
        clock = VirtualClock(asyncio.get_running_loop())
        async with api_application(clock=clock) as application:
            transport = InProcessTransport(application, token=TOKEN)
            terms = SchedulerLoop(transport, clock=clock, settings=SchedulerSettings())
            running = asyncio.ensure_future(terms.run())
            for number in range(NODES):
                await AsyncClient(transport).create(node(f"node-{number}"))
                cards = resource_slice(f"gpus-{number}", device("gpu"), pool=f"p{number}", node_name=f"node-{number}")
                await AsyncClient(transport).create(cards)
            await asyncio.sleep(10)
            turns, scrape = 0, asyncio.ensure_future(terms.metrics_text())
            while not scrape.done():
                await asyncio.sleep(0)
                turns += 1
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            return turns, scrape.result()

    turns, text = run_virtual(main())
    # Twice: the devices that are idle, and those that are free.
    assert turns > 2 * NODES // FOLLOWED_AT_ONCE
    assert f'dralloc_free_devices{{driver="gpu.example.com"}} {NODES}' in text.splitlines()
    assert f'dralloc_idle_devices{{driver="gpu.example.com"}} {NODES}' in text.splitlines()


@in_cluster()
async def test_metrics_count_attempts_pods_and_claims(cluster: ScheduledCluster) -> None:
    await cluster.create(device_class(), node("node-a", cpu="1"), our_pod("big", requests={"cpu": "2"}))
    await cluster.create(resource_slice("gpus", device("gpu-0"), device("gpu-1"), pool="node-a", node_name="node-a"))
    await cluster.create(claim("c", request()), our_pod("p", "c"))
    await cluster.create(claim("d", first_available("gpu", alternative("any"))), our_pod("q", "d"))
    await cluster.create(claim("e", request(count=2)), our_pod("r", "e"), our_pod("early", "nowhere"))
    held_back = our_pod("held-back")
    held_back["spec"]["schedulingGates"] = [{"name": "example.com/quota"}]
    await cluster.create(held_back)
    await cluster.settle()
    text = cluster.schedulers[0].counters.text()
    for line in (
        'scheduler_schedule_attempts_total{result="scheduled",profile="dralloc"} 2',
        'scheduler_dra_claim_allocations_total{result="success",prioritized_list="false"} 1',
        'scheduler_dra_claim_allocations_total{result="success",prioritized_list="true"} 1',
        'scheduler_unschedulable_pods{plugin="NodeResourcesFit",profile="dralloc"} 1',
        'scheduler_unschedulable_pods{plugin="DynamicResources",profile="dralloc"} 2',
        'dralloc_waiting_pods{reason="Node",profile="dralloc"} 1',
        'dralloc_waiting_pods{reason="InUse",profile="dralloc"} 1',
        'dralloc_waiting_pods{reason="ClaimsNotReady",profile="dralloc"} 1',
        'dralloc_devices{driver="gpu.example.com"} 2',
        'dralloc_free_devices{driver="gpu.example.com"} 0',
        'dralloc_device_shares{driver="gpu.example.com"} 0',
        'scheduler_pending_pods{queue="active"} 0',
        'scheduler_pending_pods{queue="backoff"} 0',
        'scheduler_pending_pods{queue="unschedulable"} 2',
        'scheduler_pending_pods{queue="gated"} 2',
        "scheduler_pod_scheduling_attempts_count 2",
        'scheduler_plugin_execution_duration_seconds_count{plugin="DynamicResources",extension_point="PreFilter",status="Success"} 3',
        'scheduler_plugin_execution_duration_seconds_count{plugin="DynamicResources",extension_point="PreFilter",status="Unschedulable"} 1',
        'scheduler_plugin_execution_duration_seconds_count{plugin="DynamicResources",extension_point="Filter",status="Success"} 2',
        'scheduler_plugin_execution_duration_seconds_count{plugin="DynamicResources",extension_point="Filter",status="Unschedulable"} 1',
        'scheduler_plugin_execution_duration_seconds_count{plugin="DynamicResources",extension_point="PreBind",status="Success"} 2',
    ):
        assert line in text.splitlines(), line
    await cluster.remove_pod("big")
    await cluster.client.patch(Pod, "held-back", {"spec": {"schedulingGates": None}})
    await cluster.settle()
    text = cluster.schedulers[0].counters.text()
    assert 'plugin="NodeResourcesFit"' not in text
    assert 'dralloc_waiting_pods{reason="Node",profile="dralloc"} 0' in text.splitlines()
    assert 'scheduler_pending_pods{queue="gated"} 1' in text.splitlines()


@in_cluster()
async def test_the_log_has_each_device_and_each_lack_of_capacity(cluster: ScheduledCluster) -> None:
    lines: list[tuple[int, str]] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append((record.levelno, record.getMessage()))  # type: ignore[method-assign]
    logger = logging.getLogger("dralloc.scheduler")
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    try:
        shared = device("gpu-0", capacity={"memory": capacity("10Gi")}, shareable=True)
        await cluster.create(device_class(), node("node-a"))
        await cluster.create(resource_slice("gpus", shared, pool="node-a", node_name="node-a"))
        await cluster.create(claim("c", request(capacity={"memory": "8Gi"})), our_pod("p", "c"))
        await cluster.settle()
        await cluster.create(claim("d", request(capacity={"memory": "4Gi"})), our_pod("q", "d"))
        await cluster.settle()
    finally:
        logger.removeHandler(handler)
        logger.setLevel(logging.NOTSET)
    assert (logging.INFO, 'Pod gets a node pod="default/p" node="node-a"') in lines
    (allocating,) = (
        text for level, text in lines if text.startswith("Allocating one device") and level == logging.DEBUG
    )
    assert 'pod="default/p" claim="default/c" request="request" device="' in allocating
    assert allocating.endswith('/node-a/gpu-0" capacities={"memory":"8Gi"}')
    (lack,) = {
        text for level, text in lines if text.startswith("Device capacity not enough") and level == logging.DEBUG
    }
    assert 'pod="default/q"' in lack
    assert "requested 4Gi, available 2Gi" in lack


def read(url: str) -> bytes:
    with urllib.request.urlopen(url) as answer:
        return bytes(answer.read())


@pytest.mark.slow
def test_the_command_schedules_serves_metrics_and_stops_on_sigterm(tmp_path: Path) -> None:
    with server_process(tmp_path) as server, connect(server.kubeconfig) as client:
        options = ["--kubeconfig", str(server.kubeconfig), "--metrics-address", "127.0.0.1:0", "--leader-elect", "-v=7"]
        command = [sys.executable, "-m", "dralloc", "scheduler", "--default-scheduler", *options]
        log = tmp_path / "log"
        # A file: the scheduler would stop at a full pipe.
        with (
            log.open("w") as errors,
            child_process(command, stdout=subprocess.PIPE, stderr=errors, text=True) as process,
        ):
            assert process.stdout is not None
            said = process.stdout.readline() + process.stdout.readline()
            client.create(node("node-a"))
            client.create({**our_pod("p"), "spec": {"containers": [{"name": "main", "image": "main"}]}})
            for event in client.watch(Pod):
                if event.object.spec.node_name:
                    break
            address = re.search(r"http://127\.0\.0\.1:\d+/metrics", said)
            assert address is not None, said
            # We may see the binding before its answer reaches the scheduler, which counts then.
            while b'scheduler_schedule_attempts_total{result="scheduled"' not in read(address[0]):
                pass
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=60) == 0
            assert "for default-scheduler, dralloc" in said
            assert 'INFO Pod gets a node pod="default/p" node="node-a"' in log.read_text()


@pytest.mark.slow
def test_a_missing_kubeconfig_is_named() -> None:
    command = [sys.executable, "-m", "dralloc", "scheduler", "--kubeconfig", "/nowhere/config"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ended.returncode, "kubeconfig /nowhere/config does not exist" in ended.stderr) == (2, True)
