"""The load of a campaign: clients that write, watch and use devices while processes are killed, and what they were told."""

from __future__ import annotations

import asyncio
import itertools
import json
import random
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from typing import Any, Final

from dralloc.client.http_transport import HttpTransport
from dralloc.client.kubeconfig import ConnectionConfig
from dralloc.client.transport import ClientRequest, TransportError, split_lines
from tests.campaign.checkers import (
    VALUE,
    DeviceLedger,
    Register,
    Violation,
    WatchJournal,
    revision_of,
)

WRITERS: Final = 6
WATCHES: Final = 3
PODS: Final = 10
PROGRESS_TIMEOUT_S: Final = 120.0
CLAIMS: Final = "/apis/resource.k8s.io/v1/resourceclaims"
NAMESPACED_CLAIMS: Final = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
TEMPLATES: Final = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaimtemplates"
POD_PATH: Final = "/api/v1/namespaces/default/pods"


@dataclass
class Figures:
    kills: dict[str, int] = field(default_factory=dict)
    kills_during_start: int = 0
    acknowledged: int = 0
    unknown: int = 0
    """Writes whose answer was lost with the process."""
    changes: int = 0
    resumed: int = 0
    allocations: int = 0
    seconds: float = 0.0

    def __str__(self) -> str:
        victims = ", ".join(f"{name} {count}" for name, count in sorted(self.kills.items()))
        return (
            f"{sum(self.kills.values())} kills ({victims}; {self.kills_during_start} during the start) in {self.seconds:.0f} s: "
            f"{self.acknowledged} acknowledged writes, 0 lost ({self.unknown} answers lost); "
            f"{self.allocations} allocations, 0 devices given twice; "
            f"{self.changes} changes on each of {WATCHES} watches, resumed {self.resumed} times, 0 gaps"
        )


class Answer:
    def __init__(self, code: int, body: bytes) -> None:
        self.code = code
        self.document: dict[str, Any] = json.loads(body) if body else {}


class Unanswered(Exception):
    """No answer, or one that says that the server cannot tell."""


class ServerClient:
    """Plain requests to one API server."""

    def __init__(self, url: str) -> None:
        self._transport = HttpTransport(ConnectionConfig(server=url))

    async def ask(self, method: str, path: str, document: Any = None, **query: str) -> Answer:
        """The answer; raises Unanswered."""
        body = b"" if document is None else json.dumps(document).encode()
        headers = {"Content-Type": "application/json"} if body else {}
        try:
            response = await self._transport.send(
                ClientRequest(method=method, path=path, query=query, headers=headers, body=body)
            )
        except TransportError as error:
            raise Unanswered(str(error)) from error
        if response.status >= 500 or response.status == 429:
            raise Unanswered(f"{response.status} {response.body.decode(errors='replace')}")
        return Answer(response.status, response.body)

    async def watch(self, path: str, revision: int) -> AsyncGenerator[dict[str, Any], None]:
        """Every event until the stream ends, however it ends."""
        query = {"watch": "1", "allowWatchBookmarks": "true", "resourceVersion": str(revision)}
        request = ClientRequest(method="GET", path=path, query=query)
        with suppress(TransportError):
            async with self._transport.stream(request) as stream:
                if stream.status == 200:
                    async for lines in split_lines(stream.pieces()):
                        for line in lines:
                            yield json.loads(line)

    async def close(self) -> None:
        await self._transport.close()


class Load:
    """What runs beside the kills: writers, pods, watches. `acknowledged` only grows while the cluster makes progress."""

    def __init__(self, servers: Sequence[ServerClient], rng: random.Random, figures: Figures) -> None:
        self._servers = servers
        self._rng = rng
        self._figures = figures
        self._progress = asyncio.Condition()
        self._numbers = itertools.count()
        self.acknowledged = 0
        self.registers = [Register(f"default/register-{number}") for number in range(WRITERS)]
        self.journals: list[WatchJournal] = []
        self.ledger = DeviceLedger(capacity={"nic": 10})
        self.ending = asyncio.Event()

    async def reach(self, acknowledged: int) -> None:
        async with asyncio.timeout(PROGRESS_TIMEOUT_S), self._progress:
            await self._progress.wait_for(lambda: self.acknowledged >= acknowledged)

    async def read(self, path: str, **query: str) -> Answer:
        """The answer of any server, however long it takes."""
        async with asyncio.timeout(PROGRESS_TIMEOUT_S):
            while True:
                try:
                    return await self.server().ask("GET", path, **query)
                except Unanswered:
                    await asyncio.sleep(0.02)

    def server(self) -> ServerClient:
        return self._rng.choice(self._servers)

    # --- writers ------------------------------------------------------------------------------------------------

    async def write(self, register: Register) -> None:
        """Creates, updates and deletes one object, and reads it again whenever an answer is missing."""
        name = register.key.partition("/")[2]
        while not self.ending.is_set():
            value: str | None = str(next(self._numbers))
            if register.value is None:
                method, path, document = "POST", NAMESPACED_CLAIMS, claim_document(name, value)
            elif self._rng.random() < 0.2:
                value = None
                method, path, document = "DELETE", f"{NAMESPACED_CLAIMS}/{name}", None
            else:
                method, path, document = "PUT", f"{NAMESPACED_CLAIMS}/{name}", claim_document(name, value)
                document["metadata"]["resourceVersion"] = str(register.revision)
            try:
                answer = await self.server().ask(method, path, document)
                if answer.code not in (200, 201) and not register.unknown:
                    raise Violation(f"{method} {register.key}: {answer.code} {answer.document}")
            except Unanswered:
                self._figures.unknown += 1
                register.unknown.append(value)
                answer = None
            if answer is not None and answer.code in (200, 201):
                register.acknowledge(value, None if value is None else revision_of(answer.document))
                async with self._progress:
                    self.acknowledged += 1
                    self._progress.notify_all()
                continue
            found = await self.read(f"{NAMESPACED_CLAIMS}/{name}")
            register.look(None if found.code == 404 else found.document)

    # --- pods ---------------------------------------------------------------------------------------------------

    async def come_and_go(self, number: int) -> None:
        """One pod after the other with a device; each is deleted when it was bound, or some time later."""
        for life in itertools.count():
            if self.ending.is_set():
                return
            name = f"pod-{number}-{life}"
            if await self.insist("POST", POD_PATH, pod_document(name, "gpu" if number % 2 else "nic")):
                for _ in range(self._rng.randrange(5, 40)):
                    await asyncio.sleep(0.1)
                    found = await self.read(f"{POD_PATH}/{name}")
                    if found.code == 404 or found.document["spec"].get("nodeName"):
                        break
                await self.insist("DELETE", f"{POD_PATH}/{name}", {"gracePeriodSeconds": 0})

    async def insist(self, method: str, path: str, document: Any) -> bool:
        while not self.ending.is_set():
            with suppress(Unanswered):
                answer = await self.server().ask(method, path, document)
                if answer.code in (200, 201, 202, 404, 409):
                    return True
                raise Violation(f"{method} {path}: {answer.code} {answer.document}")
            await asyncio.sleep(0.05)
        return False

    # --- watches ------------------------------------------------------------------------------------------------

    async def watch(self, journal: WatchJournal, ledger: DeviceLedger | None) -> None:
        """Follows the claims, resuming after every disconnect, until it is cancelled."""
        while True:
            async with aclosing(self.server().watch(CLAIMS, journal.revision)) as events:
                before = len(journal.changes)
                async for event in events:
                    change = journal.take(event)
                    if change is not None and ledger is not None:
                        ledger.take(change.type, event["object"])
            self._figures.resumed += len(journal.changes) > before
            await asyncio.sleep(0.02)


def claim_document(name: str, value: str | None) -> dict[str, Any]:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "annotations": {VALUE: value}},
        "spec": {"devices": {"requests": [_request("gpu")]}},
    }


def _request(sort: str) -> dict[str, Any]:
    return {"name": "r", "exactly": {"deviceClassName": f"{sort}.campaign.example.com"}}


def template_document(sort: str) -> dict[str, Any]:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": sort},
        "spec": {"spec": {"devices": {"requests": [_request(sort)]}}},
    }


def pod_document(name: str, sort: str) -> dict[str, Any]:
    container = {"name": "c", "image": "none", "resources": {"claims": [{"name": "d"}]}}
    claims = [{"name": "d", "resourceClaimTemplateName": sort}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"schedulerName": "dralloc", "containers": [container], "resourceClaims": claims},
    }
