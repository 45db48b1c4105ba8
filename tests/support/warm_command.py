"""A command that starts quickly: a process has imported the program and forks for every call.

Pages show hundreds of commands, and each would import half of the program. A call has its own arguments,
environment, directory and standard streams.
"""

from __future__ import annotations

import importlib
import json
import os
import pkgutil
import socket
import subprocess
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

_LENGTH_BYTES: Final = 4
# Runs without site packages: it only passes its arguments on.
_CALLER: Final = """\
#!{python} -SE
import json, os, socket, sys
call = json.dumps({{"arguments": sys.argv, "environment": dict(os.environ), "directory": os.getcwd()}}).encode()
server = socket.socket(socket.AF_UNIX)
server.connect({address!r})
socket.send_fds(server, [len(call).to_bytes({length}, "big")], [0, 1, 2])
server.sendall(call)
sys.exit(int(server.recv(16) or b"70"))
"""


@contextmanager
def warm_command(name: str, entry: str, package: str, directory: Path) -> Iterator[Path]:
    """A directory with a program of this name that calls `module:function` in a fork of a prepared process."""
    programs = directory / "bin"
    programs.mkdir(parents=True)
    address = str(directory / "socket")
    program = programs / name
    program.write_text(_CALLER.format(python=sys.executable, address=address, length=_LENGTH_BYTES))
    program.chmod(0o755)
    server = subprocess.Popen(
        [sys.executable, "-c", f"import {__name__} as w; w.serve({address!r}, {entry!r}, {package!r})"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert server.stdin is not None
    assert server.stdout is not None
    try:
        assert server.stdout.readline() == b"ready\n", "the program can be read"
        yield programs
    finally:
        server.stdin.close()
        server.terminate()
        server.wait()
        server.stdout.close()


def serve(address: str, entry: str, package: str) -> None:
    """Fork for every call until standard input ends."""
    module, _, function = entry.partition(":")
    for found in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}."):
        if not found.name.endswith("__main__"):
            importlib.import_module(found.name)
    main = getattr(importlib.import_module(module), function)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(address)
    listener.listen()
    os.write(1, b"ready\n")
    while True:
        caller, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            # A grandchild need not be waited for.
            if os.fork() == 0:
                caller.sendall(str(_run(caller, main)).encode())
            os._exit(0)
        caller.close()
        os.wait()


def _run(caller: socket.socket, main: object) -> int:
    length, streams, *_ = socket.recv_fds(caller, _LENGTH_BYTES, 3)
    with caller.makefile("rb") as received:
        call = json.loads(received.read(int.from_bytes(length, "big")))
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.environ.clear()
    os.environ.update(call["environment"])
    os.chdir(call["directory"])
    sys.argv = call["arguments"]
    assert callable(main)
    try:
        main()
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:  # noqa: BLE001
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    return code
