"""The page's model in Node.js: its own tests, and the same accounting as the allocator on random clusters."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from dralloc.answers.device_report import PoolReport
from dralloc.answers.usage_report import usage_report
from dralloc.cli.device_tree import plain_amount, plain_pool
from dralloc.devices.allocator.features import Features
from dralloc.devices.snapshot import Snapshot
from dralloc.kube import device_parts as parts
from dralloc.kube.codec import encode
from dralloc.kube.resource_v1 import DeviceCapacity, ResourceClaim, ResourceSlice
from dralloc.primitives.quantity import Quantity
from dralloc.pytest_plugin.cluster import running_cluster
from dralloc.testing import builders as build
from tests.support.plain_pools import World
from tests.support.random_capacity import with_capacity_features
from tests.support.random_worlds import random_world

HERE = Path(__file__).parent
STATIC = Path(__file__).parents[2] / "src" / "dralloc" / "web" / "static"
WORLDS = 400
POLICIES = 400
ALL_CAPACITY_FEATURES = Features(
    capacity_strategies=True, named_request_policies=True, zero_consumption=True, capacity_remainder=True
)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.real,
    pytest.mark.skipif(not shutil.which("node"), reason="needs node: scripts/install-system-tools installs it"),
]


def test_the_modules_tests_pass() -> None:
    tests = sorted(map(str, (HERE / "model").glob("*.test.mjs")))
    assert tests
    run = subprocess.run(["node", "--test", *tests], capture_output=True, text=True)
    assert run.returncode == 0, run.stdout[-6000:]


def test_the_first_claim_that_is_proposed_works() -> None:
    script = (
        f"import {{ firstClaim }} from '{STATIC}/model/first_claim.mjs'; console.log(firstClaim('gpu.example.com'))"
    )
    run = subprocess.run(["node", "--input-type=module", "-e", script], capture_output=True, text=True, check=True)
    command, manifest = run.stdout.split("\n", maxsplit=1)
    assert command == "dralloc apply -f - <<'END'"
    with running_cluster(nodes={"gpu": 1}) as cluster:
        cluster.apply(manifest.removesuffix("END\n"))
        cluster.wait_until_running("first")
        assert len(cluster.devices_of("first")) == 1


def test_the_page_counts_as_the_allocator_does() -> None:
    worlds = [replace(random_world(seed), features=Features()) for seed in range(WORLDS)]
    worlds += [policy_world(Random(seed)) for seed in range(POLICIES)]
    # The page counts with the features that the published devices use.
    worlds += [
        replace(with_capacity_features(world, seed), features=ALL_CAPACITY_FEATURES)
        for seed, world in enumerate([*worlds])
    ]
    lines = "\n".join(json.dumps(as_listed(world)) for world in worlds)
    run = subprocess.run(
        ["node", str(HERE / "reports.mjs"), str(STATIC)], input=lines, capture_output=True, text=True, check=True
    )
    seen = [json.loads(line) for line in run.stdout.splitlines()]
    assert len(seen) == len(worlds)
    for world, reports in zip(worlds, seen, strict=True):
        expected = [comparable(plain_pool(report) | {"hardware": hardware_of(report)}) for report in reports_of(world)]
        assert by_place(map(comparable, reports)) == by_place(expected)


def reports_of(world: World) -> tuple[PoolReport, ...]:
    snapshot = Snapshot.of(slices=world.slices, claims=world.allocated, rules=world.rules, nodes=(world.node,))
    return usage_report(snapshot, world.features)


def as_listed(world: World) -> dict[str, list[Any]]:
    """The cluster as the API lists it."""
    node = {"metadata": {"name": world.node.name, "labels": dict(world.node.labels)}}
    return {
        "nodes": [node],
        "rules": [json.loads(encode(rule)) for rule in world.rules],
        "slices": [json.loads(encode(each)) for each in world.slices],
        "claims": [json.loads(encode(claim)) for claim in world.allocated],
    }


def hardware_of(report: PoolReport) -> list[dict[str, str]]:
    return [{"product": each.product, "name": each.name, **plain_amount(each)} for each in report.hardware]


def by_place(reports: Any) -> list[Any]:
    return sorted(reports, key=lambda report: (report["nodeName"], report["driver"], report["pool"], report["fault"]))


def comparable(report: dict[str, Any]) -> dict[str, Any]:
    """The accounting with amounts as numbers."""
    return {
        **report,
        "nodeName": report["nodeName"] or "",
        "fault": report["fault"] or "",
        "counters": {
            (counter["counterSet"], counter["name"]): (nanos(counter["value"]), nanos(counter["left"]))
            for counter in report["counters"]
        },
        "hardware": {
            (each["product"], each["name"]): [nanos(each[key]) for key in ("value", "used", "available")]
            for each in report["hardware"]
        },
        "devices": [
            {
                **device,
                "capacity": {
                    name: {key: nanos(amount) for key, amount in capacity.items()}
                    for name, capacity in device["capacity"].items()
                },
                "holders": [holder["claim"] if isinstance(holder, dict) else holder for holder in device["holders"]],
            }
            for device in report["devices"]
        ],
    }


def nanos(text: str | None) -> int | None:
    return None if text is None else Quantity.parse(text).nanos


# --- Policies and amounts of every kind ---------------------------------------------------------------------------

AMOUNTS = ("0", "1", "2", "3", "7", "10", "1500m", "0.5", "2.25", "1k", "1Ki", "3Ki", "1Mi", "1Gi", "2e3", "100M", "1G")


def policy_world(random: Random) -> World:
    """One shareable device with unusual policies and shares."""
    names = ("memory", "slots")[: random.choice((1, 1, 2))]
    capacities = {name: odd_capacity(random) for name in names}
    device = build.device("shared", capacity=capacities, shareable=random.random() < 0.9)
    return World(
        slices=(build.resource_slice("slice", device),),
        claims=(),
        classes={},
        node=build.node(),
        allocated=tuple(shares(random, names)),
    )


def odd_capacity(random: Random) -> DeviceCapacity:
    value, default, minimum, maximum, step = random.choices(AMOUNTS, k=5)
    match random.randrange(4):
        case 0:
            return parts.capacity(value)
        case 1:
            valid = sorted({default, minimum, maximum}, key=lambda text: Quantity.parse(text).nanos)
            return parts.capacity(value, default=valid[0], valid=valid)
        case _:
            stated: dict[str, Any] = {"minimum": minimum, "maximum": maximum, "step": step}
            some = {part: amount for part, amount in stated.items() if random.random() < 0.6}
            return parts.capacity(value, default=default, **some)


def shares(random: Random, names: tuple[str, ...]) -> Iterator[ResourceClaim]:
    for number in range(random.choice((0, 1, 1, 2, 3))):
        consumed = {name: random.choice(AMOUNTS) for name in names if random.random() < 0.8}
        share_id = f"share-{number}" if random.random() < 0.9 else None
        result = build.held("shared", share_id=share_id, consumed=consumed if share_id else None)
        yield build.claim(f"claim-{number}", allocation=build.allocation(result))


def test_every_slice_of_these_worlds_counts() -> None:
    """Guards the comparison above against empty worlds."""
    worlds: list[World] = [random_world(seed) for seed in range(WORLDS)]
    slices: list[ResourceSlice] = [each for world in worlds for each in world.slices]
    assert len(slices) > WORLDS
    assert sum(bool(world.allocated) for world in worlds) > WORLDS // 4
