"""Containers as plain processes."""

from __future__ import annotations

import asyncio
import ctypes
from datetime import datetime
from pathlib import Path

import uvloop

from dralloc.kube.codec import decode, encode
from dralloc.node.kubelet.cdi import ContainerEdits, Hook, encode_spec
from dralloc.node.kubelet.cdi_registry import CdiRegistry
from dralloc.node.pod_plan import Exit
from dralloc.node.pod_view import NodePod
from dralloc.node.process_runtime import ProcessRuntime
from dralloc.node.runtime import Launch
from dralloc.system_clock import SystemClock
from tests.support.workloads import pod as pod_document

FORKS: list[None] = []
# A fork handler cannot be unregistered.
BEFORE_FORK = ctypes.CFUNCTYPE(None)(lambda: FORKS.append(None))


class Ends:
    """A listener that gives the exit of the first container."""

    def __init__(self) -> None:
        self.first: asyncio.Future[Exit] = asyncio.get_running_loop().create_future()

    def container_started(self, pod_uid: str, container: str, started_at: datetime) -> None:
        pass

    def container_exited(self, pod_uid: str, container: str, exit: Exit) -> None:
        self.first.set_result(exit)


def test_no_fork_handler_runs_when_a_container_starts(tmp_path: Path) -> None:
    """gRPC registers fork handlers, which sometimes crash the child of a process with threads."""
    FORKS.clear()
    ctypes.CDLL(None).__register_atfork(BEFORE_FORK, None, None, None)

    async def scenario() -> Exit:
        document = pod_document("pod")
        document["metadata"]["uid"] = "1"
        document["spec"]["containers"][0]["command"] = ["sh", "-c", "exit 3"]
        pod = decode(encode(document), NodePod)
        runtime, ends = ProcessRuntime(tmp_path, CdiRegistry(()), SystemClock()), Ends()
        runtime.listen(ends)
        await runtime.start(Launch(pod=pod, container=pod.spec.containers[0], cdi_ids=()))
        async with asyncio.timeout(60):
            ended = await ends.first
        await runtime.close(keep=False)
        return ended

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(scenario()).code == 3
    assert FORKS == []


def test_cdi_edits_that_a_process_does_not_get_are_named(tmp_path: Path) -> None:
    edits = ContainerEdits(
        env={"GPU": "0"}, additional_gids=(44,), hooks=(Hook(hook_name="poststop", path="/bin/true"),)
    )
    (tmp_path / "gpu.json").write_bytes(encode_spec("example.com/gpu", {"a": edits}))
    runtime = ProcessRuntime(tmp_path, CdiRegistry([tmp_path]), SystemClock())
    pod = decode(encode(pod_document("pod")), NodePod)
    assert "without CDI hooks, CDI additionalGids" in runtime.limits(pod, ["example.com/gpu=a"])
    assert runtime.limits(pod, ["example.com/gpu=absent"]) == ""
