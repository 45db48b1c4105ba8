"""The cost of thousands of simulated nodes: the time until all are published, and the memory of their process."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from bench.measurement import Figure, benchmark
from tests.support.server_process import server_process

NODES = 5_000
STOP_TIMEOUT_S = 30


@benchmark("node")
def measure_fleet() -> Iterator[Figure]:
    """Nodes with eight devices each, against a server in another process, as users run both."""
    with tempfile.TemporaryDirectory() as directory, server_process(Path(directory)) as server:
        command = [sys.executable, "-m", "dralloc", "node", "--fake", str(NODES), "--profile", "gpu"]
        start = time.perf_counter()
        with subprocess.Popen(
            [*command, "--kubeconfig", str(server.kubeconfig)], stdout=subprocess.PIPE, text=True
        ) as fleet:
            try:
                wait_until_ready(fleet)
                took_s = time.perf_counter() - start
                fleet_mb, server_mb = peak_memory_mb(fleet.pid), peak_memory_mb(server.process.pid)
            finally:
                fleet.terminate()
                fleet.wait(timeout=STOP_TIMEOUT_S)
    yield Figure(f"{NODES:,} nodes with 8 devices published", took_s, "s", 60)
    yield Figure(f"{NODES:,} nodes: peak memory of the nodes and the server", fleet_mb + server_mb, "MB", 1_500)
    yield Figure(f"{NODES:,} nodes: peak memory of the nodes alone", fleet_mb, "MB")


def wait_until_ready(fleet: subprocess.Popen[str]) -> None:
    assert fleet.stdout is not None
    for line in fleet.stdout:
        if "ready" in line:
            return
    raise RuntimeError(f"the nodes failed with exit code {fleet.wait()} before they were ready")


def peak_memory_mb(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024
