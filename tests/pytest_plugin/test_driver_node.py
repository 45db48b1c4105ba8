"""A test of a driver that is a process, with the fixture's cluster and node."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dralloc.kube.pod_v1 import Pod
from dralloc.pytest_plugin.cluster import BadCluster, DraCluster
from dralloc.pytest_plugin.driver_node import DriverNode

DRIVER = Path(__file__).parents[2] / "examples" / "drivers" / "gpu-memory"


@contextmanager
def driver_on(node: DriverNode) -> Iterator[None]:
    environment = {**os.environ, **node.environment, "GPU_MEMORY_CARDS": str(DRIVER / "cards.json")}
    process = subprocess.Popen([sys.executable, str(DRIVER / "driver.py")], env=environment)
    try:
        yield
    finally:
        process.terminate()
        process.wait(timeout=60)


@pytest.mark.slow
@pytest.mark.dra_cluster(nodes={})
def test_a_pod_sees_what_its_driver_prepared(dra_cluster: DraCluster) -> None:
    node = dra_cluster.start_node("node-a", runs_processes=True)
    with driver_on(node):
        dra_cluster.apply(DRIVER / "manifests" / "classes.yaml", DRIVER / "manifests" / "claims.yaml")
        ended = dra_cluster.wait_until(Pod, "inference", lambda pod: pod.status.phase == "Succeeded", 60)
        assert ended.spec.node_name == "node-a"
        assert f"memory={10 * 2**30}" in node.log_of(ended, "show")
        # The share of a finished pod is free again.
        dra_cluster.wait_for(lambda: not dra_cluster.devices_of("inference"))


@pytest.mark.dra_cluster(nodes={}, virtual_time=True)
def test_drivers_live_in_real_time(dra_cluster: DraCluster) -> None:
    with pytest.raises(BadCluster, match="without virtual_time"):
        dra_cluster.start_node("node-a")
