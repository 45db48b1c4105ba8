"""`dralloc apiserver` as a process: recorded conversations, signals, crashes and errors at start."""

from __future__ import annotations

import asyncio
import json
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from dralloc import connect as api
from dralloc.conformance.vector_family import VectorOptions, VectorVerdict, load_family, read_lines
from dralloc.kube.core_v1 import ConfigMap, Namespace
from dralloc.server.server_process import BadServerSettings, ServerSettings, run_server
from dralloc.server.store.store_url import open_store
from tests.support.local_api import CLAIMS, claim_document
from tests.support.ports import free_port
from tests.support.server_process import ServerProcess, server_process
from tests.support.small_disk import SmallDisk

pytestmark = pytest.mark.slow

VECTORS = Path(__file__).parents[1] / "vectors"
# Other tests pass every line to admission; these test the way over HTTP.
STRIDE = 5


def connect(server: ServerProcess) -> HTTPConnection:
    host, _, port = server.url.removeprefix("http://").rpartition(":")
    return HTTPConnection(host, int(port), timeout=60)


def get(server: ServerProcess, path: str) -> Any:
    with closing(connect(server)) as connection:
        connection.request("GET", path)
        return json.loads(connection.getresponse().read())


def post(server: ServerProcess, claim: Mapping[str, Any]) -> Any:
    with closing(connect(server)) as connection:
        connection.request("POST", CLAIMS, json.dumps(claim))
        return json.loads(connection.getresponse().read())


def disagreements(family: str, file: str, server: ServerProcess, stride: int = 1) -> list[VectorVerdict]:
    options = VectorOptions(server=server.url, kubeconfig=server.kubeconfig)
    verdicts = load_family(family).run(read_lines(VECTORS / file)[::stride], options)
    return [verdict for verdict in verdicts if verdict.differences]


# --- recorded answers ---------------------------------------------------------------------------------------


def test_the_recorded_conversation_passes_over_tls(tmp_path: Path) -> None:
    with server_process(tmp_path) as server:
        assert disagreements("http", "http.jsonl.gz", server) == []


def test_responses_to_recorded_writes_equal_the_recording(tmp_path: Path) -> None:
    with server_process(tmp_path, "--insecure-http", "--store", "memory://") as server:
        assert disagreements("api", "api.jsonl.gz", server, STRIDE) == []


def test_responses_to_recorded_writes_with_a_feature_off_equal_the_recording(tmp_path: Path) -> None:
    gates = ("--feature-gates", "DRAConsumableCapacity=false")
    with server_process(tmp_path, "--insecure-http", "--store", "memory://", *gates) as server:
        assert disagreements("api", "api-consumable-capacity-off.jsonl.gz", server, STRIDE) == []


# --- ends ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_a_signal_ends_watches_cleanly(tmp_path: Path, number: signal.Signals) -> None:
    with server_process(tmp_path, "--insecure-http") as server:
        with closing(connect(server)) as watching:
            watching.request("GET", f"{CLAIMS}?watch=1")
            answer = watching.getresponse()
            assert post(server, claim_document())["metadata"]["name"] == "c"
            assert b'"type":"ADDED"' in answer.readline()
            server.process.send_signal(number)
            # A stream that is cut off raises; this one ends with its last chunk.
            assert answer.read() == b""
        assert server.process.wait(timeout=60) == 0


def test_a_restart_keeps_objects_credentials_and_revisions(tmp_path: Path) -> None:
    with server_process(tmp_path, "--insecure-http") as server:
        created = post(server, claim_document("kept"))
    token = (tmp_path / "admin.token").read_text()
    with server_process(tmp_path, "--insecure-http") as server:
        assert get(server, f"{CLAIMS}/kept") == created
    assert (tmp_path / "admin.token").read_text() == token


def test_a_full_disk_is_reported_and_the_server_recovers(tmp_path: Path) -> None:
    with server_process(tmp_path, "--insecure-http") as server:
        pid = server.process.pid
        before = resource.prlimit(pid, resource.RLIMIT_FSIZE)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (256 * 1024, before[1]))
        stored: list[str] = []
        filling = {"filling": "x" * 20_000}
        for number in range(1000):
            answer = post(server, claim_document(f"c{number}", annotations=filling))
            if answer["kind"] == "Status":
                break
            stored.append(answer["metadata"]["name"])
        assert (answer["code"], answer["reason"]) == (503, "ServiceUnavailable")
        assert "store" in answer["message"]
        assert sorted(item["metadata"]["name"] for item in get(server, CLAIMS)["items"]) == sorted(stored)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, before)
        stored.append(post(server, claim_document("there-is-room-again"))["metadata"]["name"])
    with server_process(tmp_path, "--insecure-http") as server:
        assert sorted(item["metadata"]["name"] for item in get(server, CLAIMS)["items"]) == sorted(stored)


def test_a_restart_on_a_full_disk_serves_what_is_there(tmp_path: Path) -> None:
    disk = SmallDisk(tmp_path / "disk")
    # Chosen here: another port would be a change of the kubeconfig.
    options = ("--insecure-http", "--port", str(free_port()))
    try:
        with server_process(disk.directory, *options) as server:
            created = post(server, claim_document("kept"))
            server.process.kill()
        disk.fill()
        with server_process(disk.directory, *options) as server:
            assert get(server, f"{CLAIMS}/kept") == created
            disk.free()
            assert post(server, claim_document("later"))["metadata"]["name"] == "later"
    finally:
        disk.remove()


def test_a_restart_on_a_full_disk_publishes_no_authority(tmp_path: Path) -> None:
    disk = SmallDisk(tmp_path / "disk")
    options = ("--port", str(free_port()))
    name = "extension-apiserver-authentication"
    try:
        with server_process(disk.directory, *options) as server, api(server.kubeconfig) as client:
            client.delete(ConfigMap, name, namespace="kube-system")
            server.process.kill()
        disk.fill()
        with server_process(disk.directory, *options) as server, api(server.kubeconfig) as client:
            assert [each.metadata.name for each in client.list(Namespace)]
        disk.free()
        with server_process(disk.directory, *options) as server, api(server.kubeconfig) as client:
            pem = (disk.directory / "tls" / "ca.crt").read_text()
            assert (client.get(ConfigMap, name, namespace="kube-system").data or {})["client-ca-file"] == pem
    finally:
        disk.remove()


# --- what keeps it from starting ----------------------------------------------------------------------------


def refused(directory: Path, *options: str) -> str:
    """The error output of a command that cannot start."""
    command = [sys.executable, "-m", "dralloc", "apiserver", "--data-dir", str(directory), *options]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 2, ended
    assert "Traceback" not in ended.stderr
    return ended.stderr


def test_the_error_names_a_port_in_use(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        assert f"127.0.0.1:{taken.getsockname()[1]}" in refused(tmp_path, "--port", str(taken.getsockname()[1]))


def test_a_server_that_lost_writes_starts_only_if_told_to(tmp_path: Path) -> None:
    with server_process(tmp_path, "--insecure-http") as server:
        known = int(post(server, claim_document("lost"))["metadata"]["resourceVersion"])
        server.process.kill()
    (tmp_path / "state.db-wal").unlink()
    said = refused(tmp_path, "--port", "0")
    assert f"writes up to revision {known} were acknowledged" in said
    assert "write-ahead log state.db-wal is missing or damaged" in said
    with server_process(tmp_path, "--insecure-http", "--accept-lost-writes") as server:
        listed = get(server, CLAIMS)
        assert (listed["items"], int(listed["metadata"]["resourceVersion"]) > known) == ([], True)
        assert get(server, f"{CLAIMS}?watch=1&resourceVersion={known}")["object"]["code"] == 410
    with server_process(tmp_path, "--insecure-http"):
        pass


def test_a_used_directory_without_a_store_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def start() -> None:
        async with run_server(ServerSettings(data_dir=tmp_path, port=0, insecure_http=True)):
            pass

    asyncio.run(start())
    asyncio.run(start())
    assert "has no state.db" not in caplog.text
    for file in tmp_path.glob("state.db*"):
        file.unlink()
    asyncio.run(start())
    assert f"{tmp_path} was used before, and has no state.db" in caplog.text


def test_a_corrupt_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "state.db").write_bytes(b"this is no database" * 1000)
    assert "state.db" in refused(tmp_path, "--port", "0")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--store", "nope://x"), "nope"),
        (("--feature-gates", "Nope=true"), "Nope"),
        (("--token-file", "/nowhere/tokens"), "/nowhere/tokens"),
        (("--insecure-http", "--bind", "0.0.0.0"), "plain http"),
    ],
)
def test_invalid_settings_are_refused(tmp_path: Path, options: tuple[str, ...], said: str) -> None:
    assert said in refused(tmp_path, *options)


def test_a_store_with_objects_of_another_program_is_refused(tmp_path: Path) -> None:
    """As the etcd of a Kubernetes cluster: its keys are like ours, and its objects are not."""

    async def start() -> None:
        settings = ServerSettings(data_dir=tmp_path, port=0, insecure_http=True)
        async with await open_store(settings.store_url) as store:
            before = await store.create("/registry/apiregistration.k8s.io/apiservices/v1.", b"k8s\0")
        with pytest.raises(BadServerSettings, match=r"objects of another program, such as /registry/apiregistration"):
            async with run_server(settings):
                pass
        async with await open_store(settings.store_url) as store:
            assert (await store.list_prefix("")).records == (before,)

    asyncio.run(start())
