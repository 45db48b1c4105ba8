"""Random actions of users, drivers and operators: they create, change and delete pods, claims, jobs and devices."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from random import Random
from typing import Any, Final

from dralloc.api.batch_v1 import Job
from dralloc.api.core_v1 import Node
from dralloc.api.pod_claims import claims_of, is_pod
from dralloc.api.pod_v1 import Pod
from dralloc.api.resource_v1 import DeviceTaintRule, ResourceClaim
from dralloc.client.known_resources import resource_for
from dralloc.client.typed_resource import ObjectKey
from dralloc.controllers.jobs.plan_claims import SHARED_CLAIMS
from dralloc.primitives.errors import ApiError, NotFound
from dralloc.primitives.features import FeatureGates
from dralloc.simulator.cluster import SimulatedCluster
from dralloc.simulator.pod_runner import ENDS_AFTER
from dralloc.simulator.random_devices import NIC, PARTITION, RandomDevices

NAMESPACE: Final = "default"
NODES: Final = ("node-a", "node-b", "node-c")
PODS_MAX: Final = 40
JOBS_MAX: Final = 3
RESOURCE: Final = "resource.k8s.io/v1"
SWITCHED: Final = (
    "DRAConsumableCapacity",
    "DRAPrioritizedList",
    "DRAReservedForWorkloads",
    "DRAPartitionableDevices",
    "DRADeviceTaintRules",
)
# The API group of a workload that the server does not know.
TRAINING_GROUP: Final = "example.com"
NO_TRAINING: Final = "no training to end"


class RandomWorkload:
    """Random actions on one cluster. Each is one or a few calls and returns a line that says what it did."""

    def __init__(self, cluster: SimulatedCluster, random: Random) -> None:
        self._cluster = cluster
        self._client = cluster.client
        self._random = random
        self._devices = RandomDevices(random)
        self._number = 0
        self._actions: list[tuple[int, Callable[[], Awaitable[str]]]] = [
            (30, self._create_pod),
            (20, self.delete_pod),
            (4, self._create_job),
            (2, self._delete_job),
            (4, self._delete_claim),
            (3, self._end_training),
            (6, self._republish),
            (3, self._taint),
            (3, self._untaint),
            (2, self._cordon),
            (4, self._restart_component),
            (2, self._change_gates),
        ]

    async def prepare(self) -> None:
        """Create nodes, classes, templates and the first slices."""
        for driver in (NIC, PARTITION):
            selector = {"cel": {"expression": f'device.driver == "{driver}"'}}
            await self._client.create(_object(RESOURCE, "DeviceClass", driver, spec={"selectors": [selector]}))
        for name, form in (("nic", _exactly(NIC, bandwidth="2G")), ("partition", _exactly(PARTITION))):
            spec = {"spec": _claim_spec(form)}
            await self._client.create(_object(RESOURCE, "ResourceClaimTemplate", name, NAMESPACE, spec=spec))
        for node in NODES:
            status = {"allocatable": {"cpu": "64", "memory": "256Gi", "pods": "110"}}
            await self._client.create(_object("v1", "Node", node, status=status))
            for published in self._devices.slices(node, 1):
                await self._client.create(published)

    async def act(self) -> str:
        """Run a random action; a refusal by the server is part of the game."""
        weights = [weight for weight, _ in self._actions]
        (_, action), *_ = self._random.choices(self._actions, weights)
        try:
            return await action()
        except ApiError as refusal:
            return f"{action.__name__}: refused: {refusal.message[:100]}"

    def _next_number(self) -> int:
        self._number += 1
        return self._number

    # --- Pods and their claims --------------------------------------------------------------------------------------

    async def _create_pod(self) -> str:
        if len(await self._client.list(Pod)) >= PODS_MAX:
            return await self.delete_pod()
        name = f"pod-{self._next_number()}"
        makers = (self._own_claim, self._own_claim, self._shared_claim, self._templated, self._training_claim)
        chosen = self._random.choices(makers, k=self._random.choice((1, 1, 1, 2)))
        entries = [{"name": f"entry-{place}", **await make(f"{name}-{place}")} for place, make in enumerate(chosen)]
        annotations = self._lifetime() if self._random.random() < 0.5 else {}
        spec = self._pod_spec(entries)
        await self._client.create(_object("v1", "Pod", name, NAMESPACE, spec=spec, annotations=annotations))
        return f"created {name} with {entries}"

    def _pod_spec(self, entries: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "schedulerName": self._random.choice(self._cluster.scheduler_names),
            "restartPolicy": "Never",
            "containers": [{"name": "c", "image": "x"}],
            "resourceClaims": entries,
        }

    def _lifetime(self) -> dict[str, str]:
        return {ENDS_AFTER: str(self._random.randint(10, 900))}

    async def _own_claim(self, name: str) -> dict[str, str]:
        nic = self._random.choice(
            (
                _exactly(NIC, bandwidth=f"{self._random.choice((1, 2, 5, 8))}G"),
                _exactly(NIC),
                _exactly(NIC, count=2),
                {"firstAvailable": [_alternative("big", "9G"), _alternative("small", "1G")]},
                _exactly(PARTITION),
                _exactly(PARTITION, count=2),
            )
        )
        await self._create_claim(name, nic)
        return {"resourceClaimName": name}

    async def _shared_claim(self, _: str) -> dict[str, str]:
        name = f"shared-{self._random.randrange(3)}"
        await self._ensure_claim(name, _exactly(NIC, bandwidth="1G"))
        return {"resourceClaimName": name}

    async def _training_claim(self, _: str) -> dict[str, str]:
        """A claim that is reserved for a workload, which ends at some time."""
        name = f"training-{self._random.randrange(2)}"
        reference = {
            "apiGroup": TRAINING_GROUP,
            "resource": "trainings",
            "name": name,
            "uid": f"uid-{self._next_number()}",
        }
        await self._ensure_claim(name, _exactly(NIC, bandwidth="1G"), reservedFor=reference)
        return {"resourceClaimName": name}

    async def _templated(self, _: str) -> dict[str, str]:
        return {"resourceClaimTemplateName": self._random.choice(("nic", "partition"))}

    async def _ensure_claim(self, name: str, form: dict[str, Any], **more: Any) -> None:
        try:
            await self._client.get(ResourceClaim, name)
        except NotFound:
            await self._create_claim(name, form, **more)

    async def _create_claim(self, name: str, form: dict[str, Any], **more: Any) -> None:
        if "exactly" in form and self._random.random() < 0.2:
            form["exactly"]["tolerations"] = [self._toleration()]
        await self._client.create(
            _object(RESOURCE, "ResourceClaim", name, NAMESPACE, spec={**_claim_spec(form), **more})
        )

    def _toleration(self) -> dict[str, Any]:
        key = self._random.choice(("example.com/sick", "example.com/drain"))
        tolerated: dict[str, Any] = {"key": key, "operator": "Exists"}
        if self._random.random() < 0.5:
            tolerated |= {"effect": "NoExecute", "tolerationSeconds": self._random.randint(0, 300)}
        return tolerated

    async def delete_pod(self) -> str:
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

    async def end_all(self) -> None:
        """Delete all jobs, pods and taint rules."""
        for job in await self._client.list(Job):
            await self._client.calls.delete(
                resource_for(Job), ObjectKey(NAMESPACE, job.metadata.name), propagation="Background"
            )
        for pod in await self._client.list(Pod):
            try:
                await self._client.delete(Pod, pod.metadata.name)
            except NotFound:
                continue
        for rule in await self._client.list(DeviceTaintRule):
            await self._client.delete(DeviceTaintRule, rule.metadata.name)

    async def end_trainings(self) -> None:
        while await self._end_training() != NO_TRAINING:
            continue

    async def _end_training(self) -> str:
        """Remove the reservation of a workload whose pods are gone; other reservations stay."""
        pods = await self._client.list(Pod)
        used = {use.claim for pod in pods if not pod.is_finished for use in claims_of(pod)}
        for claim in await self._client.list(ResourceClaim):
            kept = [entry for entry in claim.status.reserved_for if entry.api_group != TRAINING_GROUP]
            if len(kept) < len(claim.status.reserved_for) and claim.metadata.name not in used:
                patch = {
                    "metadata": {"resourceVersion": claim.metadata.resource_version},
                    "status": {"reservedFor": kept or None},
                }
                await self._client.patch(ResourceClaim, claim.metadata.name, patch, subresource="status")
                return f"ended {claim.metadata.name}; {sum(map(is_pod, kept))} pods keep their reservation"
        return NO_TRAINING

    # --- Jobs -------------------------------------------------------------------------------------------------------

    async def _create_job(self) -> str:
        if len(await self._client.list(Job)) >= JOBS_MAX:
            return await self._delete_job()
        name = f"job-{self._next_number()}"
        template = {
            "metadata": {"annotations": self._lifetime()},
            "spec": self._pod_spec([{"name": "shared", "resourceClaimName": name}]),
        }
        spec = {
            "parallelism": self._random.randint(1, 4),
            "completions": self._random.randint(1, 6),
            "template": template,
            "ttlSecondsAfterFinished": self._random.choice((0, 60)),
        }
        annotations = {SHARED_CLAIMS: f"{name}=nic"}
        await self._client.create(_object("batch/v1", "Job", name, NAMESPACE, spec=spec, annotations=annotations))
        return f"created {name}"

    async def _delete_job(self) -> str:
        jobs = await self._client.list(Job)
        if not jobs:
            return "no job to delete"
        name = self._random.choice(jobs).metadata.name
        await self._client.calls.delete(resource_for(Job), ObjectKey(NAMESPACE, name), propagation="Background")
        return f"deleted {name}"

    # --- Drivers and operators --------------------------------------------------------------------------------------

    async def _republish(self) -> str:
        """Publish changed devices: other taints, shareable or not, a new generation."""
        node = self._random.choice(NODES)
        for published in self._devices.slices(node, 1 + self._next_number()):
            await self._client.apply(published, force=True)
        return f"republished {node}"

    async def _taint(self) -> str:
        selector = {"driver": NIC, "device": f"eth{self._random.randrange(3)}"}
        effect = self._random.choice(("NoSchedule", "NoExecute", "None"))
        spec = {"deviceSelector": selector, "taint": {"key": "example.com/drain", "effect": effect}}
        name = f"rule-{self._next_number()}"
        await self._client.create(_object(RESOURCE, "DeviceTaintRule", name, spec=spec))
        return f"tainted {selector} {effect}"

    async def _untaint(self) -> str:
        rules = await self._client.list(DeviceTaintRule)
        if not rules:
            return "no rule to delete"
        await self._client.delete(DeviceTaintRule, rules[0].metadata.name)
        return f"deleted {rules[0].metadata.name}"

    async def _cordon(self) -> str:
        node, closed = self._random.choice(NODES), self._random.random() < 0.4
        await self._client.patch(Node, node, {"spec": {"unschedulable": closed or None}})
        return f"{'cordoned' if closed else 'uncordoned'} {node}"

    async def _restart_component(self) -> str:
        name = self._random.choice(self._cluster.component_names)
        await self._cluster.kill(name)
        self._cluster.start(name, FeatureGates.defaults())
        return f"restarted {name}"

    async def _change_gates(self) -> str:
        """Restart the server or another component with other feature gates."""
        gate, on = self._random.choice(SWITCHED), self._random.random() < 0.6
        gates = FeatureGates.defaults().override({gate: on})
        name = self._random.choice(("server", *self._cluster.component_names))
        if name == "server":
            await self._cluster.restart_server(gates)
        else:
            await self._cluster.kill(name)
            self._cluster.start(name, gates)
        return f"{name} with {gate}={on}"


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
    return {"devices": {"requests": [{"name": "request", **form}]}}


def _exactly(driver: str, *, bandwidth: str = "", count: int = 1) -> dict[str, Any]:
    exactly: dict[str, Any] = {"deviceClassName": driver, "count": count}
    if bandwidth:
        exactly["capacity"] = {"requests": {"bandwidth": bandwidth}}
    return {"exactly": exactly}


def _alternative(name: str, bandwidth: str) -> dict[str, Any]:
    return {"name": name, "deviceClassName": NIC, "capacity": {"requests": {"bandwidth": bandwidth}}}
