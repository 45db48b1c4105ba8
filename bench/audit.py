"""What the audit log costs: durable creates of claims over HTTP on servers without a log and with one, in turns.

Compared by the CPU time of the servers, because the speed of a shared machine changes from minute to minute.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from statistics import median

from bench.apiserver import create, rate
from bench.measurement import Figure, benchmark
from tests.support.server_process import ServerProcess, server_process

ROUNDS = 9
CREATES = 1_000
LEVELS = ("None", "Metadata", "Request")


@benchmark("audit")
def measure_audit() -> Iterator[Figure]:
    with tempfile.TemporaryDirectory() as directory, ExitStack() as stack:
        servers = {level: stack.enter_context(_server(Path(directory) / level, level)) for level in LEVELS}
        costs: dict[str, list[float]] = {level: [] for level in LEVELS}
        rates: dict[str, list[float]] = {level: [] for level in LEVELS}
        for turn in range(ROUNDS):
            for level, server in servers.items():
                before = cpu_s(server)
                rates[level].append(asyncio.run(_create_claims(server, turn)))
                costs[level].append((cpu_s(server) - before) / CREATES * 1e6)
    without = median(costs["None"])
    yield Figure("durable create of a claim without audit log: CPU of the server", without, "µs")
    yield Figure("durable creates without audit log", median(rates["None"]), "1/s", more_is_better=True)
    for level in LEVELS[1:]:
        yield Figure(f"with a log of level {level}: CPU in addition", median(costs[level]) - without, "µs")
        yield Figure(f"durable creates with a log of level {level}", median(rates[level]), "1/s", more_is_better=True)


def _server(directory: Path, level: str) -> AbstractContextManager[ServerProcess]:
    directory.mkdir()
    if level == "None":
        return server_process(directory, "--insecure-http")
    policy = directory / "policy.yaml"
    policy.write_text(f"{{apiVersion: audit.k8s.io/v1, kind: Policy, rules: [{{level: {level}}}]}}")
    options = ("--audit-policy-file", str(policy), "--audit-log-path", str(directory / "audit.log"))
    return server_process(directory, "--insecure-http", *options)


async def _create_claims(server: ServerProcess, turn: int) -> float:
    port = int(server.url.rsplit(":", 1)[1])
    return await rate(port, (create(f"c-{turn}-{number:06}") for number in range(CREATES)))


def cpu_s(server: ServerProcess) -> float:
    """User and system time of the server."""
    fields = Path(f"/proc/{server.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
