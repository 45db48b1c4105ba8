"""What users, drivers and operators do to a cluster, at random: pods, claims, jobs and devices come, change and go."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from random import Random
from typing import Any, Final

from dralloc.api.core_v1 import Pod
from dralloc.api.resource_v1 import DeviceTaintRule, ResourceClaim
from dralloc.primitives.errors import ApiError, NotFound
from dralloc.primitives.features import FeatureGates
from dralloc.simulator.cluster import SimulatedCluster
from dralloc.simulator.pod_lives import ENDS_AFTER

DRIVER: Final = "nic.example.com"
NAMESPACE: Final = "default"
NODES: Final = ("node-a", "node-b", "node-c")
PODS_MAX: Final = 40
RESOURCE: Final = "resource.k8s.io/v1"


class Workload:
    """A stream of random acts on one cluster. Each act is one or a few calls, and says in a line what it did."""

    def __init__(self, cluster: SimulatedCluster, random: Random) -> None:
        self._cluster = cluster
        self._client = cluster.client
        self._random = random
        self._number = 0
        self._acts: list[tuple[int, Callable[[], Awaitable[str]]]] = [
            (30, self._create_pod),
            (20, self._delete_pod),
            (4, self._delete_claim),
            (6, self._republish),
            (3, self._taint),
            (3, self._untaint),
            (4, self._restart_component),
            (1, self._change_gates),
        ]

    async def prepare(self) -> None:
        """Nodes, a class, a template, and the first slices."""
        selector = {"cel": {"expression": f'device.driver == "{DRIVER}"'}}
        await self._client.create(_object(RESOURCE, "DeviceClass", "nic", spec={"selectors": [selector]}))
        template = {"spec": _claim_spec(_exactly(bandwidth="2G"))}
        await self._client.create(_object(RESOURCE, "ResourceClaimTemplate", "from-template", NAMESPACE, spec=template))
        for node in NODES:
            status = {"allocatable": {"cpu": "64", "memory": "256Gi", "pods": "110"}}
            await self._client.create(_object("v1", "Node", node, status=status))
            await self._client.create(_object(RESOURCE, "ResourceSlice", f"{node}-nic", spec=self._slice(node, 1)))

    async def act(self) -> str:
        """Do something; what cannot be done just now is not done."""
        weights = [weight for weight, _ in self._acts]
        (_, act), *_ = self._random.choices(self._acts, weights)
        try:
            return await act()
        except ApiError as refusal:
            return f"{act.__name__}: refused: {refusal.message[:100]}"

    # --- Users ------------------------------------------------------------------------------------------------------

    async def _create_pod(self) -> str:
        if len(await self._client.list(Pod)) >= PODS_MAX:
            return await self._delete_pod()
        self._number += 1
        name = f"pod-{self._number}"
        claim = self._random.choice((self._own_claim, self._shared_claim, self._templated))
        entry = await claim(name)
        annotations = {ENDS_AFTER: str(self._random.randint(10, 900))} if self._random.random() < 0.5 else {}
        spec = {
            "schedulerName": "dralloc",
            "containers": [{"name": "c", "image": "x"}],
            "resourceClaims": [{"name": "nic", **entry}],
        }
        await self._client.create(_object("v1", "Pod", name, NAMESPACE, spec=spec, annotations=annotations))
        return f"created {name} with {entry}"

    async def _own_claim(self, pod: str) -> dict[str, str]:
        forms = (
            _exactly(bandwidth=f"{self._random.choice((1, 2, 5, 8))}G"),
            _exactly(),
            _exactly(count=2),
            {"firstAvailable": [_alternative("big", "9G"), _alternative("small", "1G")]},
        )
        claim = _object(RESOURCE, "ResourceClaim", pod, NAMESPACE, spec=_claim_spec(self._random.choice(forms)))
        await self._client.create(claim)
        return {"resourceClaimName": pod}

    async def _shared_claim(self, _: str) -> dict[str, str]:
        name = f"shared-{self._random.randrange(3)}"
        try:
            await self._client.get(ResourceClaim, name)
        except NotFound:
            claim = _object(RESOURCE, "ResourceClaim", name, NAMESPACE, spec=_claim_spec(_exactly(bandwidth="1G")))
            await self._client.create(claim)
        return {"resourceClaimName": name}

    async def _templated(self, _: str) -> dict[str, str]:
        return {"resourceClaimTemplateName": "from-template"}

    async def _delete_pod(self) -> str:
        pods = await self._client.list(Pod)
        if not pods:
            return "no pod to delete"
        name = self._random.choice(pods).metadata.name
        await self._client.delete(Pod, name)
        return f"deleted {name}"

    async def _delete_claim(self) -> str:
        claims = await self._client.list(ResourceClaim)
        if not claims:
            return "no claim to delete"
        name = self._random.choice(claims).metadata.name
        await self._client.delete(ResourceClaim, name)
        return f"deleted claim {name}"

    # --- Drivers and operators --------------------------------------------------------------------------------------

    async def _republish(self) -> str:
        """A driver changes its devices: other taints, shareable or not, a new generation. Capacity never shrinks."""
        node = self._random.choice(NODES)
        self._number += 1
        await self._client.apply(
            _object(RESOURCE, "ResourceSlice", f"{node}-nic", spec=self._slice(node, 1 + self._number)), force=True
        )
        return f"republished {node}"

    def _slice(self, node: str, generation: int) -> dict[str, Any]:
        return {
            "driver": DRIVER,
            "nodeName": node,
            "pool": {"name": node, "generation": generation, "resourceSliceCount": 1},
            "devices": [self._device(number) for number in range(3)],
        }

    def _device(self, number: int) -> dict[str, Any]:
        device: dict[str, Any] = {"name": f"eth{number}", "capacity": {"bandwidth": {"value": "10G"}}}
        if self._random.random() < 0.8:
            device["allowMultipleAllocations"] = True
            device["capacity"]["bandwidth"]["requestPolicy"] = {
                "default": "1G",
                "validRange": {"min": "1G", "step": "1G"},
            }
        if self._random.random() < 0.1:
            effect = self._random.choice(("NoSchedule", "NoExecute"))
            device["taints"] = [{"key": "example.com/sick", "effect": effect}]
        return device

    async def _taint(self) -> str:
        self._number += 1
        selector = {"driver": DRIVER, "device": f"eth{self._random.randrange(3)}"}
        effect = self._random.choice(("NoSchedule", "NoExecute", "None"))
        spec = {"deviceSelector": selector, "taint": {"key": "example.com/drain", "effect": effect}}
        await self._client.create(_object(RESOURCE, "DeviceTaintRule", f"rule-{self._number}", spec=spec))
        return f"tainted {selector} {effect}"

    async def _untaint(self) -> str:
        rules = await self._client.list(DeviceTaintRule)
        if not rules:
            return "no rule to delete"
        await self._client.delete(DeviceTaintRule, rules[0].metadata.name)
        return f"deleted {rules[0].metadata.name}"

    async def _restart_component(self) -> str:
        name = self._random.choice(self._cluster.component_names)
        await self._cluster.kill(name)
        self._cluster.start(name)
        return f"restarted {name}"

    async def _change_gates(self) -> str:
        on = self._random.random() < 0.7
        await self._cluster.restart_server(FeatureGates.defaults().override({"DRAConsumableCapacity": on}))
        return f"server with DRAConsumableCapacity={on}"


def _object(
    api_version: str,
    kind: str,
    name: str,
    namespace: str = "",
    *,
    annotations: dict[str, str] | None = None,
    **members: Any,
) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": name}
    if namespace:
        metadata["namespace"] = namespace
    if annotations:
        metadata["annotations"] = annotations
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **members}


def _claim_spec(form: dict[str, Any]) -> dict[str, Any]:
    return {"devices": {"requests": [{"name": "nic", **form}]}}


def _exactly(*, bandwidth: str = "", count: int = 1) -> dict[str, Any]:
    exactly: dict[str, Any] = {"deviceClassName": "nic", "count": count}
    if bandwidth:
        exactly["capacity"] = {"requests": {"bandwidth": bandwidth}}
    return {"exactly": exactly}


def _alternative(name: str, bandwidth: str) -> dict[str, Any]:
    return {"name": name, "deviceClassName": "nic", "capacity": {"requests": {"bandwidth": bandwidth}}}
