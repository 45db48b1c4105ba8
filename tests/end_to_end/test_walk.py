"""How much one pod with a claim from a template passes, from its manifest to prepared and back to freed: what a newcomer has to follow."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from dralloc.kube.pod_v1 import Pod
from dralloc.kube.resource_v1 import ResourceClaim, ResourceSlice
from dralloc.pytest_plugin.cluster import DraCluster, running_cluster
from tests.support.child_process import child_process

# Some more or fewer in each run: what the components do by the clock meanwhile is counted, too.
FUNCTIONS_MAX = 1_650
# JSON decoded and encoded; some sixty of them are looks of this test, more on a busy machine.
CODEC_CALLS_MAX = 340

DRIVER = """
from dralloc.driver import DriverFunctions, capacity, device

driver = DriverFunctions("cards.example.com")

@driver.devices
def devices():
    return [device("card-0", capacity={"memory": capacity("80Gi", default="10Gi")}, shareable=True)]

@driver.prepare
def prepare(claim):
    return [share.prepared(env={"CARD": share.name}) for share in claim.devices]

@driver.unprepare
def unprepare(claim):
    pass

driver.run()
"""
DEVICE_CLASS = """
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: card}
spec: {selectors: [{cel: {expression: 'device.driver == "cards.example.com"'}}]}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: card}
spec:
  spec:
    devices:
      requests: [{name: card, exactly: {deviceClassName: card, capacity: {requests: {memory: 4Gi}}}}]
"""
POD = """
apiVersion: v1
kind: Pod
metadata: {name: NAME}
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 1
  resourceClaims: [{name: card, resourceClaimTemplateName: card}]
  containers: [{name: show, image: busybox, resources: {claims: [{name: card}]}}]
"""


class Walk:
    """Functions of ours that are called while it counts, and calls of JSON codecs."""

    def __init__(self) -> None:
        self.counts = False
        self.functions: set[tuple[str, str]] = set()
        self.codec_calls: Counter[str] = Counter()

    def note(self, frame: FrameType, event: str, called: Any) -> None:
        if not self.counts or not frame.f_globals.get("__name__", "").startswith("dralloc."):
            return
        if event == "call":
            self.functions.add((frame.f_globals["__name__"], frame.f_code.co_qualname))
        elif event == "c_call" and called.__name__ in (
            "decode",
            "encode",
            "encode_into",
            "decode_lines",
            "encode_lines",
        ):
            owner = getattr(called, "__module__", None) or type(called.__self__).__module__
            if "msgspec" in owner:
                self.codec_calls[called.__name__] += 1


def pass_through(cluster: DraCluster, name: str) -> None:
    cluster.apply(POD.replace("NAME", name))
    cluster.wait_until_running(name)
    cluster.delete(Pod, name)
    cluster.wait_for(lambda: not list(cluster.client.list(ResourceClaim)), 60)


@pytest.mark.slow
def test_what_a_pod_passes(tmp_path: Path) -> None:
    walk = Walk()
    threading.setprofile(walk.note)
    program = tmp_path / "driver.py"
    program.write_text(DRIVER)
    try:
        with running_cluster(nodes={}) as cluster:
            node = cluster.start_node("node-a", runs_processes=False)
            environment = {**os.environ, **node.environment}
            with child_process([sys.executable, program], env=environment, stderr=subprocess.DEVNULL) as driver:
                cluster.apply(DEVICE_CLASS)
                cluster.wait_for(lambda: bool(list(cluster.client.list(ResourceSlice))), 60)
                pass_through(cluster, "first")
                walk.counts = True
                pass_through(cluster, "second")
                walk.counts = False
                driver.terminate()
    finally:
        threading.setprofile(None)
    assert 0 < len(walk.functions) <= FUNCTIONS_MAX
    assert 0 < walk.codec_calls.total() <= CODEC_CALLS_MAX, walk.codec_calls
