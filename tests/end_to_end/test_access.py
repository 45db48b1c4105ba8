"""Access: every kind can be written; nodes and their drivers may write only what belongs to the node."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dralloc.client.async_client import AsyncClient
from dralloc.client.http_transport import HttpTransport
from dralloc.client.kubeconfig import ConnectionConfig
from dralloc.client.transport import ClientRequest
from dralloc.kube.resource_v1 import (
    DeviceClass,
    DeviceTaintRule,
    NetworkDeviceData,
    ResourceClaim,
    ResourceClaimTemplate,
    ResourceSlice,
)
from dralloc.primitives.errors import Conflict, Forbidden, Invalid, NotFound
from dralloc.server.server_process import ServerSettings, run_server
from dralloc.testing.builders import (
    DRIVER,
    POOL,
    claim,
    device,
    device_class,
    request,
    resource_slice,
    taint,
    taint_rule,
)
from tests.support.running_cluster import RunningCluster, in_running_cluster
from tests.support.workloads import claim_template

pytestmark = pytest.mark.slow


@in_running_cluster
async def test_P1_every_kind_is_created_read_changed_and_deleted(cluster: RunningCluster) -> None:
    client = cluster.client
    kinds: dict[type[Any], Any] = {
        DeviceClass: device_class("x"),
        DeviceTaintRule: taint_rule("x", taint("broken"), driver=DRIVER),
        ResourceClaim: claim("x", request()),
        ResourceClaimTemplate: claim_template("x", request()),
        ResourceSlice: resource_slice("x", device("gpu-0"), node_name="node-a"),
    }
    for kind, document in kinds.items():
        await client.create(document)
        first = await client.get(kind, "x")
        assert [item.metadata.uid for item in await client.list(kind)] == [first.metadata.uid]
        patched = await client.patch(kind, "x", {"metadata": {"labels": {"by": "patch"}}})
        labelled = msgspec.structs.replace(first.metadata, labels={"by": "stale"})
        with pytest.raises(Conflict):
            await client.replace(msgspec.structs.replace(first, metadata=labelled))
        labelled = msgspec.structs.replace(patched.metadata, labels={"by": "replace"})
        await client.replace(msgspec.structs.replace(patched, metadata=labelled))
        assert (await client.get(kind, "x")).metadata.labels == {"by": "replace"}
        await client.delete(kind, "x")
        with pytest.raises(NotFound):
            await client.get(kind, "x")
    # The main resource does not change the status; the status subresource changes nothing else.
    await client.create(claim("x", request()))
    result = {"request": "request", "driver": DRIVER, "pool": POOL, "device": "gpu-0"}
    given = {"metadata": {"labels": {"by": "user"}}, "status": {"allocation": {"devices": {"results": [result]}}}}
    stored = await client.patch(ResourceClaim, "x", given)
    assert (stored.metadata.labels, stored.status.allocation) == ({"by": "user"}, None)
    given["spec"] = {"devices": {"requests": []}}
    stored = await client.patch(ResourceClaim, "x", given, subresource="status")
    assert stored.status.allocation is not None
    assert len(stored.spec.devices.requests or ()) == 1


# --- Identities of a node ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Users:
    """Clients of one server."""

    administrator: AsyncClient
    # The node `node-a`.
    node: AsyncClient
    # A driver's service account, with a token that is bound to the node.
    driver: AsyncClient


ACCOUNT = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "driver", "namespace": "default"}}
ROLE = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRole",
    "metadata": {"name": "driver"},
    "rules": [
        {"apiGroups": ["resource.k8s.io"], "resources": ["resourceclaims/status"], "verbs": ["patch"]},
        {
            "apiGroups": ["resource.k8s.io"],
            "resources": ["resourceclaims/driver"],
            "verbs": ["associated-node:patch"],
            "resourceNames": [DRIVER],
        },
    ],
}
BINDING = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRoleBinding",
    "metadata": {"name": "driver"},
    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "driver"},
    "subjects": [{"kind": "ServiceAccount", "name": "driver", "namespace": "default"}],
}


@asynccontextmanager
async def users_of_server(directory: Path) -> AsyncIterator[Users]:
    tokens = directory / "tokens.csv"
    tokens.write_text('node-token,system:node:node-a,1,"system:nodes"\n')
    settings = ServerSettings(
        data_dir=directory / "data", port=0, store="memory://", token_file=tokens, insecure_http=True
    )
    async with run_server(settings) as server, AsyncExitStack() as stack:

        def connect(token: str) -> HttpTransport:
            transport = HttpTransport(ConnectionConfig(server=server.url, token=token))
            stack.push_async_callback(transport.close)
            return transport

        of_administrator = connect(server.token)
        administrator = AsyncClient(of_administrator)
        for document in ({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-a"}}, ACCOUNT, ROLE, BINDING):
            await administrator.create(document)
        driver = AsyncClient(connect(await token_of_driver(of_administrator)))
        yield Users(administrator, AsyncClient(connect("node-token")), driver)


async def token_of_driver(administrator: HttpTransport) -> str:
    asked = {"spec": {"boundObjectRef": {"apiVersion": "v1", "kind": "Node", "name": "node-a"}}}
    path = "/api/v1/namespaces/default/serviceaccounts/driver/token"
    headers = {"content-type": "application/json"}
    answer = await administrator.send(
        ClientRequest(method="POST", path=path, headers=headers, body=msgspec.json.encode(asked))
    )
    assert answer.status == 201, answer.body
    token: str = msgspec.json.decode(answer.body)["status"]["token"]
    return token


def play(scenario: Callable[[Users], Coroutine[Any, Any, None]], directory: Path) -> None:
    async def run() -> None:
        async with users_of_server(directory) as users:
            await scenario(users)

    asyncio.run(run())


def test_P34_a_node_may_write_only_its_own_slices(tmp_path: Path) -> None:
    async def scenario(users: Users) -> None:
        administrator, node = users.administrator, users.node
        await node.create(resource_slice("mine", device("gpu-0"), node_name="node-a"))
        with pytest.raises(Forbidden):
            await node.create(resource_slice("other", device("gpu-0"), node_name="node-b"))
        with pytest.raises(Forbidden):
            await node.create(resource_slice("cluster", device("gpu-0"), all_nodes=True))
        for name, place in (("other", {"node_name": "node-b"}), ("cluster", {"all_nodes": True})):
            await administrator.create(resource_slice(name, device("gpu-0"), pool=name, **place))
            with pytest.raises(Forbidden):
                await node.delete(ResourceSlice, name)
        await node.delete(ResourceSlice, "mine")

    play(scenario, tmp_path)


def test_S1_a_driver_may_write_the_status_of_devices_allocated_on_its_node_and_S2_of_no_others(tmp_path: Path) -> None:
    def given_on(node: str) -> dict[str, Any]:
        field = {"key": "metadata.name", "operator": "In", "values": [node]}
        result = {"request": "request", "driver": DRIVER, "pool": node, "device": "gpu-0"}
        place = {"nodeSelectorTerms": [{"matchFields": [field]}]}
        return {"status": {"allocation": {"devices": {"results": [result]}, "nodeSelector": place}}}

    def said_on(node: str, address: str) -> dict[str, Any]:
        entry = {"driver": DRIVER, "pool": node, "device": "gpu-0", "networkData": {"hardwareAddress": address}}
        return {"status": {"devices": [entry]}}

    async def scenario(users: Users) -> None:
        administrator, node, driver = users.administrator, users.node, users.driver
        for name in ("node-a", "node-b"):
            await administrator.create(resource_slice(name, device("gpu-0"), pool=name, node_name=name))
            await administrator.create(claim(name, request()))
            await administrator.patch(ResourceClaim, name, given_on(name), subresource="status")
        for address in ("02:00:00:00:00:01", "02:00:00:00:00:02"):
            stored = await driver.patch(ResourceClaim, "node-a", said_on("node-a", address), subresource="status")
            (entry,) = stored.status.devices
            assert entry.network_data == NetworkDeviceData(hardware_address=address)
        with pytest.raises(Invalid, match="resourceclaims/driver"):
            await driver.patch(ResourceClaim, "node-b", said_on("node-b", address), subresource="status")
        with pytest.raises(Invalid, match="resourceclaims/binding"):
            await driver.patch(ResourceClaim, "node-a", {"status": {"allocation": None}}, subresource="status")
        with pytest.raises(Forbidden):
            await node.patch(ResourceClaim, "node-a", said_on("node-a", address), subresource="status")

    play(scenario, tmp_path)
