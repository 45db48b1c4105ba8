"""Recorded requests of many users: a server process answers each as Kubernetes did, to the words of its refusals."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from dralloc.conformance.server_connection import CannotConnect
from dralloc.conformance.vector_family import VectorOptions, VectorVerdict, load_family, read_lines
from tests.support.server_process import ServerProcess, server_process

VECTORS = Path(__file__).parent.parent / "vectors"
LINES = read_lines(VECTORS / "access-requests.jsonl.gz")
TOKENS = "tokens.csv"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    directory = tmp_path_factory.mktemp("server")
    tokens = directory / TOKENS
    tokens.touch()
    options = ("--store", "memory://", "--token-file", str(tokens))
    with server_process(directory, *options) as process:
        yield process


def run(lines: list[bytes], server: ServerProcess, *, with_tokens: bool = True) -> list[VectorVerdict]:
    tokens = server.kubeconfig.parent / TOKENS
    options = VectorOptions(server=server.url, kubeconfig=server.kubeconfig, token_file=tokens if with_tokens else None)
    verdicts = list(load_family("access").run(lines, options))
    # The users of the recorded requests must not keep their access.
    assert tokens.read_text() == ""
    return verdicts


@pytest.mark.slow
def test_all_recorded_requests_agree(server: ServerProcess) -> None:
    verdicts = run(LINES, server)
    assert len(verdicts) == 768
    assert [verdict for verdict in verdicts if verdict.differences] == []


def lines_of(topic: str, count: int) -> list[bytes]:
    return [line for line in LINES if json.loads(line)["topic"] == topic][:count]


def test_users_without_tokens_are_impersonated(server: ServerProcess) -> None:
    verdicts = run(lines_of("escalation", 5), server, with_tokens=False)
    assert [verdict.differences for verdict in verdicts] == [()] * 5
    (verdict,) = run(lines_of("impersonation", 1), server, with_tokens=False)
    assert "--token-file" in verdict.differences[0]


@pytest.mark.parametrize(
    "spoil", [{"code": 200}, {"response": {"kind": "Status"}}, {"responseHeaders": {"content-type": "x/y"}}]
)
def test_a_wrong_answer_is_a_disagreement(server: ServerProcess, spoil: dict[str, object]) -> None:
    line = next(each for each in map(json.loads, lines_of("form", 100)) if each["requests"][0]["code"] == 403)
    line["requests"] = [{**line["requests"][0], **spoil}]
    (verdict,) = run([json.dumps(line).encode()], server)
    assert verdict.differences


def test_a_server_is_required() -> None:
    with pytest.raises(CannotConnect, match="--server"):
        list(load_family("access").run(LINES[:1], VectorOptions()))
