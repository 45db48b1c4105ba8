"""Gates of the features that Kubernetes lacks are switched off and on while pods run, like KEP-5075's upgrade path.

While a gate is off, what is stored stays, new objects lose the fields, and the scheduler refuses the claim or leaves the device
alone: with the reason, and without a guess.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest

from dralloc.kube.codec import encode
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.resource_v1 import ResourceClaim, ResourceSlice
from dralloc.primitives.errors import Invalid
from dralloc.testing.builders import DRIVER, device_class
from tests.support.running_cluster import RunningCluster, in_running_cluster_with
from tests.support.scheduled_cluster import node, our_pod

pytestmark = pytest.mark.slow

Document = dict[str, Any]


@dataclass(frozen=True)
class Feature:
    """`device` and `request` are what a plain device and request have in addition; `fields` are dropped without the gate."""

    gate: str
    fields: tuple[str, ...]
    device: Document = field(default_factory=dict)
    request: Document = field(default_factory=dict)
    constraints: list[Document] = field(default_factory=list)
    memory: Document = field(default_factory=dict)
    # A mode is refused and not dropped.
    is_refused: bool = False

    @property
    def is_of_devices(self) -> bool:
        return bool(self.device or self.memory)


ASKED = {"capacity": {"requests": {"memory": "4Gi"}}}
FEATURES = [
    Feature(
        "DRACapacityLimits",
        ("limits",),
        request={"capacity": {"requests": {"memory": "4Gi"}, "limits": {"memory": "8Gi"}}},
    ),
    Feature("DRAAggregatedCapacity", (), request={"allocationMode": "AggregatedCapacity", **ASKED}, is_refused=True),
    Feature(
        "DRACapacityStrategies", ("strategy",), memory={"requestPolicy": {"strategy": "BlockOrShare"}}, request=ASKED
    ),
    Feature(
        "DRANamedRequestPolicies",
        ("requestPolicies", "requestPolicyName"),
        device={"requestPolicies": {"small": {"default": "1Gi"}}},
        memory={"requestPolicyName": "small"},
        request=ASKED,
    ),
    Feature(
        "DRAZeroConsumption", ("zeroConsumption",), memory={"requestPolicy": {"zeroConsumption": True}}, request=ASKED
    ),
    Feature("DRACapacityRemainder", ("remainder",), device={"remainder": "GiveToLast"}, request=ASKED),
    Feature(
        "DRADevicePreference",
        ("devicePreference", "allocations"),
        request={"devicePreference": "MostAvailable", "allocations": {"max": 9}, **ASKED},
    ),
    Feature(
        "DRADistinctAttributes",
        ("distinctAttributes",),
        constraints=[{"distinctAttributes": [f"{DRIVER}/a", f"{DRIVER}/b"]}],
        request=ASKED,
        is_refused=True,
    ),
]


def card(feature: Feature, name: str = "card") -> Document:
    attributes = {"a": {"int": 1}, "b": {"int": 2}}
    capacity = {"memory": {"value": "10Gi", **feature.memory}}
    device = {"name": "gpu", "allowMultipleAllocations": True, "attributes": attributes, "capacity": capacity}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": name},
        "spec": {
            "driver": DRIVER,
            "nodeName": "node-a",
            "pool": {"name": name, "generation": 1, "resourceSliceCount": 1},
            "devices": [{**device, **feature.device}],
        },
    }


def claim_of(feature: Feature, name: str) -> Document:
    requests = [{"name": "r", "exactly": {"deviceClassName": "gpu", **feature.request}}]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"devices": {"requests": requests, "constraints": feature.constraints}},
    }


@pytest.mark.parametrize("feature", FEATURES, ids=lambda feature: feature.gate)
def test_a_feature_is_switched_off_and_on_while_a_pod_uses_it(feature: Feature) -> None:
    on = f"{feature.gate}=true"

    async def scenario(cluster: RunningCluster) -> None:
        await cluster.create(device_class(), node("node-a"), card(feature))
        for name in ("before", "waiting"):
            await cluster.create(claim_of(feature, name))
        await cluster.create(our_pod("before", "before"))
        await cluster.running("before")
        held = await cluster.claim("before")

        await cluster.restart_all()
        await cluster.create(our_pod("waiting", "waiting"))
        assert feature.gate in (await cluster.refused("waiting", "is off")).message
        assert await cluster.claim("before") == held
        assert (await cluster.client.get(Pod, "before")).status.phase == "Running"
        await _check_new_objects(cluster, feature)
        stored = await cluster.client.get(ResourceSlice, "card")
        await cluster.client.patch(ResourceSlice, "card", {"metadata": {"labels": {"changed": "yes"}}})
        assert (await cluster.client.get(ResourceSlice, "card")).spec == stored.spec, "what is in use is kept"

        await cluster.restart_all(on)
        await cluster.running("waiting")
        assert await cluster.claim("before") == held
        await _check_accounting(cluster, feature)

    in_running_cluster_with(on)(scenario)()


async def _check_new_objects(cluster: RunningCluster, feature: Feature) -> None:
    if feature.is_refused:
        with pytest.raises(Invalid):
            await cluster.create(claim_of(feature, "new"))
        return
    await cluster.create(claim_of(feature, "new"))
    plain: Document = msgspec.json.decode(encode((await cluster.claim("new")).spec))
    # Published for no node: this card is only looked at.
    other = card(feature, "other")
    other["spec"]["nodeName"] = "nowhere"
    await cluster.create(other)
    published: Document = msgspec.json.decode(encode((await cluster.client.get(ResourceSlice, "other")).spec))
    for name in feature.fields:
        assert f'"{name}"' not in msgspec.json.encode([plain, published]).decode()


async def _check_accounting(cluster: RunningCluster, feature: Feature) -> None:
    """Both claims have 4Gi of the 10Gi: 4Gi more do not fit, unless nothing is consumed or the last has taken the rest."""
    await cluster.create(claim_of(feature, "third"), our_pod("third", "third"))
    if feature.gate == "DRAZeroConsumption":
        await cluster.running("third")
    else:
        await cluster.refused("third", "0/1 nodes are available")


@pytest.mark.parametrize("feature", [each for each in FEATURES if each.is_of_devices], ids=lambda feature: feature.gate)
def test_a_scheduler_without_the_feature_leaves_its_devices_alone(feature: Feature) -> None:
    """Version skew: the server has the feature and the scheduler does not. A claim without any amount is refused, too."""
    on = f"{feature.gate}=true"

    async def scenario(cluster: RunningCluster) -> None:
        await cluster.schedule("")
        await cluster.create(device_class(), node("node-a"), card(feature))
        plain = Feature(feature.gate, ())
        await cluster.create(claim_of(plain, "plain"), our_pod("plain", "plain"))
        message = (await cluster.refused("plain", "is off")).message
        assert feature.gate in message
        assert (await cluster.client.get(ResourceClaim, "plain")).status.allocation is None
        await cluster.schedule(on)
        await cluster.running("plain")

    in_running_cluster_with(on)(scenario)()
