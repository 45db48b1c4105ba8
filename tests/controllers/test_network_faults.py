"""Controllers converge over a network that loses requests, answers and watches, and after crashes."""

from __future__ import annotations

from random import Random

import pytest

from dralloc.api.pod_claims import POD_CLAIM_NAME
from dralloc.api.pod_v1 import Pod
from dralloc.primitives.errors import Conflict, NotFound
from dralloc.simulator.network import Faults
from dralloc.simulator.virtual_time import run_virtual
from dralloc.testing.builders import allocation, claim, held, request
from tests.support.controlled_cluster import ControlledCluster, controlled_cluster
from tests.support.workloads import claim_template, existing, pod, template

HARSH = Faults(lose_request=0.2, lose_answer=0.2, break_stream=0.1)
SOUND = Faults()

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
