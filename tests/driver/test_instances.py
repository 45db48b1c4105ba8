"""Instances of one driver: the newest one, cleanup after crashes, serialized calls, socket paths."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dralloc.driver.instances import AlreadyRunning, Instances
from dralloc.driver.settings import BadDriverSettings, Settings, Sockets
from tests.support.limited_files import files_of_at_most


def test_the_newest_running_instance_is_the_newest(tmp_path: Path) -> None:
    first, second, third = Instances(tmp_path), Instances(tmp_path), Instances(tmp_path)
    first.enter(("a",))
    assert first.is_newest()
    second.enter(("b",))
    third.enter(("c",))
    assert [instance.is_newest() for instance in (first, second, third)] == [False, False, True]
    third.leave()
    assert [instance.is_newest() for instance in (first, second)] == [False, True]
    second.leave()
    assert first.is_newest()
    first.leave()
    assert list(tmp_path.glob("*.instance")) == []


def test_a_full_disk_is_told_with_the_file(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="too large") as raised, files_of_at_most(10):
        Instances(tmp_path).enter(("a",))
    assert raised.value.filename == str(tmp_path / "00000001.instance")
    following = Instances(tmp_path)
    following.enter(("a",))
    assert following.is_newest()


def test_two_instances_cannot_share_a_socket(tmp_path: Path) -> None:
    first = Instances(tmp_path)
    first.enter(("/a/dra.sock", "/r/x-reg.sock"))
    with pytest.raises(AlreadyRunning, match="set POD_UID for each"):
        Instances(tmp_path).enter(("/a/dra.sock", "/r/y-reg.sock"))
    first.leave()
    Instances(tmp_path).enter(("/a/dra.sock", "/r/y-reg.sock"))


@pytest.mark.slow
def test_files_of_a_killed_instance_are_removed(tmp_path: Path) -> None:
    socket = tmp_path / "x.sock"
    program = (
        "import os, signal, sys; from pathlib import Path; from dralloc.driver.instances import Instances;"
        "Path(sys.argv[2]).touch(); Instances(Path(sys.argv[1])).enter((sys.argv[2],)); os.kill(os.getpid(), signal.SIGKILL)"
    )
    killed = subprocess.run([sys.executable, "-c", program, str(tmp_path), str(socket)], check=False)
    assert killed.returncode == -9
    assert (socket.exists(), len(list(tmp_path.glob("*.instance")))) == (True, 1)
    heir = Instances(tmp_path)
    heir.enter((str(tmp_path / "y.sock"),))
    assert not socket.exists()
    assert heir.is_newest()
    assert len(list(tmp_path.glob("*.instance"))) == 1


def test_work_of_two_instances_does_not_overlap(tmp_path: Path) -> None:
    async def run() -> None:
        inside = 0

        async def work(instances: Instances) -> None:
            nonlocal inside
            for _ in range(10):
                async with instances.serialized():
                    inside += 1
                    assert inside == 1
                    await asyncio.sleep(0)
                    inside -= 1

        await asyncio.gather(
            *(work(instances) for instances in (Instances(tmp_path), Instances(tmp_path)) for _ in range(3))
        )

    asyncio.run(run())


# --- Settings -----------------------------------------------------------------------------------------------------

DRIVER = "gpu.example.com"


def test_sockets_are_where_a_kubelet_looks() -> None:
    settings = Settings.from_environment({"NODE_NAME": "n"})
    assert settings.sockets(DRIVER) == Sockets(
        service=Path("/var/lib/kubelet/plugins/gpu.example.com/dra.sock"),
        registration=Path("/var/lib/kubelet/plugins_registry/gpu.example.com-reg.sock"),
    )
    assert settings.cdi_dir == Path("/var/run/cdi")


def test_two_instances_have_sockets_of_their_own() -> None:
    settings = Settings.from_environment({"NODE_NAME": "n", "POD_UID": "0f-1"})
    assert settings.sockets(DRIVER) == Sockets(
        service=Path("/var/lib/kubelet/plugins/gpu.example.com/dra-0f-1.sock"),
        registration=Path("/var/lib/kubelet/plugins_registry/gpu.example.com-0f-1-reg.sock"),
    )


def test_a_socket_path_that_is_too_long_is_shortened() -> None:
    uid = "4f0c3b52-6ad1-4c39-9d10-30a9a3d5b0a3"
    long_driver = "a-rather-long-name-for-a-driver.hardware.example.com"
    paths = Settings(node_name="n", pod_uid=uid).sockets(long_driver)
    other = Settings(node_name="n", pod_uid=uid[::-1]).sockets(long_driver)
    assert max(len(os.fsencode(path)) for path in (paths.service, paths.registration)) <= 107
    assert paths.service != other.service
    assert paths.registration != other.registration


def test_a_socket_path_that_cannot_be_shortened_is_refused() -> None:
    deep = Path("/" + "d" * 90)
    with pytest.raises(BadDriverSettings, match="the path of a socket can have 107"):
        Settings(node_name="n", plugins_dir=deep).sockets(DRIVER)


def test_the_node_name_is_required() -> None:
    with pytest.raises(BadDriverSettings, match="NODE_NAME is not set"):
        Settings.from_environment({})
