"""Random requests to a real server: no answer of 500, no hang. `make fuzz` sends a million."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.support.local_api import LocalApi, with_api
from tests.support.random_requests import make_request
from tests.support.request_fuzzer import fuzz_server
from tests.support.server_process import server_process

REQUESTS = 4_000


@pytest.mark.slow
def test_no_request_makes_the_server_fail(tmp_path: Path) -> None:
    with server_process(tmp_path, "--insecure-http", "--store", "memory://") as server:
        port = int(server.url.rsplit(":", 1)[1])
        report = asyncio.run(fuzz_server(port, 7, range(REQUESTS)))
    assert not report.failures, "\n".join(report.failures[:5])
    assert report.answers[200] > REQUESTS / 20, f"too few requests are valid: {report}"


def test_a_request_is_a_function_of_its_seed_and_number() -> None:
    assert make_request(3, 17) == make_request(3, 17) != make_request(3, 18)


@pytest.mark.parametrize(
    "content_type", ["application/yaml", "application/apply-patch+yaml", "application/merge-patch+json"]
)
@with_api
async def test_a_body_that_is_not_utf8_is_a_bad_request(api: LocalApi, content_type: str) -> None:
    method = "PATCH" if "patch" in content_type else "PUT"
    path = "/api/v1/namespaces/default"
    answer = await api.call(method, path, b'{"kind": "\xff"}', content_type=content_type, fieldManager="me")
    assert answer.code == 400, answer
