"""An API server with thousands of nodes, devices and claims, which are written to its store directly."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

from dralloc.kube.codec import encode
from dralloc.kube.registry import KINDS, RESOURCE_CLAIM, RESOURCE_SLICE
from dralloc.node.simulated.profiles import load_profile, nodes_of
from dralloc.primitives.features import FeatureGates
from dralloc.server.access.users import ADMINISTRATOR
from dralloc.server.http.application import ApiApplication
from dralloc.server.http.authentication import Authenticator
from dralloc.server.http.listener import ListenAddress, listen
from dralloc.server.http.static_pages import StaticPages
from dralloc.server.read.api_resources import key_of
from dralloc.server.read.stored_form import document_to_stored
from dralloc.server.server import ApiServer, ServerExtension
from dralloc.server.store.memory import MemoryStore
from dralloc.system_clock import SystemClock
from dralloc.testing.api_server import running_api_server

DEVICES_PER_NODE: Final = 8
NODES_PER_ROW: Final = 250
CREATED: Final = "2026-01-01T00:00:00Z"

NODE: Final = next(kind for kind in KINDS if kind.kind == "Node")

Document = dict[str, Any]


@asynccontextmanager
async def large_cluster(
    nodes: int, pages: StaticPages | None = None, extensions: Sequence[ServerExtension] = ()
) -> AsyncIterator[str]:
    """The server's URL, inside the block. Every client is the administrator."""
    async with MemoryStore() as store:
        await _fill(store, nodes)
        gates = FeatureGates.defaults()
        async with running_api_server(
            ApiServer(store, clock=SystemClock(), gates=gates, extensions=extensions)
        ) as server:
            application = ApiApplication(server, Authenticator({}, without_credential=ADMINISTRATOR), pages)
            async with listen(application, ListenAddress()) as url:
                yield url


async def _fill(store: MemoryStore, nodes: int) -> None:
    (slice_,) = next(iter(nodes_of(load_profile("gpu"), 1, "fleet"))).slices
    published = encode(slice_).replace(b"fleet-0", b"@NODE@")
    for number in range(nodes):
        name = f"fleet-{number}"
        await store.create(key_of(NODE, "", name), document_to_stored(_node(name, number)))
        document = json.loads(published.replace(b"@NODE@", name.encode()))
        document["metadata"] = {"name": f"{name}-gpus", "uid": f"slice-{number}"}
        await store.create(key_of(RESOURCE_SLICE, "", f"{name}-gpus"), document_to_stored(document))
        for claim in _claims(name, number):
            key = key_of(RESOURCE_CLAIM, "default", claim["metadata"]["name"])
            await store.create(key, document_to_stored(claim))


def _node(name: str, number: int) -> Document:
    labels = {
        "topology.kubernetes.io/zone": f"zone-{number % 7}",
        "example.com/rack": f"rack-{number // NODES_PER_ROW}",
    }
    metadata = {"name": name, "uid": f"node-{number}", "labels": labels, "creationTimestamp": CREATED}
    ready = {"type": "Ready", "status": "True" if number % 1000 != 999 else "False"}
    return {"metadata": metadata, "spec": {}, "status": {"conditions": [ready]}}


def _claims(node: str, number: int) -> Iterator[Document]:
    """Shares of the node's devices; some rows of nodes are busy, others are not."""
    busy = number // NODES_PER_ROW % 4
    for device in range(number * 7919 % 97 % (2 * busy + 2)):
        result = {
            "request": "gpu",
            "driver": "gpu.example.com",
            "pool": node,
            "device": f"gpu-{device}",
            "shareID": f"share-{number}-{device}",
            "consumedCapacity": {"memory": f"{(number * 13 + device * 29) % 71 + 10}Gi"},
        }
        name = f"claim-{number}-{device}"
        yield {
            "metadata": {"name": name, "namespace": "default", "uid": name, "creationTimestamp": CREATED},
            "spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com"}}]}},
            "status": {"allocation": {"devices": {"results": [result]}}},
        }
