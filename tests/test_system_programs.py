"""What only `make system` installs is hidden from fast tests, such as these, whether it is installed or not."""

from __future__ import annotations

import asyncio
import subprocess

import pytest

from tests.support.system_programs import REMEDY, TOOLS, installed_programs


@pytest.mark.parametrize("name", sorted(installed_programs()))
def test_a_program_says_why_it_fails(name: str) -> None:
    ended = subprocess.run([name, "--version"], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (127, f"{REMEDY}\n")


def test_neither_does_one_that_an_event_loop_starts() -> None:
    async def start() -> int:
        return await (await asyncio.create_subprocess_exec("kubectl", stderr=asyncio.subprocess.DEVNULL)).wait()

    assert asyncio.run(start()) == 127


def test_a_file_of_it_cannot_be_read() -> None:
    with pytest.raises(pytest.fail.Exception, match="make system"):
        (TOOLS / "promtool").read_bytes()


def test_a_file_of_it_cannot_be_run() -> None:
    with pytest.raises(pytest.fail.Exception, match="make system"):
        subprocess.run([TOOLS / "promtool"], check=False)


@pytest.mark.slow
def test_others_find_what_is_installed() -> None:
    ended = subprocess.run(["sh", "-c", "kubectl version --client"], capture_output=True, text=True, check=False)
    assert REMEDY not in ended.stderr
