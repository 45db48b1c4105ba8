"""`dralloc top devices --watch` as people run it: on a terminal, in a pipe, and until Ctrl-C."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from dralloc.cli.main import app
from tests.support.api_thread import ApiThread, api_thread, refused
from tests.support.child_process import child_process

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiThread]:
    with api_thread(tmp_path_factory.mktemp("api")) as running:
        yield running


@pytest.fixture
def node(api: ApiThread) -> str:
    """A node of this test alone, with one device: a worker may run any of these tests, in any order."""
    name = f"n{len(api.requests)}"
    card = {"name": "gpu-0", "allowMultipleAllocations": True, "capacity": {"memory": {"value": "40Gi"}}}
    spec = {
        "driver": "gpu.example.com",
        "nodeName": name,
        "pool": {"name": name, "generation": 1, "resourceSliceCount": 1},
        "devices": [card],
    }
    api.client.create(
        {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": name}, "spec": spec}
    )
    return name


def allocate(api: ApiThread, node: str, name: str, amount: str) -> None:
    document: dict[str, Any] = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]}},
    }
    api.client.create(document)
    share = {
        "request": "r",
        "driver": "gpu.example.com",
        "pool": node,
        "device": "gpu-0",
        "shareID": f"6b134138-b100-4de2-a3dd-8835161{len(api.requests):05}",
        "consumedCapacity": {"memory": amount},
    }
    api.client.replace_status({**document, "status": {"allocation": {"devices": {"results": [share]}}}})


def command(api: ApiThread, node: str, *options: str) -> list[str]:
    words = ["top", "devices", "--watch", "--node", node, "--kubeconfig", str(api.kubeconfig), *options]
    return [sys.executable, "-m", "dralloc", *words]


def test_in_a_pipe_changes_are_lines_until_interrupted(api: ApiThread, node: str) -> None:
    with child_process(command(api, node), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as following:
        assert following.stdout is not None
        assert following.stderr is not None
        try:
            assert following.stdout.readline() == f"{node}\n"
            assert following.stdout.readline() == f"  gpu.example.com/{node}: 1 of 1 free\n"
            assert "memory 0 of 40Gi used" in following.stdout.readline()
            allocate(api, node, "in-a-pipe", "8Gi")
            line = following.stdout.readline()
            assert f"{node}  gpu.example.com/{node}/gpu-0  shared  memory 8Gi of 40Gi used  default/in-a-pipe" in line
            following.send_signal(signal.SIGINT)
            assert following.wait(timeout=60) == 0
            assert following.stderr.read() == ""
        finally:
            following.kill()


def test_for_programs_each_change_is_a_document(api: ApiThread, node: str) -> None:
    with child_process(command(api, node, "-o", "json"), stdout=subprocess.PIPE, text=True) as following:
        assert following.stdout is not None
        try:
            first = json.loads(following.stdout.readline())
            allocate(api, node, "for-programs", "4Gi")
            second = json.loads(following.stdout.readline())
            before, after = (told["pools"][0]["devices"][0]["capacity"]["memory"]["used"] for told in (first, second))
            assert before != after
        finally:
            following.kill()


def test_on_a_terminal_bars_are_drawn_until_interrupted(api: ApiThread, node: str) -> None:
    allocate(api, node, "from-before", "8Gi")
    terminal, inner = pty.openpty()
    environment = os.environ | {"TERM": "xterm-256color", "COLUMNS": "200", "LINES": "24"}
    with child_process(command(api, node), stdout=inner, stderr=inner, env=environment) as following:
        os.close(inner)
        try:
            assert "█" in _read_until(terminal, "gpu.example.com/gpu-0")
            allocate(api, node, "on-a-terminal", "2Gi")
            _read_until(terminal, "on-a-terminal")
            following.send_signal(signal.SIGINT)
            _read_to_the_end(terminal)
            assert following.wait(timeout=60) == 0
        finally:
            following.kill()
            os.close(terminal)


def _read_until(terminal: int, wanted: str) -> str:
    seen = ""
    while wanted not in seen:
        seen += os.read(terminal, 65536).decode(errors="replace")
    return seen


def _read_to_the_end(terminal: int) -> None:
    try:
        while os.read(terminal, 65536):
            pass
    except OSError:
        # That is how the end of a terminal is told.
        return


def test_what_cannot_be_followed_is_said(api: ApiThread, tmp_path: Path) -> None:
    def run(*options: str, code: int = 2) -> str:
        result = CliRunner().invoke(app, ["top", "devices", "--watch", *options])
        assert result.exit_code == code
        return result.stderr

    (tmp_path / "s.yaml").write_text("")
    assert "--watch cannot be combined with -f" in run("-f", str(tmp_path))
    server = ("--kubeconfig", str(api.kubeconfig))
    assert "no node n9" in run(*server, "--node", "n9", code=1)
    api.answers["/apis/resource.k8s.io/v1/resourceslices"] = refused(403, "Forbidden", "not for you")
    try:
        assert "resourceslices cannot be read: not for you" in run(*server)
    finally:
        api.answers.clear()
