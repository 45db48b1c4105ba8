"""How long a well-behaved client waits while another one floods, sends the most expensive requests, or never reads.

The server runs with TLS as users run it; both clients have a token of their own. Attackers are processes of their own:

    python -m bench.hostile_clients ATTACK PORT TOKEN CA
"""

from __future__ import annotations

import asyncio
import json
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from bench.measurement import Figure, benchmark
from tests.support.server_process import ServerProcess, server_process

SECONDS = 5.0
PAUSE_S = 0.01
TARGET_MS = 100.0
STORED = 3_000
WATCHES = 3_900
WRITES = 20
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
PODS = "/api/v1/namespaces/default/pods"
SLICES = "/apis/resource.k8s.io/v1/resourceslices"
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@benchmark("hostile_clients")
def measure_hostile_clients(names: tuple[str, ...] = ()) -> Iterator[Figure]:
    with tempfile.TemporaryDirectory() as directory:
        tokens = Path(directory) / "tokens.csv"
        tokens.write_text('good,good,1,"system:masters"\nbad,bad,2,"system:masters"\n')
        with server_process(Path(directory) / "data", "--token-file", str(tokens)) as server:
            site = Site(server, Path(directory) / "data" / "tls" / "ca.crt")
            asyncio.run(site.fill())
            yield from asyncio.run(site.measure_watches()) if not names or "watches" in names else []
            yield Figure("GET p99, no other client", asyncio.run(site.p99_ms()), "ms", TARGET_MS)
            for name in names or (*REQUESTS, *CONNECTIONS):
                if name in REQUESTS or name in CONNECTIONS:
                    with site.attacked(name):
                        yield Figure(
                            f"GET p99, while another client: {name}", asyncio.run(site.p99_ms()), "ms", TARGET_MS
                        )


class Site:
    def __init__(self, server: ServerProcess, authority: Path) -> None:
        self.port = int(server.url.rsplit(":", 1)[1])
        self.authority = authority

    async def fill(self) -> None:
        streams = await connect(self.port, self.authority)
        for number in range(STORED):
            assert await ask(streams, request("POST", CLAIMS, "bad", claim(f"c-{number:05}"))) == 201
        code = await ask(streams, request("POST", PODS, "bad", json.dumps(large_pod()).encode()))
        assert code == 201, code
        streams[1].close()

    async def p99_ms(self) -> float:
        """The 99th percentile of a client that sends one request after the other."""
        streams = await connect(self.port, self.authority)
        taken: list[float] = []
        end = time.perf_counter() + SECONDS
        while time.perf_counter() < end:
            started = time.perf_counter()
            assert await ask(streams, request("GET", f"{CLAIMS}/c-00007", "good")) == 200
            taken.append(time.perf_counter() - started)
            await asyncio.sleep(PAUSE_S)
        streams[1].close()
        return sorted(taken)[int(len(taken) * 0.99)] * 1000

    @contextmanager
    def attacked(self, name: str) -> Iterator[None]:
        """Another client does this inside the block."""
        command = [sys.executable, "-m", "bench.hostile_clients", name, str(self.port), "bad", str(self.authority)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as attacker:
            assert attacker.stdout is not None
            try:
                assert attacker.stdout.readline() == "attacking\n"
                yield
            finally:
                attacker.kill()

    async def measure_watches(self) -> list[Figure]:
        with self.attacked("watches"):
            streams = await connect(self.port, self.authority)
            started = time.perf_counter()
            for number in range(WRITES):
                assert await ask(streams, request("POST", CLAIMS, "good", claim(f"w-{number}"))) == 201
            written = time.perf_counter() - started
            p99_ms = await self.p99_ms()
            streams[1].close()
        return [
            Figure(f"{WRITES} writes with {WATCHES:,} watches", written, "s", 1.0),
            Figure(f"GET p99 with {WATCHES:,} watches", p99_ms, "ms", TARGET_MS),
        ]


async def connect(port: int, authority: Path, *, tls: bool = True) -> Streams:
    context = ssl.create_default_context(cafile=str(authority)) if tls else None
    return await asyncio.open_connection("127.0.0.1", port, ssl=context, limit=1 << 26)


def request(method: str, target: str, token: str, body: bytes = b"", *headers: str) -> bytes:
    lines = [f"{method} {target} HTTP/1.1", "host: localhost", f"authorization: Bearer {token}", *headers]
    if not any(header.startswith("content-type") for header in headers):
        lines.append("content-type: application/json")
    return "\r\n".join([*lines, f"content-length: {len(body)}", "", ""]).encode() + body


async def ask(streams: Streams, content: bytes) -> int:
    reader, writer = streams
    writer.write(content)
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    if b"content-length: " in head:
        await reader.readexactly(int(head.split(b"content-length: ", 1)[1].split(b"\r\n", 1)[0]))
    else:
        while size := int(await reader.readline(), 16):
            await reader.readexactly(size + 2)
        await reader.readline()
    return int(head.split(b" ", 2)[1])


# --- attacks ------------------------------------------------------------------------------------------------

BODY_MAX = 3 * 1024 * 1024


def claim(name: str) -> bytes:
    exactly = {"deviceClassName": "gpu", "selectors": [{"cel": {"expression": 'device.driver == "gpu.example.com"'}}]}
    spec = {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}
    return json.dumps({"metadata": {"name": name, "labels": {"app": "x"}}, "spec": spec}).encode()


def large_pod(name: str = "large", size: int = 1_000_000) -> dict[str, Any]:
    env = [{"name": f"VARIABLE_{number:06}", "value": "x" * 20} for number in range(size // 60)]
    return {"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "x", "env": env}]}}


def _apply_many_fields() -> bytes:
    fields = {f"field-{number:06}": number for number in range(50_000)}
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "applied"},
        "spec": {"containers": [{"name": "c", "image": "x"}], "more": fields},
    }
    return request(
        "PATCH",
        f"{PODS}/applied?fieldManager=me&force=true",
        "bad",
        json.dumps(body).encode(),
        "content-type: application/apply-patch+yaml",
    )


def _expensive_selectors() -> bytes:
    part = 'device.attributes["gpu.example.com"].model.matches("a.*b") && '
    expression = (part * 150)[: 10 * 1024 - 60].rpartition("&&")[0]
    selectors = [{"cel": {"expression": f"{expression} && {number} > 0"}} for number in range(32)]
    requests = [
        {"name": f"r{index}", "exactly": {"deviceClassName": "gpu", "selectors": selectors}} for index in range(8)
    ]
    return request(
        "POST",
        CLAIMS,
        "bad",
        json.dumps({"metadata": {"name": "cel"}, "spec": {"devices": {"requests": requests}}}).encode()[:BODY_MAX],
    )


def _many_faults() -> bytes:
    devices = [{"name": f"NOT/VALID {number}", "attributes": {"Bad Name": {}}} for number in range(45_000)]
    body = {
        "metadata": {"name": "faults"},
        "spec": {"driver": "d", "nodeName": "n", "pool": {"name": "p", "resourceSliceCount": 1}, "devices": devices},
    }
    return request("POST", SLICES, "bad", json.dumps(body).encode()[:BODY_MAX])


def _patch_operations() -> bytes:
    operations: list[Any] = [
        {"op": "test", "path": "/spec/containers/0/env/9", "value": {"name": "VARIABLE_000009", "value": "x" * 20}}
    ]
    operations += [{"op": "move", "from": "/spec/containers/0/env/0", "path": "/spec/containers/0/env/16000"}] * 4999
    operations += [{"op": "copy", "from": "/spec/containers/0/env/0", "path": "/spec/containers/0/env/0"}] * 5000
    return request(
        "PATCH",
        f"{PODS}/large?dryRun=All",
        "bad",
        json.dumps(operations).encode(),
        "content-type: application/json-patch+json",
    )


def _strategic_patch() -> bytes:
    env = [{"name": f"VARIABLE_{number:06}", "value": "y"} for number in range(30_000, 0, -1)]
    body = {"spec": {"containers": [{"name": "c", "env": env}]}}
    return request(
        "PATCH",
        f"{PODS}/large?dryRun=All",
        "bad",
        json.dumps(body).encode(),
        "content-type: application/strategic-merge-patch+json",
    )


def _yaml_body() -> bytes:
    lines = ["metadata: {name: y}", "spec:", "  containers:", "  - name: c", "    image: x", "    env:"]
    lines += [f"    - {{name: V{number:06}, value: x}}" for number in range(80_000)]
    return request(
        "POST", f"{PODS}?dryRun=All", "bad", "\n".join(lines).encode()[:BODY_MAX], "content-type: application/yaml"
    )


def _protobuf_body() -> bytes:
    def member(number: int, content: bytes) -> bytes:
        length, size = bytearray(), len(content)
        while size >= 0x80:
            length.append(size & 0x7F | 0x80)
            size >>= 7
        return bytes([number << 3 | 2, *length, size]) + content

    env = b"".join(member(7, member(1, b"V%06d" % number) + member(2, b"x")) for number in range(200_000))
    content = member(1, member(1, b"p")) + member(2, member(2, member(1, b"c") + member(2, b"x") + env))
    body = b"k8s\0" + member(1, member(1, b"v1") + member(2, b"Pod")) + member(2, content)
    return request(
        "POST", f"{PODS}?dryRun=All", "bad", body[:BODY_MAX], "content-type: application/vnd.kubernetes.protobuf"
    )


def _batch(write: dict[str, Any], count: int) -> bytes:
    return request("POST", "/dralloc/v1/batch", "bad", json.dumps({"requests": [write] * count}).encode()[:BODY_MAX])


def _patch_in_batch(path: str) -> dict[str, Any]:
    return {
        "method": "PATCH",
        "path": path,
        "query": {"dryRun": "All"},
        "contentType": "application/merge-patch+json",
        "body": {"metadata": {"labels": {"a": "b"}}},
    }


def _long_selector() -> str:
    return "labelSelector=" + ",".join(f"!k{number}" for number in range(7000))


def _long_field_selector() -> str:
    return "fieldSelector=" + ",".join(f"metadata.name!=n{number}" for number in range(3000))


def _impersonating() -> bytes:
    extras = [f"impersonate-extra-example.com/{number}: x" for number in range(1300)]
    return request("GET", f"{CLAIMS}/c-00001", "bad", b"", "impersonate-user: x", *extras)


DOUBLING = [{"op": "add", "path": "/x", "value": ["y"]}, *[{"op": "copy", "from": "/x", "path": "/x/-"}] * 40]

# The most expensive requests of each kind that we found.
REQUESTS: dict[str, Callable[[], bytes]] = {
    "gets": lambda: request("GET", f"{CLAIMS}/c-00001", "bad"),
    "writes": lambda: request("PATCH", f"{CLAIMS}/c-00001", "bad", json.dumps({"metadata": {"labels": {"a": str(time.time_ns())}}}).encode(), "content-type: application/merge-patch+json"),
    "lists": lambda: request("GET", CLAIMS, "bad"),
    "tables": lambda: request("GET", CLAIMS, "bad", b"", "accept: application/json;as=Table;v=v1;g=meta.k8s.io"),
    "lists in another version": lambda: request("GET", CLAIMS.replace("/v1/", "/v1beta1/"), "bad"),
    "lists with a long selector": lambda: request("GET", f"{CLAIMS}?{_long_selector()}", "bad"),
    "lists with a long field selector": lambda: request("GET", f"{CLAIMS}?{_long_field_selector()}", "bad"),
    "watches with a long selector": lambda: request("GET", f"{CLAIMS}?watch=1&timeoutSeconds=1&{_long_selector()}", "bad"),
    "first events of watches": lambda: request("GET", f"{CLAIMS}?watch=1&timeoutSeconds=1", "bad"),
    "impersonation with 1,300 extras": _impersonating,
    "an Accept header of 8,000 types": lambda: request("GET", f"{CLAIMS}/c-00001", "bad", b"", "accept: " + ",".join(f"a/{number}" for number in range(8000))),
    "a large object as YAML": lambda: request("GET", f"{PODS}/large", "bad", b"", "accept: application/yaml"),
    "a large object as metadata": lambda: request("GET", f"{PODS}/large", "bad", b"", "accept: application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"),
    "watches of a large object as protobuf": lambda: request("GET", f"{PODS}?watch=1&timeoutSeconds=1", "bad", b"", "accept: application/vnd.kubernetes.protobuf;stream=watch"),
    "lists of large objects with a field selector": lambda: request("GET", f"{PODS}?fieldSelector=spec.nodeName%3Dn", "bad"),
    "bindings of a large object": lambda: request("POST", f"{PODS}/large/binding?dryRun=All", "bad", b'{"target":{"kind":"Node","name":"n"}}'),
    "a large object as a table": lambda: request("GET", f"{PODS}/large", "bad", b"", "accept: application/json;as=Table;v=v1;g=meta.k8s.io"),
    "a list as YAML": lambda: request("GET", f"{CLAIMS}?limit=500", "bad", b"", "accept: application/yaml"),
    "3 MB of [": lambda: request("POST", CLAIMS, "bad", b"[" * BODY_MAX),
    "3 MB of [ as YAML": lambda: request("POST", CLAIMS, "bad", b"[" * BODY_MAX, "content-type: application/yaml"),
    "balanced brackets": lambda: request("POST", CLAIMS, "bad", b"[" * (BODY_MAX // 2) + b"]" * (BODY_MAX // 2)),
    "a million empty objects": lambda: request("POST", PODS, "bad", b'{"spec":[' + b"{}," * (BODY_MAX // 3 - 10) + b"{}]}"),
    "a million numbers": lambda: request("POST", PODS, "bad", b'{"spec":[' + b"1.5," * (BODY_MAX // 4 - 10) + b"1]}"),
    "a large JSON object": lambda: request("POST", f"{PODS}?dryRun=All", "bad", json.dumps(large_pod("j", 2_900_000)).encode()[:BODY_MAX]),
    "a large YAML object": _yaml_body,
    "a large protobuf object": _protobuf_body,
    "apply of 50,000 fields": _apply_many_fields,
    "a JSON patch of 10,000 operations": _patch_operations,
    "a JSON patch that doubles a list": lambda: request("PATCH", f"{CLAIMS}/c-00001", "bad", json.dumps(DOUBLING).encode(), "content-type: application/json-patch+json"),
    "wrong tokens": lambda: request("GET", CLAIMS, "e30." * 200),
    "a strategic merge patch": _strategic_patch,
    "expensive selectors": _expensive_selectors,
    "many faults": _many_faults,
    "batches of 128 writes": lambda: _batch(_patch_in_batch(f"{CLAIMS}/c-00001"), 128),
    "batches of 128 writes of a large object": lambda: _batch(_patch_in_batch(f"{PODS}/large"), 128),
    "a batch of 80,000 writes": lambda: _batch({"method": "", "path": "", "query": {}}, 80_000),
}  # fmt: skip


async def repeat(port: int, authority: Path, make: Callable[[], bytes], connections: int) -> None:
    content = make()

    async def run() -> None:
        while True:
            with suppress(OSError, asyncio.IncompleteReadError):
                streams = await connect(port, authority)
                while True:
                    await ask(streams, content if len(content) > 2000 else make())

    await asyncio.gather(*(run() for _ in range(connections)))


async def stay_silent(port: int, authority: Path) -> None:
    """Connections without a handshake, opened again when the server closes them."""

    async def run() -> None:
        while True:
            with suppress(OSError):
                reader, writer = await connect(port, authority, tls=False)
                while await reader.read(1000):
                    pass
                writer.close()
            await asyncio.sleep(0.1)

    await asyncio.gather(*(run() for _ in range(1500)))


async def never_read(port: int, authority: Path) -> None:
    async def run() -> None:
        while True:
            with suppress(OSError):
                _, writer = await connect(port, authority)
                writer.transport.pause_reading()  # type: ignore[attr-defined]
                writer.write(request("GET", CLAIMS, "bad") * 20)
                await asyncio.sleep(30)
                writer.close()

    await asyncio.gather(*(run() for _ in range(100)))


async def pipeline(port: int, authority: Path) -> None:
    async def run() -> None:
        while True:
            with suppress(OSError):
                reader, writer = await connect(port, authority)
                writer.write(b"GET /version HTTP/1.1\r\n\r\n" * 20_000)
                while await reader.read(1 << 16):
                    pass
                writer.close()

    await asyncio.gather(*(run() for _ in range(10)))


async def watch(port: int, authority: Path) -> None:
    """Many watches of one collection, which are read."""
    ready = 0
    opening = asyncio.Semaphore(256)
    context = ssl.create_default_context(cafile=str(authority))

    async def run() -> None:
        nonlocal ready
        async with opening:
            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
            writer.write(request("GET", f"{CLAIMS}?watch=1&resourceVersion={revision}", "bad"))
            await reader.readuntil(b"\r\n\r\n")
        ready += 1
        if ready == WATCHES:
            announce()
        while await reader.read(1 << 16):
            pass

    streams = await connect(port, authority)
    streams[1].write(request("GET", f"{CLAIMS}?limit=1", "bad"))
    head = await streams[0].readuntil(b"\r\n\r\n")
    length = int(head.split(b"content-length: ", 1)[1].split(b"\r\n", 1)[0])
    revision = json.loads(await streams[0].readexactly(length))["metadata"]["resourceVersion"]
    await asyncio.gather(*(run() for _ in range(WATCHES)))


CONNECTIONS: dict[str, Callable[[int, Path], Awaitable[None]]] = {
    "1,500 connections without a handshake": stay_silent,
    "never reads": never_read,
    "pipelines requests": pipeline,
}


def announce() -> None:
    sys.stdout.write("attacking\n")
    sys.stdout.flush()


def attack(name: str, port: int, authority: Path) -> None:
    if name == "watches":
        asyncio.run(watch(port, authority))
        return
    announce()
    if name in CONNECTIONS:
        asyncio.run(CONNECTIONS[name](port, authority))  # type: ignore[arg-type]
    else:
        few = name not in ("gets", "writes", "lists")
        asyncio.run(repeat(port, authority, REQUESTS[name], 4 if few else 128))


if __name__ == "__main__":
    attack(sys.argv[1], int(sys.argv[2]), Path(sys.argv[4]))
