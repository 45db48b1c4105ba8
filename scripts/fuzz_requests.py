"""Sends random requests to a server of its own and reports failures: answers of 500, no answer, an unhealthy server.

python -m scripts.fuzz_requests --count 1000000 --seed 7
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

from tests.support.random_requests import make_request
from tests.support.request_fuzzer import FuzzReport, fuzz_server
from tests.support.server_process import server_process


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m scripts.fuzz_requests", description=__doc__)
    parser.add_argument("--count", type=int, default=100_000, help="the number of requests")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="the number of the first request")
    parser.add_argument("--show", type=int, metavar="NUMBER", help="print the bytes of one request and exit")
    arguments = parser.parse_args()
    if arguments.show is not None:
        sys.stdout.buffer.write(make_request(arguments.seed, arguments.show).wire())
        return 0
    numbers = range(arguments.first, arguments.first + arguments.count)
    with (
        tempfile.TemporaryDirectory() as directory,
        server_process(Path(directory), "--insecure-http", "--store", "memory://") as server,
    ):
        port = int(server.url.rsplit(":", 1)[1])
        report = asyncio.run(fuzz_server(port, arguments.seed, numbers, progress=_print))
    _print(report)
    for failure in report.failures[:50]:
        sys.stdout.write(f"{failure[:2000]}\n")
    return 1 if report.failures else 0


def _print(report: FuzzReport) -> None:
    sys.stdout.write(f"{report}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
