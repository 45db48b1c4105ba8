"""Profiles: validation, and the nodes and slices made from them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from dralloc.node.simulated.profiles import (
    BadProfile,
    FleetProfile,
    load_profile,
    nodes_of,
    profile_names,
    read_profile,
    shared_slices,
)


def test_all_built_in_profiles_are_valid() -> None:
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


def test_kinds_of_nodes_alternate_by_weight() -> None:
    text = "nodes: [{weight: 2, labels: {kind: a, id: '{number}'}}, {labels: {kind: b}}]"
    nodes = list(nodes_of(read_profile(text, "t"), 6, "n"))
    assert [node.shape.labels["kind"] for node in nodes] == ["a", "a", "b", "a", "a", "b"]
    assert nodes[4].shape.labels["id"] == "4"
    assert [node.shape.name for node in nodes] == [f"n-{number}" for number in range(6)]


def test_a_group_of_nodes_shares_a_pool() -> None:
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
def test_an_invalid_profile_is_refused_before_anything_is_published(change: dict[str, Any], reason: str) -> None:
    described = change.pop("slice", SLICE)
    profile = {"nodes": [{"pools": [{"driver": "d.example.com", "slices": [described]}]}], **change}
    with pytest.raises(BadProfile, match=reason):
        read_profile(yaml.safe_dump(profile), "t")


def test_an_unknown_profile_is_answered_with_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(BadProfile, match="or one of cpu, gpu, mig, nic, tpu"):
        load_profile("nonsense")
    path = tmp_path / "mine.yaml"
    path.write_text("nodes: [")
    with pytest.raises(BadProfile, match=r"mine\.yaml"):
        load_profile(str(path))
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(BadProfile, match=r"mine\.yaml"):
        load_profile(str(path))
