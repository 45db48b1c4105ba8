"""Preference and strategies of classes from the scheduler's configuration: no object has them."""

from __future__ import annotations

from pathlib import Path

import pytest

from dralloc.cli.scheduler_configuration import read_configuration
from dralloc.kube.device_parts import capacity
from dralloc.kube.resource_v1 import CONSUMED_OR_NEVER, MOST_AVAILABLE, ResourceClaim
from dralloc.primitives.features import FeatureGates
from dralloc.scheduler.settings import SchedulerSettings
from dralloc.scheduler.state.class_settings import ClassSettings, ConfiguredClasses
from dralloc.testing.builders import DRIVER, claim, device, device_class, request, resource_slice
from tests.support.scheduled_cluster import ScheduledCluster, in_cluster, node, our_pod

ALPHA = FeatureGates.parse("DRADevicePreference=true,DRACapacityStrategies=true")
HEADER = "apiVersion: scheduler.dralloc.io/v1alpha1\nkind: SchedulerConfiguration\n"


def test_a_file_has_the_settings_of_each_class(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(
        HEADER
        + "deviceClasses:\n- {name: gpu, devicePreference: MostAvailable}\n"
        + "- {name: nic, strategies: {bandwidth: ConsumedOrNever}}\n"
    )
    assert read_configuration(path, ALPHA).class_settings == {
        "gpu": ClassSettings(device_preference=MOST_AVAILABLE),
        "nic": ClassSettings(strategies={"bandwidth": CONSUMED_OR_NEVER}),
    }


@pytest.mark.parametrize(
    ("text", "gates", "words"),
    [
        ("deviceClasses: [{name: a, devicePreference: Best}]", ALPHA, "'Best' is not one of FirstFit"),
        ("deviceClasses: [{name: a, strategies: {m: Never}}]", ALPHA, "'Never' is not one of AlwaysConsumed"),
        ("deviceClasses: [{name: a}, {name: a}]", ALPHA, "class a is stated twice"),
        ("deviceClasses: [{name: a, preference: FirstFit}]", ALPHA, "unknown field `preference`"),
        ("kind: Other", ALPHA, "expected apiVersion scheduler.dralloc.io/v1alpha1"),
        ("deviceClasses: [{name: a, devicePreference: FirstFit}]", FeatureGates.defaults(), "DRADevicePreference=true"),
        ("deviceClasses: [{name: a, strategies: {m: BlockOrShare}}]", FeatureGates.defaults(), "DRACapacityStrategies"),
    ],
)
def test_a_wrong_file_ends_the_command(
    text: str, gates: FeatureGates, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(text if text.startswith("kind") else HEADER + text)
    if text.startswith("kind"):
        path.write_text("apiVersion: v1\n" + text)
    with pytest.raises(SystemExit):
        read_configuration(path, gates)
    assert words in capsys.readouterr().err


def test_a_strategy_follows_the_selectors_of_its_class() -> None:
    configured = ConfiguredClasses({"nic": ClassSettings(strategies={f"{DRIVER}/bandwidth": CONSUMED_OR_NEVER})})
    published = resource_slice("s", device("a", capacity={"bandwidth": capacity("10G")}, shareable=True))
    assert configured.with_strategies(None, published) == published, "no class is known yet"
    everything = device_class("nic")
    ((before, after),) = configured.class_changed(None, everything)
    assert before == published
    (amended,) = after.spec.devices or ()
    assert amended.capacity["bandwidth"].request_policy is not None
    assert amended.capacity["bandwidth"].request_policy.strategy == CONSUMED_OR_NEVER
    nothing = device_class("nic", where=("false",))
    assert [pair[1] for pair in configured.class_changed(everything, nothing)] == [published]
    assert configured.with_strategies(published, None) is None
    assert not list(configured.class_changed(nothing, everything))


SETTINGS = SchedulerSettings(
    gates=ALPHA,
    class_settings={"gpu": ClassSettings(MOST_AVAILABLE, {"memory": CONSUMED_OR_NEVER})},
)


@in_cluster(schedulers=0)
async def test_a_scheduler_applies_what_the_server_does_not_know(cluster: ScheduledCluster) -> None:
    """The server has default gates, as a server of Kubernetes."""
    cluster.start(SETTINGS)
    shared = [device(name, capacity={"memory": capacity("10Gi")}, shareable=True) for name in ("a", "b")]
    await cluster.create(device_class("gpu"), node("node-a"))
    await cluster.create(resource_slice("gpus", *shared, pool="node-a", node_name="node-a"))
    for name, amount in (("one", {"memory": "4Gi"}), ("two", {"memory": "4Gi"})):
        await cluster.create(claim(name, request(device_class="gpu", capacity=amount)), our_pod(name, name))
        await cluster.settle()
    one, two = [await cluster.client.get(ResourceClaim, name) for name in ("one", "two")]
    assert one.status.allocation is not None
    assert two.status.allocation is not None
    assert [each.status.allocation.devices.results[0].device for each in (one, two) if each.status.allocation] == [
        "a",
        "b",
    ]
    for name in ("one", "two"):
        await cluster.remove_pod(name)
        await cluster.release(name)
    await cluster.settle()
    for name in ("free", "follows"):
        await cluster.create(claim(name, request(device_class="gpu")), our_pod(name, name))
        await cluster.settle()
    await cluster.create(
        claim("late", request(device_class="gpu", capacity={"memory": "1Gi"})), our_pod("late", "late")
    )
    await cluster.settle()
    for name in ("free", "follows"):
        found = await cluster.client.get(ResourceClaim, name)
        assert found.status.allocation is not None
        assert found.status.allocation.devices.results[0].consumed_capacity == {}, "nobody asked for an amount"
    assert (await cluster.client.get(ResourceClaim, "late")).status.allocation is None
