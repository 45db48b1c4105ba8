"""Profiles: texts with holes, the ones that come with us, and ones recorded from a cluster."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
import yaml

from dralloc.api.core_v1 import Node
from dralloc.api.resource_v1 import DeviceClass, ResourceSlice
from dralloc.client.async_client import AsyncClient
from dralloc.client.in_process_transport import InProcessTransport
from dralloc.fleet.fleet import Fleet, FleetSettings
from dralloc.fleet.placeholders import BadTemplate, escape, fill, fill_text, repetitions
from dralloc.fleet.profile_recorder import record_profile
from dralloc.fleet.profiles import (
    BadProfile,
    FleetProfile,
    load_profile,
    nodes_of,
    profile_names,
    read_profile,
    shared_slices,
)
from dralloc.system_clock import SystemClock
from dralloc.testing.builders import device, resource_slice
from tests.support.api_server import TOKEN, api_application

# --- Texts with holes ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "filled"),
    [
        ("plain", "plain"),
        ("gpu-{i}", "gpu-5"),
        ("{node}/{i // 2}/{i % 2}", "n-7/2/1"),
        ("{ i * 2 + 1 }", "11"),
        ("{(i + 1) * 2}", "12"),
        ("{{i}}", "{i}"),
    ],
)
def test_placeholders_are_filled_in(text: str, filled: str) -> None:
    assert fill_text(text, {"i": 5, "node": "n-7"}) == filled


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{x}", "unknown variable x; known are i, node"),
        ("{i + x}", "unknown variable x"),
        ("{}", "cannot be evaluated"),
        ("{i +}", "cannot be evaluated"),
        ("{i // 0}", "cannot be evaluated"),
        ("{node + 1}", "node is not a number"),
        ("{__import__('os')}", "only numbers, variables and"),
        ("{i.bit_length}", "only numbers, variables and"),
        ("{i ** 9}", "only numbers, variables and"),
        ("{" + "(" * 40 + "}", "cannot be evaluated"),
        ("{" + "i+" * 100 + "i}", "is too long"),
    ],
)
def test_an_invalid_placeholder_is_named(text: str, reason: str) -> None:
    with pytest.raises(BadTemplate, match=reason):
        fill_text(text, {"i": 5, "node": "n"})


def test_trees_are_filled_with_keys_and_numbers() -> None:
    tree = {"a-{i}": [{"int": "{i}", "string": "{i}"}, 3, True, None]}
    assert fill(tree, {"i": 5}) == {"a-5": [{"int": 5, "string": "5"}, 3, True, None]}
    with pytest.raises(BadTemplate, match="not an integer"):
        fill({"int": "{node}"}, {"node": "x"})


def test_escaped_text_is_filled_to_itself() -> None:
    assert fill_text(escape("a{b}}c{"), {}) == "a{b}}c{"


def test_repetitions_count_one_variable_or_several() -> None:
    assert list(repetitions(None, {"a": 1})) == [{"a": 1}]
    assert list(repetitions(2, {"a": 1})) == [{"a": 1, "i": 0}, {"a": 1, "i": 1}]
    assert [(each["x"], each["y"]) for each in repetitions({"x": 2, "y": 2}, {})] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    for bad in ("3", -1, {"x": "2"}, [1], 10_001):
        with pytest.raises(BadTemplate, match="repeat"):
            list(repetitions(bad, {}))


# --- Profiles -----------------------------------------------------------------------------------------------------


def test_all_that_come_with_us_can_be_used() -> None:
    assert profile_names() == ["cpu", "gpu", "mig", "nic", "tpu"]
    for name in profile_names():
        assert load_profile(name).description


def devices(profile: FleetProfile, count: int = 1) -> list[str]:
    own = [item for node in nodes_of(profile, count, "n") for item in node.slices]
    return [each.name for item in (*own, *shared_slices(profile, count, "n")) for each in item.spec.devices or ()]


def test_nodes_have_the_devices_that_their_profile_describes() -> None:
    assert devices(load_profile("gpu")) == [f"gpu-{index}" for index in range(8)]
    assert len(devices(load_profile("mig"))) == 4 * (1 + 2 + 3 + 7)
    assert devices(load_profile("nic")) == ["eth1", "eth2", "eth0"]
    assert len(devices(load_profile("cpu"))) == 8
    assert len(devices(load_profile("tpu"), 8)) == 2 * (16 + 4 + 2 + 1)


def test_kinds_of_nodes_take_turns_by_weight() -> None:
    text = "nodes: [{weight: 2, labels: {kind: a, id: '{number}'}}, {labels: {kind: b}}]"
    nodes = list(nodes_of(read_profile(text, "t"), 6, "n"))
    assert [node.shape.labels["kind"] for node in nodes] == ["a", "a", "b", "a", "a", "b"]
    assert nodes[4].shape.labels["id"] == "4"
    assert [node.shape.name for node in nodes] == [f"n-{number}" for number in range(6)]


def test_a_group_of_nodes_has_its_pool_together() -> None:
    first, second, *rest = [item for item in shared_slices(load_profile("tpu"), 5, "n") if item.spec.devices]
    assert not rest
    assert (first.spec.pool.name, second.spec.pool.name) == ("n-slice-0", "n-slice-1")
    chips = [each for each in second.spec.devices or () if each.name.startswith("host-1-chip")]
    assert {each.node_name for each in chips} == {"n-5"}


SLICE: dict[str, Any] = {"devices": [{"name": "gpu-{i}", "repeat": 2}]}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"nodes": []}, "nodes are required"),
        ({"nodes": [{"weight": 0}]}, "weights and sizes must be at least 1"),
        ({"unknown": 1}, "unknown field `unknown`"),
        ({"classes": [{"metadata": {"name": "c"}, "spec": {"selector": []}}]}, "unknown field"),
        ({"slice": {"devices": [{"name": "Not A Name"}]}}, r"devices\[0\].name"),
        ({"slice": {"devices": [{"name": "a"}, {"name": "a"}]}}, "Duplicate"),
        ({"slice": {"devices": [{"name": "a", "colour": "red"}]}}, "unknown field"),
        ({"slice": {"devices": [{"name": "{nothing}"}]}}, "unknown variable nothing"),
        ({"slice": {"devices": [{"name": "d-{i}", "repeat": 129}]}}, "128"),
    ],
)
def test_a_profile_that_cannot_be_used_is_refused_before_anything_is_published(
    change: dict[str, Any], reason: str
) -> None:
    described = change.pop("slice", SLICE)
    profile = {"nodes": [{"pools": [{"driver": "d.example.com", "slices": [described]}]}], **change}
    with pytest.raises(BadProfile, match=reason):
        read_profile(yaml.safe_dump(profile), "t")


def test_a_name_that_is_no_profile_is_answered_with_those_that_are(tmp_path: Path) -> None:
    with pytest.raises(BadProfile, match="or one of cpu, gpu, mig, nic, tpu"):
        load_profile("nonsense")
    path = tmp_path / "mine.yaml"
    path.write_text("nodes: [")
    with pytest.raises(BadProfile, match=r"mine\.yaml"):
        load_profile(str(path))
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(BadProfile, match=r"mine\.yaml"):
        load_profile(str(path))


# --- Publishing ---------------------------------------------------------------------------------------------------


async def publish(transport: InProcessTransport, profile: FleetProfile, count: int) -> None:
    settings = FleetSettings(profile=profile, profile_name="t", count=count, prefix="fake")
    await Fleet(transport, settings, SystemClock()).publish()


@pytest.mark.slow
@pytest.mark.parametrize("name", profile_names())
def test_what_is_published_can_be_published_again_and_recorded(name: str) -> None:
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


def test_a_device_that_is_called_like_its_node_by_chance_keeps_its_name() -> None:
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
