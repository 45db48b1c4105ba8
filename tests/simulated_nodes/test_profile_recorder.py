"""Profiles that are recorded from a published cluster."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import yaml

from dralloc.client.async_client import AsyncClient
from dralloc.client.in_process_transport import InProcessTransport
from dralloc.kube.core_v1 import Node
from dralloc.kube.resource_v1 import DeviceClass, ResourceSlice
from dralloc.node.simulated.fleet import Fleet, FleetSettings
from dralloc.node.simulated.profile_recorder import record_profile
from dralloc.node.simulated.profiles import (
    FleetProfile,
    load_profile,
    profile_names,
    read_profile,
)
from dralloc.system_clock import SystemClock
from dralloc.testing.builders import device, resource_slice
from tests.support.api_server import TOKEN, api_application


async def publish(transport: InProcessTransport, profile: FleetProfile, count: int) -> None:
    settings = FleetSettings(profile=profile, profile_name="t", count=count, prefix="fake")
    await Fleet(transport, settings, SystemClock()).publish()


@pytest.mark.slow
@pytest.mark.parametrize("name", profile_names())
def test_a_profile_can_be_published_twice_and_recorded(name: str) -> None:
    """A recorded profile makes a cluster that is recorded as the same profile."""

    async def scenario() -> None:
        async with api_application() as application, api_application() as another:
            transports = [InProcessTransport(each, token=TOKEN) for each in (application, another)]
            first, second = map(AsyncClient, transports)
            await publish(transports[0], load_profile(name), 8)
            before = {item.metadata.name: item.metadata.resource_version for item in await first.list(ResourceSlice)}
            await publish(transports[0], load_profile(name), 8)
            after = {item.metadata.name: item.metadata.resource_version for item in await first.list(ResourceSlice)}
            assert before == after
            recorded = await record(first)
            text = yaml.safe_dump(recorded)
            await publish(transports[1], read_profile(text, "recorded"), 8)
            assert await record(second) == recorded
            assert device_contents(await second.list(ResourceSlice)) == device_contents(await first.list(ResourceSlice))

    asyncio.run(scenario())


async def record(client: AsyncClient) -> dict[str, Any]:
    return record_profile(
        await client.list(Node), await client.list(ResourceSlice), await client.list(DeviceClass), "recorded"
    )


def device_contents(slices: tuple[ResourceSlice, ...]) -> list[str]:
    """What can be selected by: everything of a device but values that no two devices share."""
    return sorted(
        repr(
            (
                each.name,
                {key: value for key, value in each.attributes.items() if key not in ("uuid", "mac")},
                each.capacity,
            )
        )
        for item in slices
        for each in item.spec.devices or ()
    )


def test_nodes_that_differ_only_in_names_and_serial_numbers_are_one_kind() -> None:
    nodes = [Node(metadata=resource_slice(name).metadata) for name in ("worker-a", "worker-b", "other")]
    slices = [
        resource_slice(
            f"s-{name}",
            device("gpu-0", attributes={"serial": f"{name}-0", "model": "x"}),
            device("gpu-1", attributes={"serial": f"{name}-1", "model": "x"}),
            pool=f"pool-of-{name}",
            node_name=name,
        )
        for name in ("worker-a", "worker-b")
    ]
    recorded = record_profile(nodes, slices, (), "")
    assert [kind["weight"] for kind in recorded["nodes"]] == [2, 1]
    (pool,) = recorded["nodes"][0]["pools"]
    assert pool["name"] == "pool-of-{node}"
    serials = [each["attributes"]["serial"]["string"] for each in pool["slices"][0]["devices"]]
    assert serials == ["{number}.0.0.0", "{number}.0.0.1"]


def test_a_device_whose_name_contains_the_node_name_by_coincidence_keeps_it() -> None:
    names = ("gpu-1", "gpu-10")
    nodes = [Node(metadata=resource_slice(name).metadata) for name in names]
    slices = [
        resource_slice(
            f"s-{name}",
            *(device(each, attributes={"name": each, "host": f"host-{name}"}) for each in ("gpu-0", "gpu-1")),
            pool=name,
            node_name=name,
        )
        for name in names
    ]
    (kind,) = record_profile(nodes, slices, (), "")["nodes"]
    (pool,) = kind["pools"]
    assert pool["name"] == "{node}"
    assert pool["slices"][0]["devices"] == [
        {"name": name, "attributes": {"name": {"string": name}, "host": {"string": "host-{node}"}}}
        for name in ("gpu-0", "gpu-1")
    ]
