"""No spelling of a path gets around authorization: over a socket, as a client that encodes paths as it likes."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Iterator

from dralloc.server.access.users import ADMINISTRATOR, AUTHENTICATED, NODES, User
from dralloc.server.http.application import ApiApplication
from dralloc.server.http.authentication import Authenticator
from dralloc.server.http.listener import ListenAddress, listen
from tests.support.api_server import TOKEN, api_server

NODE = User(name="system:node:n1", groups=(NODES, AUTHENTICATED))
FORBIDDEN = (
    "/api/v1/namespaces/default/secrets/s",
    "/api/v1/namespaces/default/secrets",
    "/api/v1/secrets",
    "/api/v1/pods",
    "/api/v1/nodes/n2",
    "/apis/resource.k8s.io/v1/resourceslices",
    "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims",
    "/metrics",
    "/debug/pprof/",
)


def spellings(path: str, chance: random.Random) -> Iterator[str]:
    yield path
    yield path + "/"
    yield "/" + path
    yield path.replace("/api", "/api/v1/watch/../..", 1)
    yield path.replace("/v1/", "/v1/watch/", 1)
    yield path.replace("/v1/", "/v1/proxy/", 1)
    yield path.upper()
    yield path + "?watch=1&timeoutSeconds=1"
    yield path + "?fieldSelector=metadata.name%3Dn1"
    yield path + "?fieldSelector=spec.nodeName%21%3Dn1"
    yield path + "?fieldSelector=spec.nodeName%3Dn2&fieldSelector=spec.nodeName%3Dn1"
    yield path + "?fieldselector=spec.nodeName%3Dn1"
    for _ in range(40):
        letters = []
        for letter in path:
            match chance.randrange(12):
                case 0:
                    letters.append(f"%{ord(letter):02X}")
                case 1 if letter == "/":
                    letters.append("//")
                case 2 if letter == "/":
                    letters.append("/./")
                case 3 if letter == "/":
                    letters.append("%2F")
                case 4 if letter == "/":
                    letters.append("/x/../")
                case _:
                    letters.append(letter)
        yield "".join(letters)


def test_a_refused_path_is_refused_in_every_spelling() -> None:
    async def answer(port: int, token: str, method: str, target: str, body: bytes = b"") -> int:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        head = f"{method} {target} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n"
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        line = await reader.readline()
        writer.close()
        await writer.wait_closed()
        return int(line.split()[1])

    async def main() -> None:
        chance = random.Random(7)
        async with (
            api_server() as server,
            listen(ApiApplication(server, Authenticator({TOKEN: ADMINISTRATOR, "node": NODE})), ListenAddress()) as url,
        ):
            port = int(url.rpartition(":")[2])
            secret = json.dumps({"metadata": {"name": "s"}, "stringData": {"a": "b"}}).encode()
            assert await answer(port, TOKEN, "POST", "/api/v1/namespaces/default/secrets", secret) == 201
            other = json.dumps({"metadata": {"name": "n2"}}).encode()
            assert await answer(port, TOKEN, "POST", "/api/v1/nodes", other) == 201
            served = 0
            for path in FORBIDDEN:
                for spelling in spellings(path, chance):
                    for method in ("GET", "DELETE"):
                        code = await answer(port, "node", method, spelling)
                        assert code in (400, 403, 404, 405), (method, spelling, code)
                    served += await answer(port, TOKEN, "GET", spelling) == 200
            assert await answer(port, "wrong", "FOO", "/api/v1/pods") == 401
            assert await answer(port, "node", "FOO", "/api/v1/pods") == 403
            assert await answer(port, TOKEN, "FOO", "/api/v1/pods") == 405
            # Some spellings are served to an administrator, so that the refusals above mean something.
            assert served > 4 * len(FORBIDDEN)

    asyncio.run(main())
