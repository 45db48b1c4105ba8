"""Controllers converge over a network that loses requests, answers and watches, and after crashes."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from random import Random
from typing import Any

import msgspec
import pytest

from dralloc.client.known_resources import resource_for
from dralloc.client.transport import ClientRequest, ClientResponse, Stream, Transport, TransportError
from dralloc.client.typed_resource import TypedResource
from dralloc.controllers.controller_set import ControllerSet
from dralloc.controllers.ephemeral_volumes import CLAIMS as VOLUME_CLAIMS
from dralloc.controllers.jobs.plan import SHARED_CLAIMS
from dralloc.kube.batch_v1 import Job
from dralloc.kube.meta_v1 import ApiObject
from dralloc.kube.pod_claims import POD_CLAIM_NAME
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.resource_v1 import ResourceClaim
from dralloc.kube.scheduling_v1beta1 import PodGroup
from dralloc.primitives.errors import Conflict, NotFound
from dralloc.primitives.features import FeatureGates
from dralloc.testing.builders import allocation, claim, held, request
from dralloc.testing.virtual_time import run_virtual
from tests.simulator.network import Faults
from tests.support.controlled_cluster import ControlledCluster, controlled_cluster
from tests.support.relay_transport import RelayTransport
from tests.support.scripted_transport import Loss, ScriptedTransport, failure
from tests.support.workloads import claim_template, existing, job, pod, pod_group, template

PODS_PATH = "/api/v1/pods"
JOBS_PATH = "/apis/batch/v1/jobs"
HARSH = Faults(lose_request=0.2, lose_answer=0.2, break_stream=0.1)
SOUND = Faults()

GATES = FeatureGates.parse("GenericWorkload=true,DRAWorkloadResourceClaims=true")
COLLECTING = FeatureGates.parse("GenericWorkload=true,WorkloadWithJob=true,DRAReservedForWorkloads=true")
VOLUME = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
NO_STREAMS: tuple[Stream, ...] = ()
CLAIMS = ("claim-templates", "claim-lifecycle")
PODS = 12


async def assert_claims_match_pods(cluster: ControlledCluster) -> None:
    """Every pod has the claims that it needs, and nothing is reserved for finished pods."""
    pods = {item.metadata.name: item for item in await cluster.client.list(Pod)}
    needed = {
        (name, entry.name)
        for name, item in pods.items()
        if not item.is_finished
        for entry in item.spec.resource_claims
        if entry.resource_claim_template_name
    }
    recorded = {
        status.resource_claim_name: (name, status.name)
        for name, item in pods.items()
        if not item.is_finished
        for status in item.status.resource_claim_statuses
    }
    assert set(recorded.values()) == needed
    own = [item for item in await cluster.claims() if POD_CLAIM_NAME in item.metadata.annotations]
    assert {item.metadata.name for item in own} == set(recorded), "no claim is missing or superfluous"
    alive = {item.metadata.uid for item in pods.values() if not item.is_finished}
    for item in await cluster.claims():
        assert {consumer.uid for consumer in item.status.reserved_for} <= alive
        assert (item.status.allocation is not None) == bool(item.status.reserved_for)


async def disturb(cluster: ControlledCluster, random: Random, number: int) -> None:
    """Bind, finish or delete a pod."""
    name = f"p{random.randrange(PODS)}"
    try:
        match random.choice(["schedule", "end", "remove"]):
            case "schedule":
                claim_name = "shared" if number % 2 else (await cluster.claim_of(name, "own")).metadata.name
                result = allocation(held(f"gpu-{number}"))
                item = await cluster.pod(name)
                if not item.is_finished and not item.spec.node_name:
                    await cluster.schedule(name, claim_name, result)
            case "end":
                await cluster.end_pod(name)
            case _:
                await cluster.remove_pod(name)
    except (NotFound, Conflict, StopIteration, RuntimeError):
        # The pod is gone, or a controller wrote first.
        return


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_claims_and_reservations_converge_over_a_bad_network(seed: int) -> None:
    async def main() -> None:
        random = Random(seed)
        async with controlled_cluster(only=CLAIMS, seed=seed) as cluster:
            cluster.network.faults = HARSH
            await cluster.client.create(claim_template("t", request()))
            await cluster.client.create(claim("shared", request()))
            for number in range(PODS):
                document = pod(f"p{number}", {"own": template("t"), "both": existing("shared")})
                await cluster.client.create(document)
                await cluster.settle(random.random())
            for number in range(4 * PODS):
                await disturb(cluster, random, number)
                await cluster.settle(random.random() * 3)
                if random.random() < 0.1:
                    await cluster.kill()
                    cluster.start()
            cluster.network.faults = SOUND
            await cluster.settle(300)
            await assert_claims_match_pods(cluster)

    run_virtual(main())


class WithoutEvents(RelayTransport):
    """The watches of one path show nothing."""

    def __init__(self, inner: Transport, path: str) -> None:
        super().__init__(inner)
        self._path = path
        self.created: Counter[str] = Counter()

    async def send(self, request: ClientRequest) -> ClientResponse:
        if request.method == "POST":
            self.created[request.path.rpartition("/")[2]] += 1
        return await self._inner.send(request)

    def stream(self, request: ClientRequest) -> AbstractAsyncContextManager[Stream]:
        return self._silent() if request.path == self._path else self._inner.stream(request)

    @asynccontextmanager
    async def _silent(self) -> AsyncIterator[Stream]:
        await asyncio.sleep(3600)
        for stream in NO_STREAMS:
            yield stream
        raise TransportError("no event")


class BlindToPods(WithoutEvents):
    """Lists and watches without a pod: those of a client whose list is from before the pod, and the next one from after it."""

    def __init__(self, inner: Transport) -> None:
        super().__init__(inner, PODS_PATH)

    async def send(self, request: ClientRequest) -> ClientResponse:
        response = await super().send(request)
        if request.path != PODS_PATH:
            return response
        return msgspec.structs.replace(
            response, body=msgspec.json.encode({**msgspec.json.decode(response.body), "items": []})
        )


@asynccontextmanager
async def blind_controllers(cluster: ControlledCluster, *only: str) -> AsyncIterator[None]:
    """Controllers that do not see pods run inside the block."""
    blind = ControllerSet(BlindToPods(cluster.network), clock=cluster.clock, gates=GATES, only=only)
    cluster.components.start("blind", blind.run)
    await cluster.settle(10)
    yield
    await cluster.settle(120)


def test_a_pod_that_no_list_and_no_watch_has_shown_leaves_no_reservation() -> None:
    async def main() -> None:
        async with controlled_cluster(only=("quota",), gates=GATES) as cluster:
            await cluster.client.create(claim("shared", request()))
            await cluster.client.create(pod("p", {"gpu": existing("shared")}))
            await cluster.schedule("p", "shared")
            async with blind_controllers(cluster, *CLAIMS):
                assert (await cluster.claim("shared")).status.reserved_for, "the pod exists"
                await cluster.remove_pod("p")
            assert not (await cluster.claim("shared")).status.reserved_for

    run_virtual(main())


def test_a_pod_that_no_list_and_no_watch_has_shown_does_not_keep_its_group() -> None:
    async def main() -> None:
        async with controlled_cluster(only=("quota",), gates=GATES) as cluster:
            await cluster.create(pod_group("g"), pod("p", group="g"))
            await cluster.client.delete(PodGroup, "g")
            async with blind_controllers(cluster, "pod-group-protection"):
                assert await cluster.client.list(PodGroup), "the pod exists"
                await cluster.remove_pod("p")
            assert not await cluster.client.list(PodGroup)

    run_virtual(main())


async def claims_to_devices_and_volumes(cluster: ControlledCluster) -> list[tuple[TypedResource[Any], ApiObject]]:
    resources: tuple[TypedResource[Any], ...] = (resource_for(ResourceClaim), VOLUME_CLAIMS)
    return [(each, item) for each in resources for item in (await cluster.calls().list_all(each))[0]]


def owners(claims: list[tuple[TypedResource[Any], ApiObject]]) -> list[str]:
    return sorted(claim.metadata.owner_references[0].name for _, claim in claims)


async def created_after_deletion(
    cluster: ControlledCluster, path: str, controller: str, kind: type[Job] | type[Pod], name: str
) -> tuple[Counter[str], Counter[str]]:
    """What a controller creates before and after the deletion of an object, which its watch of the path does not show."""
    late = WithoutEvents(cluster.network, path)
    controllers = ControllerSet(late, clock=cluster.clock, gates=COLLECTING, only=(controller,))
    cluster.components.start("late", controllers.run)
    await cluster.settle(20)
    before = Counter(late.created)
    await cluster.client.delete(kind, name)
    await cluster.settle(60)
    return before, late.created


def test_what_a_deleted_job_needs_is_not_created_again_and_again() -> None:
    """The watch of jobs is late: the controller still knows the job when its pods, claim and group are collected as garbage."""

    async def main() -> None:
        async with controlled_cluster(only=("quota",), gates=COLLECTING) as cluster:
            annotations = {SHARED_CLAIMS: "shared=t"}
            document = job("j", {"gpu": existing("shared")}, annotations=annotations, parallelism=2, completions=2)
            await cluster.create(claim_template("t", request()), document)
            before, after = await created_after_deletion(cluster, JOBS_PATH, "jobs", Job, "j")
            assert before.keys() >= {"resourceclaims", "pods", "workloads"}
            assert after == before

    run_virtual(main())


def test_the_claims_of_a_deleted_pod_are_not_created_again_and_again() -> None:
    async def main() -> None:
        async with controlled_cluster(only=("quota",), gates=COLLECTING) as cluster:
            await cluster.create(claim_template("t", request()), pod("p", {"gpu": template("t")}))
            before, after = await created_after_deletion(cluster, PODS_PATH, "claim-templates", Pod, "p")
            assert before == {"resourceclaims": 1}
            assert after == before

    run_virtual(main())


def test_the_volumes_of_a_deleted_pod_are_not_created_again_and_again() -> None:
    async def main() -> None:
        async with controlled_cluster(only=("quota",), gates=COLLECTING) as cluster:
            document = pod("p")
            document["spec"]["volumes"] = [{"name": "v", "ephemeral": {"volumeClaimTemplate": {"spec": VOLUME}}}]
            await cluster.create(document)
            before, after = await created_after_deletion(cluster, PODS_PATH, "ephemeral-volumes", Pod, "p")
            assert before == {"persistentvolumeclaims": 1}
            assert after == before

    run_virtual(main())


@pytest.mark.parametrize("owner", ["pods/p", "jobs/j", "podgroups/g"])
def test_what_an_owner_lost_that_seemed_to_be_gone_is_created_later(owner: str) -> None:
    """The owner was deleted and the watch did not show that yet, and a restored backup brings it back: nothing changes."""

    async def main() -> None:
        is_misled = False

        def script(request: ClientRequest) -> Loss | ClientResponse:
            asks = request.method == "GET" and request.path.endswith(owner)
            return failure("NotFound", 404) if is_misled and asks else Loss.NOTHING

        async with controlled_cluster(only=("quota",), gates=GATES) as cluster:
            controllers = ControllerSet(ScriptedTransport(cluster.network, script), clock=cluster.clock, gates=GATES)
            cluster.components.start("misled", controllers.run)
            volume = {"name": "v", "ephemeral": {"volumeClaimTemplate": {"spec": VOLUME}}}
            shared = job("j", {"gpu": existing("shared")}, annotations={SHARED_CLAIMS: "shared=t"})
            document = pod("p", {"gpu": template("t")})
            document["spec"]["volumes"] = [volume]
            await cluster.create(
                claim_template("t", request()), document, shared, pod_group("g", {"gpu": template("t")})
            )
            await cluster.settle(20)
            before = await claims_to_devices_and_volumes(cluster)
            assert owners(before) == ["g", "j", "p", "p"]
            is_misled = True
            for resource, claim in before:
                await cluster.calls().delete_unchanged(resource, claim)
            await cluster.settle(5)
            assert set(owners(before)) - set(owners(await claims_to_devices_and_volumes(cluster))) == {owner[-1]}
            is_misled = False
            await cluster.settle(120)
            assert owners(await claims_to_devices_and_volumes(cluster)) == owners(before)

    run_virtual(main())
