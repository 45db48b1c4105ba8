"""Programs with client libraries of other projects work against the server.

Each program is a process of its own, so that what a library leaves open does not affect the tests.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import dralloc
from tests.support.server_process import ServerProcess

PROGRAMS = Path(__file__).parent / "programs"
NODE = Path(__file__).parent / "node"

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("program", "done"),
    [
        ("official_client.py", "create list patch watch convert refuse apply delete"),
        ("lightkube_client.py", "create list patch watch delete"),
        ("kr8s_client.py", "create list patch watch delete"),
        ("kopf_operator.py", "handler fired"),
    ],
)
def test_python_programs(server: ServerProcess, program: str, done: str) -> None:
    assert run(server, sys.executable, str(PROGRAMS / program), namespace=program.partition("_")[0]) == done


@pytest.mark.real
def test_a_javascript_program(server: ServerProcess) -> None:
    if not shutil.which("node") or not (NODE / "node_modules").is_dir():
        pytest.skip("needs node and npm: scripts/install-system-tools installs them as root on Debian")
    assert run(server, "node", str(NODE / "client.mjs"), namespace="node") == "create list patch watch delete"


def run(server: ServerProcess, *command: str, namespace: str) -> str:
    """The output of the program, which gets a kubeconfig and a namespace of its own."""
    with dralloc.connect(server.kubeconfig) as client:
        client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    arguments = [*command, str(server.kubeconfig), namespace]
    ended = subprocess.run(arguments, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.strip()
