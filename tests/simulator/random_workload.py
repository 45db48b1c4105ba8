"""Random actions of users, drivers and operators: they create, change and delete pods, claims, jobs and devices."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from random import Random
from typing import Any, Final

from dralloc.client.async_client import Propagation
from dralloc.client.known_resources import resource_for
from dralloc.client.transport import TransportError
from dralloc.client.typed_resource import ObjectKey
from dralloc.controllers.jobs.plan import SHARED_CLAIMS
from dralloc.kube.batch_v1 import Job
from dralloc.kube.core_v1 import Node
from dralloc.kube.kind import Kind
from dralloc.kube.pod_claims import CLAIM_FINALIZER, claims_of, is_pod
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.quota import CLAIM_COUNT
from dralloc.kube.registry import DEVICE_TAINT_RULE, JOB, POD, RESOURCE_CLAIM
from dralloc.kube.resource_v1 import DeviceTaintRule, ResourceClaim
from dralloc.kube.scheduling_v1beta1 import PodGroup
from dralloc.node.simulated_runtime import PREFIX
from dralloc.primitives.errors import ApiError, NotFound
from dralloc.server.read.api_resources import name_of, namespace_of
from tests.simulator.cluster import NODES, SimulatedCluster
from tests.simulator.documents import RESOURCE, Document, alternative, claim_spec, document, exactly
from tests.simulator.random_devices import ATTRIBUTES, DRIVERS, NIC, PARTITION
from tests.simulator.random_faults import RandomFaults
from tests.simulator.random_gangs import RandomGangs

NAMESPACE: Final = "default"
LIMITED: Final = "limited"
LIMITED_CLAIMS_MAX: Final = 3
OTHER: Final = "other"
# The priority classes of pods, from the lowest.
PRIORITIES: Final = ("usual", "urgent")
PODS_MAX: Final = 16
JOBS_MAX: Final = 2
DISTINCT: Final = {"distinctAttributes": [f"{NIC}/{name}" for name in ATTRIBUTES]}
# The API group of a workload that the server does not know.
TRAINING_GROUP: Final = "example.com"
TYPES: Final[dict[Kind, Any]] = {POD: Pod, RESOURCE_CLAIM: ResourceClaim, JOB: Job}
NO_TRAINING: Final = "no training to end"
PROPAGATIONS: Final[tuple[Propagation, ...]] = ("Background", "Background", "Foreground", "Orphan")


class RandomWorkload:
    """Random actions on one cluster, with or without gangs. Each is one or a few calls and returns a line that says what it did."""

    def __init__(self, cluster: SimulatedCluster, random: Random, *, with_gangs: bool = True) -> None:
        self._cluster = cluster
        self._client = cluster.client
        self._random = random
        self._number = 0
        self._faults = RandomFaults(cluster, random)
        self._gangs = RandomGangs(cluster, random, self._pod_spec, self._lifetime)
        self._with_gangs = with_gangs
        self._actions: list[tuple[int, Callable[[], Awaitable[str]]]] = [
            (500, self._read),
            (300, self._touch),
            (300, self._create_pod),
            (200, self.delete_pod),
            *(self._gangs.actions if with_gangs else ()),
            (40, self._create_job),
            (20, self._delete_job),
            (40, self._delete_claim),
            (40, self._create_limited_claim),
            (30, self._create_wrong_reference),
            (30, self._end_training),
            (40, self._republish),
            (30, self._taint),
            (30, self._untaint),
            (20, self._cordon),
            (30, self._faults.restart_component),
            (20, self._faults.restart_server),
            (10, self._faults.change_gates),
            (20, self._faults.pause),
            (20, self._faults.cut),
            (10, self._faults.jump_clock),
            (30, self._faults.storage_fault),
            (12, self._faults.back_up),
            (8, self._faults.restore),
        ]
        self._weights = [weight for weight, _ in self._actions]

    async def prepare(self) -> None:
        """Create classes, templates, namespaces and a quota."""
        for driver in DRIVERS:
            selector = {"cel": {"expression": f'device.driver == "{driver}"'}}
            await self._client.create(document(RESOURCE, "DeviceClass", driver, spec={"selectors": [selector]}))
        for name, form in (("nic", exactly(NIC, bandwidth="2G")), ("partition", exactly(PARTITION))):
            spec = {"spec": claim_spec(form)}
            await self._client.create(document(RESOURCE, "ResourceClaimTemplate", name, NAMESPACE, spec=spec))
        for value, name in enumerate(PRIORITIES, start=1):
            await self._client.create(document("scheduling.k8s.io/v1", "PriorityClass", name, value=value))
        quota = {"hard": {CLAIM_COUNT: str(LIMITED_CLAIMS_MAX)}}
        for name in (LIMITED, OTHER):
            await self._client.create(document("v1", "Namespace", name))
        await self._client.create(document("v1", "ResourceQuota", "claims", LIMITED, spec=quota))
        await self._gangs.prepare()

    async def act(self) -> str:
        """Run a random action; a refusal by the server is part of the game."""
        (_, action), *_ = self._random.choices(self._actions, self._weights)
        if self._cluster.backend.needs_restart and self._random.random() < 0.3:
            action = self._faults.restart_server
        try:
            return await action()
        except ApiError as refusal:
            return f"{action.__name__}: refused: {refusal.message[:100]}"
        except TransportError as failure:
            return f"{action.__name__}: {failure}"

    def _next_number(self) -> int:
        self._number += 1
        return self._number

    # --- Pods and their claims --------------------------------------------------------------------------------------

    async def _create_pod(self) -> str:
        if len(self._cluster.keys(POD)) >= PODS_MAX:
            return await self.delete_pod()
        name = f"pod-{self._next_number()}"
        makers = (self._own_claim, self._own_claim, self._shared_claim, self._templated, self._training_claim)
        chosen = self._random.choices(makers, k=self._random.choice((1, 1, 1, 2)))
        entries = [{"name": f"entry-{place}", **await make(f"{name}-{place}")} for place, make in enumerate(chosen)]
        annotations = self._lifetime() if self._random.random() < 0.5 else {}
        spec = self._pod_spec(entries)
        await self._client.create(document("v1", "Pod", name, NAMESPACE, spec=spec, annotations=annotations))
        return f"created {name} with {entries}"

    def _pod_spec(self, entries: list[Document]) -> Document:
        return {
            "schedulerName": self._random.choice(self._cluster.scheduler_names),
            "restartPolicy": "Never",
            "containers": [{"name": "c", "image": "x"}],
            "resourceClaims": entries,
            "priorityClassName": self._random.choice(("", "", *PRIORITIES)),
        }

    def _lifetime(self) -> dict[str, str]:
        return {f"{PREFIX}run-seconds": str(self._random.randint(10, 900))}

    async def _own_claim(self, name: str) -> dict[str, str]:
        nic = self._random.choice(
            (
                exactly(NIC, bandwidth=f"{self._random.choice((1, 2, 5, 8))}G"),
                exactly(NIC),
                exactly(NIC, bandwidth="1G", limit="8G"),
                exactly(NIC, limit="2G"),
                exactly(NIC, count=2),
                exactly(NIC, bandwidth="1G", devicePreference=self._random.choice(("LeastAvailable", "MostAvailable"))),
                exactly(NIC, bandwidth="1G", allocations={"max": 1}),
                exactly(NIC, bandwidth="12G", count=3, allocationMode="AggregatedCapacity"),
                {**exactly(NIC, bandwidth="1G", count=2), "constraints": [DISTINCT]},
                {"firstAvailable": [alternative(NIC, "big", "9G"), alternative(NIC, "small", "1G")]},
                exactly(PARTITION),
                exactly(PARTITION, count=2),
            )
        )
        await self._create_claim(name, nic)
        return {"resourceClaimName": name}

    async def _shared_claim(self, _: str) -> dict[str, str]:
        name = f"shared-{self._random.randrange(3)}"
        await self._ensure_claim(name, exactly(NIC, bandwidth="1G"))
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
        await self._ensure_claim(name, exactly(NIC, bandwidth="1G"), reservedFor=reference)
        return {"resourceClaimName": name}

    async def _templated(self, _: str) -> dict[str, str]:
        return {"resourceClaimTemplateName": self._random.choice(("nic", "partition"))}

    async def _ensure_claim(self, name: str, form: Document, **more: Any) -> None:
        try:
            await self._client.get(ResourceClaim, name)
        except NotFound:
            await self._create_claim(name, form, **more)

    async def _create_claim(self, name: str, form: Document, **more: Any) -> None:
        if "exactly" in form and self._random.random() < 0.2:
            form["exactly"]["tolerations"] = [self._toleration()]
        await self._client.create(
            document(RESOURCE, "ResourceClaim", name, NAMESPACE, spec={**claim_spec(form), **more})
        )

    def _toleration(self) -> Document:
        key = self._random.choice(("example.com/sick", "example.com/drain"))
        tolerated: Document = {"key": key, "operator": "Exists"}
        if self._random.random() < 0.5:
            tolerated |= {"effect": "NoExecute", "tolerationSeconds": self._random.randint(0, 300)}
        return tolerated

    async def delete_pod(self) -> str:
        pods = self._cluster.keys(POD)
        if not pods:
            return "no pod to delete"
        key = self._random.choice(pods)
        await self._client.delete(Pod, name_of(key), namespace=namespace_of(POD, key))
        return f"deleted {name_of(key)}"

    async def _delete_claim(self) -> str:
        claims = self._cluster.keys(RESOURCE_CLAIM)
        if not claims:
            return "no claim to delete"
        key = self._random.choice(claims)
        name, namespace = name_of(key), namespace_of(RESOURCE_CLAIM, key)
        if is_forced := self._random.random() < 0.2:
            await self._client.patch(ResourceClaim, name, {"metadata": {"finalizers": None}}, namespace=namespace)
        propagation = self._random.choice(PROPAGATIONS)
        await self._client.delete(ResourceClaim, name, namespace=namespace, propagation=propagation)
        return f"deleted claim {name} ({propagation}{', without its finalizers' if is_forced else ''})"

    async def _create_limited_claim(self) -> str:
        """A claim in a namespace with a quota, which is often exceeded."""
        name = f"limited-{self._next_number()}"
        spec = claim_spec(exactly(NIC, bandwidth="1G"))
        await self._client.create(document(RESOURCE, "ResourceClaim", name, LIMITED, spec=spec))
        return f"created {name}"

    async def _create_wrong_reference(self) -> str:
        """A claim for a job that does not exist, with the UID of one that does, in another namespace or in the same."""
        jobs = self._cluster.keys(JOB)
        if not jobs:
            return "no job to refer to"
        job = self._cluster.object(self._random.choice(jobs), Job)
        namespace = self._random.choice((NAMESPACE, OTHER))
        name = f"wrong-{self._next_number()}"
        reference = {"apiGroup": "batch", "resource": "jobs", "name": name, "uid": job.metadata.uid}
        spec = {**claim_spec(exactly(NIC, bandwidth="1G")), "reservedFor": reference}
        await self._client.create(document(RESOURCE, "ResourceClaim", name, namespace, spec=spec))
        entries = [{"name": "entry", "resourceClaimName": name}]
        pod = document("v1", "Pod", name, namespace, spec=self._pod_spec(entries), annotations=self._lifetime())
        await self._client.create(pod)
        return f"created {namespace}/{name} for a job with the UID of {job.metadata.name}"

    async def end_all(self) -> None:
        """Delete all jobs, groups, pods, taint rules, and claims whose finalizer a user has removed."""
        for job in await self._client.list(Job):
            await self._client.calls.delete(
                resource_for(Job), ObjectKey(NAMESPACE, job.metadata.name), propagation="Background"
            )
        # The garbage collector deletes pods and groups of jobs at the same time.
        for kind in (Pod, PodGroup):
            for each in await self._client.list(kind):
                with suppress(NotFound):
                    await self._client.delete(kind, each.metadata.name, namespace=each.metadata.namespace)
        for rule in await self._client.list(DeviceTaintRule):
            await self._client.delete(DeviceTaintRule, rule.metadata.name)
        for claim in await self._client.list(ResourceClaim):
            # Its deletion was refused after that. Without the finalizer, no controller deallocates a claim, as in Kubernetes.
            if claim.status.allocation is not None and CLAIM_FINALIZER not in claim.metadata.finalizers:
                with suppress(NotFound):
                    await self._client.delete(ResourceClaim, claim.metadata.name, namespace=claim.metadata.namespace)

    async def end_trainings(self) -> None:
        while await self._end_training() != NO_TRAINING:
            continue

    async def _end_training(self) -> str:
        """Remove the reservation of a workload whose pods are gone; other reservations stay."""
        pods = self._cluster.stored(POD, Pod)
        used = {use.claim for pod in pods if not pod.is_finished for use in claims_of(pod)}
        for claim in self._cluster.stored(RESOURCE_CLAIM, ResourceClaim):
            kept = [entry for entry in claim.status.reserved_for if entry.api_group != TRAINING_GROUP]
            if len(kept) < len(claim.status.reserved_for) and claim.metadata.name not in used:
                patch = {
                    "metadata": {"resourceVersion": claim.metadata.resource_version},
                    "status": {"reservedFor": kept or None},
                }
                await self._client.patch(
                    ResourceClaim, claim.metadata.name, patch, namespace=claim.metadata.namespace, subresource="status"
                )
                return f"ended {claim.metadata.name}; {sum(map(is_pod, kept))} pods keep their reservation"
        return NO_TRAINING

    async def _read(self) -> str:
        """Get an object or list a resource; the answers are compared with the history."""
        kind = self._random.choice((POD, RESOURCE_CLAIM, JOB))
        keys = self._cluster.keys(kind)
        if not keys or self._random.random() < 0.2:
            items, revision = await self._client.calls.list_all(resource_for(TYPES[kind]), page_size=5)
            return f"listed {len(items)} {kind.plural} at {revision}"
        key = self._random.choice(keys)
        await self._client.get(TYPES[kind], name_of(key), namespace=namespace_of(kind, key))
        return f"read {kind.plural} {name_of(key)}"

    async def _touch(self) -> str:
        """Change an annotation."""
        kind = self._random.choice((POD, RESOURCE_CLAIM, JOB))
        keys = self._cluster.keys(kind)
        if not keys:
            return f"no {kind.plural} to touch"
        key = self._random.choice(keys)
        patch = {"metadata": {"annotations": {"simulator/touched": str(self._next_number())}}}
        await self._client.patch(TYPES[kind], name_of(key), patch, namespace=namespace_of(kind, key))
        return f"touched {kind.plural} {name_of(key)}"

    # --- Jobs -------------------------------------------------------------------------------------------------------

    async def _create_job(self) -> str:
        if len(self._cluster.keys(JOB)) >= JOBS_MAX:
            return await self._delete_job()
        name = f"job-{self._next_number()}"
        template = {
            "metadata": {"annotations": self._lifetime()},
            "spec": self._pod_spec([{"name": "shared", "resourceClaimName": name}]),
        }
        spec: Document = {
            "parallelism": self._random.randint(1, 4),
            "completions": self._random.randint(1, 6),
            "template": template,
            "ttlSecondsAfterFinished": self._random.choice((0, 60)),
        }
        if self._with_gangs and self._random.random() < 0.4:
            # The pods are a gang, of as many as run at the same time.
            spec["scheduling"] = {"schedulingPolicy": {"gang": {}}}
        annotations = {SHARED_CLAIMS: f"{name}=nic"}
        await self._client.create(document("batch/v1", "Job", name, NAMESPACE, spec=spec, annotations=annotations))
        return f"created {name}"

    async def _delete_job(self) -> str:
        jobs = self._cluster.keys(JOB)
        if not jobs:
            return "no job to delete"
        name, propagation = name_of(self._random.choice(jobs)), self._random.choice(("Background", "Foreground"))
        await self._client.calls.delete(resource_for(Job), ObjectKey(NAMESPACE, name), propagation=propagation)
        return f"deleted {name} ({propagation})"

    # --- Drivers and operators --------------------------------------------------------------------------------------

    async def _republish(self) -> str:
        """Publish changed devices."""
        machine = self._random.choice(tuple(self._cluster.machines))
        await machine.change_devices()
        return f"republished {machine.name}"

    async def _taint(self) -> str:
        selector = {"driver": NIC, "device": f"eth{self._random.randrange(3)}"}
        effect = self._random.choice(("NoSchedule", "NoExecute", "None"))
        spec = {"deviceSelector": selector, "taint": {"key": "example.com/drain", "effect": effect}}
        name = f"rule-{self._next_number()}"
        await self._client.create(document(RESOURCE, "DeviceTaintRule", name, spec=spec))
        return f"tainted {selector} {effect}"

    async def _untaint(self) -> str:
        rules = self._cluster.keys(DEVICE_TAINT_RULE)
        if not rules:
            return "no rule to delete"
        await self._client.delete(DeviceTaintRule, name_of(rules[0]))
        return f"deleted {name_of(rules[0])}"

    async def _cordon(self) -> str:
        node, closed = self._random.choice(NODES), self._random.random() < 0.4
        await self._client.patch(Node, node, {"spec": {"unschedulable": closed or None}})
        return f"{'cordoned' if closed else 'uncordoned'} {node}"
