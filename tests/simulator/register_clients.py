"""Clients that read and write leases over the faulty network, so that the answers to all requests can be checked together."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from math import inf
from random import Random
from typing import Any, Final

import msgspec

from dralloc.client.transport import ClientRequest, ClientResponse, Transport, TransportError
from tests.simulator.linearizability import ABSENT, Answer, RegisterRequest, is_linearizable

COLLECTION: Final = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
REGISTERS: Final = 4
CLIENTS: Final = 3
PAUSE_MAX_S: Final = 20.0
JSON: Final = {"Content-Type": "application/json"}
# Checked whenever a register has this many requests: the search stays short.
REQUESTS_MAX: Final = 60
# Longer than any request is on its way: it is late, its server is paused, and then etcd.
UNDER_WAY_MAX_S: Final = 300.0


class RegisterHistory:
    """The requests of all clients, by register."""

    def __init__(self) -> None:
        self.violations: list[str] = []
        self._requests: defaultdict[str, list[RegisterRequest]] = defaultdict(list)
        self._initial: dict[str, int] = {}
        self._in_flight: Counter[str] = Counter()
        self._values = 0
        self._epoch = 0

    @property
    def epoch(self) -> int:
        return self._epoch

    def new_value(self) -> int:
        self._values += 1
        return self._values

    def call(self, name: str, request: RegisterRequest) -> RegisterRequest:
        requests = self._requests[name]
        if len(requests) >= REQUESTS_MAX and not self._in_flight[name]:
            self._conclude(name, requests)
        self._requests[name].append(request)
        self._in_flight[name] += 1
        return request

    def end(self, name: str) -> None:
        """A client got its answer, or gave up."""
        self._in_flight[name] -= 1

    def restore(self, now: float) -> None:
        """A back-up was restored: what comes next is a history of its own, in which writes still arrive that are under way."""
        self.check()
        self._epoch += 1
        for name, requests in self._requests.items():
            self._requests[name] = [
                request for request in _unanswered_writes(requests) if request.called > now - UNDER_WAY_MAX_S
            ]
        self._initial.clear()

    def check(self) -> None:
        for name, requests in self._requests.items():
            if not self._explained(name, requests):
                self.violations.append(f"the requests to lease {name} are not linearizable: {_list(requests)}")

    def _conclude(self, name: str, requests: list[RegisterRequest]) -> None:
        """Check the requests so far; the last read becomes the start of those that follow."""
        last = requests[-1]
        answered = max((request.returned for request in requests[:-1] if request.returned < inf), default=0.0)
        if not (last.is_read and last.answer is Answer.DONE and answered < last.called):
            return
        if not self._explained(name, requests):
            self.violations.append(f"the requests to lease {name} are not linearizable: {_list(requests)}")
        # Requests without an answer may still take effect.
        self._requests[name] = list(_unanswered_writes(requests))
        self._initial[name] = last.value
        for request in self._requests[name]:
            request.called = last.returned

    def _explained(self, name: str, requests: list[RegisterRequest]) -> bool:
        if name in self._initial:
            return is_linearizable(requests, self._initial[name])
        # After a restore the start is unknown: any value that was seen, or one that was not.
        starts = {
            ABSENT,
            -1,
            *(request.value for request in requests if request.is_read),
            *(r.expected for r in requests),
        }
        return any(is_linearizable(requests, start) for start in sorted(starts))


def _unanswered_writes(requests: Iterable[RegisterRequest]) -> Iterator[RegisterRequest]:
    yield from (request for request in requests if request.answer is Answer.UNKNOWN and not request.is_read)


class RegisterClient:
    """One client: it reads a register, and writes what it last read or guesses."""

    def __init__(self, transport: Transport, random: Random, history: RegisterHistory) -> None:
        self._transport = transport
        self._random = random
        self._history = history
        # The last state that it saw of each register: value and resource version.
        self._seen: dict[str, tuple[int, str]] = {}
        self._epoch = 0

    async def run(self) -> None:
        while True:
            await asyncio.sleep(self._random.random() * PAUSE_MAX_S)
            await self._act(f"register-{self._random.randrange(REGISTERS)}")

    async def _act(self, name: str) -> None:
        if self._epoch != self._history.epoch:
            self._epoch, self._seen = self._history.epoch, {}
        value, version = self._seen.get(name, (ABSENT, ""))
        draw, now, epoch = self._random.random(), asyncio.get_running_loop().time, self._history.epoch
        if draw < 0.4:
            request = RegisterRequest(called=now(), is_read=True)
            sent = ClientRequest(method="GET", path=f"{COLLECTION}/{name}")
        elif not version:
            request = RegisterRequest(called=now(), value=self._history.new_value())
            sent = _write("POST", COLLECTION, name, request.value)
        elif draw < 0.85:
            request = RegisterRequest(called=now(), expected=value, value=self._history.new_value())
            sent = _write("PUT", f"{COLLECTION}/{name}", name, request.value, version)
        else:
            request = RegisterRequest(called=now(), expected=value)
            body = msgspec.json.encode({"preconditions": {"resourceVersion": version}})
            sent = ClientRequest(method="DELETE", path=f"{COLLECTION}/{name}", headers=JSON, body=body)
        self._history.call(name, request)
        try:
            response = await self._transport.send(sent)
        except TransportError:
            return
        finally:
            self._history.end(name)
        if epoch != self._history.epoch:
            return
        self._take(name, request, response, now())

    def _take(self, name: str, request: RegisterRequest, response: ClientResponse, now: float) -> None:
        match response.status:
            case 200 | 201:
                request.answer = Answer.DONE
                document = msgspec.json.decode(response.body)
                if document["kind"] == "Lease" and (request.is_read or request.value):
                    value = int(document["spec"]["holderIdentity"])
                    if not request.is_read and value != request.value:
                        self._history.violations.append(f"lease {name}: wrote {request.value}, the answer has {value}")
                    request.value = value
                    self._seen[name] = (value, document["metadata"]["resourceVersion"])
                else:
                    self._seen.pop(name, None)
            case 404:
                request.answer = Answer.DONE if request.is_read else Answer.MISSING
                self._seen.pop(name, None)
            case 409:
                request.answer = Answer.CONFLICT
                self._seen.pop(name, None)
            case 400 | 403 | 422 | 429:
                request.answer = Answer.REFUSED
            case _:
                # 500 and 503 say nothing about what happened.
                return
        request.returned = now


def _write(method: str, path: str, name: str, value: int, version: str = "") -> ClientRequest:
    metadata: dict[str, Any] = {"name": name, "namespace": "default"}
    if version:
        metadata["resourceVersion"] = version
    document = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": metadata,
        "spec": {"holderIdentity": str(value)},
    }
    return ClientRequest(method=method, path=path, headers=JSON, body=msgspec.json.encode(document))


def _list(requests: list[RegisterRequest]) -> str:
    def lines() -> Iterator[str]:
        for request in requests:
            what = "read" if request.is_read else f"{request.expected}→{request.value}"
            result = request.value if request.is_read else ""
            yield f"{request.called:.3f}–{request.returned:.3f} {what} {request.answer.name} {result}"

    return "; ".join(lines())
