"""A pod whose decision takes long waits, and other users' pods do not. A decision that is interrupted ends as any other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from dralloc.kube.codec import decode, encode
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.resource_v1 import Device
from dralloc.primitives.features import FeatureGates
from dralloc.primitives.work_allowance import WorkExceeded, work_allowance
from dralloc.scheduler.contract import Decision, Placement, Rejection
from dralloc.scheduler.decide.cycle import Cycle
from dralloc.scheduler.queue.long_decisions import ALONE_WAIT_S, INTERRUPTIONS_REPORTED, TOLD, WAIT_S
from dralloc.testing.builders import DRIVER, claim, device, device_class, request, resource_slice
from tests.scheduler.cluster_values import NOW, ClusterValue, cluster
from tests.support.loop_steps import longest_step
from tests.support.scheduled_cluster import ScheduledCluster, in_cluster, node, our_pod
from tests.support.workloads import Document, pod_group

DIGITS = "[0,1,2,3,4,5,6,7,8,9]"
# A device takes 14 ms of processor time, or a thousand times as long as a simple selector.
COSTLY = "a + b + c + d < 99999"
for variable in "dcba":
    COSTLY = f"{DIGITS}.all({variable}, {COSTLY})"
NUMBER = f'device.attributes["{DRIVER}"].number'


def numbered(node_number: int, count: int = 64) -> list[Device]:
    """Devices of which no other is a copy."""
    return [device(f"d{number}", attributes={"number": 1000 * node_number + number}) for number in range(count)]


async def many_devices(scheduled: ScheduledCluster, nodes: int) -> None:
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}}
    await scheduled.create(namespace, device_class())
    for number in range(nodes):
        pool = f"n{number}"
        await scheduled.create(node(pool), resource_slice(pool, *numbered(number), pool=pool, node_name=pool))
    await scheduled.settle()


def of_other(document: Document) -> Document:
    return {**document, "metadata": {**document["metadata"], "namespace": "other"}}


@pytest.mark.slow
@in_cluster()
async def test_costly_selectors_do_not_keep_pods_of_others_waiting(cluster: ScheduledCluster) -> None:
    """One claim of 200 bytes took 18 s of processor time here, and hours with all that a claim may have."""
    await many_devices(cluster, nodes=20)
    with longest_step() as longest:
        where = f"{COSTLY} && {NUMBER} < 0"
        await cluster.create(claim("c", request(where=where)), our_pod("slow", "c"), of_other(our_pod("other")))
        await cluster.settle(WAIT_S / 2)
        assert (await cluster.pod("other", "other")).spec.node_name
        await cluster.settle(2 * ALONE_WAIT_S * INTERRUPTIONS_REPORTED)
    assert longest.seconds < 2
    assert (await cluster.condition("slow")).message == TOLD


@pytest.mark.slow
@in_cluster()
async def test_a_pod_of_the_same_namespace_gets_its_turn(cluster: ScheduledCluster) -> None:
    await many_devices(cluster, nodes=20)
    await cluster.create(claim("c", request(where=f"{COSTLY} && {NUMBER} < 0")), our_pod("slow", "c"))
    await cluster.create(our_pod("quick"))
    await cluster.settle(3 * WAIT_S)
    assert await cluster.node_of("quick")


@in_cluster()
async def test_many_ports_of_two_pods_are_not_compared_for_ever(cluster: ScheduledCluster) -> None:
    """This took 13 s of processor time with 8,000 ports."""
    await cluster.create(node("n"), {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}})
    await cluster.create(
        {
            **with_ports("first", "10.0.0.1"),
        },
        of_other(our_pod("before")),
    )
    await cluster.settle()
    with longest_step() as longest:
        await cluster.create(with_ports("second", "10.0.0.2"), of_other(our_pod("after")))
        await cluster.settle()
    assert await cluster.node_of("first")
    assert (await cluster.pod("after", "other")).spec.node_name
    assert longest.seconds < 1


def with_ports(name: str, address: str) -> Document:
    document = our_pod(name)
    ports = [{"containerPort": number, "hostPort": number, "hostIP": address} for number in range(1, 4_001)]
    document["spec"]["containers"][0]["ports"] = ports
    return document


@pytest.mark.slow
@in_cluster("GenericWorkload=true")
async def test_a_gang_whose_decision_is_interrupted_holds_nothing(cluster: ScheduledCluster) -> None:
    """Its first member has a place when the decision about the second is interrupted."""
    await many_devices(cluster, nodes=40)
    where = f"{COSTLY} && {NUMBER} < 0"
    members = [our_pod("first", "quick", group="g"), our_pod("second", "slow", group="g")]
    await cluster.create(claim("quick", request()), claim("slow", request(where=where)))
    await cluster.create(pod_group("g", min_count=2), *members, of_other(our_pod("other")))
    await cluster.settle(2)
    assert (await cluster.pod("other", "other")).spec.node_name
    assert not await cluster.devices_of("quick")


# --- A decision goes on where it was interrupted ----------------------------------------------------------------


def pod(**spec: Any) -> Pod:
    claims = {"resourceClaims": [{"name": "gpu", "resourceClaimName": "claim"}]}
    document = {"metadata": {"name": "p", "namespace": "default", "uid": "u"}}
    return decode(encode({**document, "spec": {"containers": [{"name": "main"}], **claims, **spec}}), Pod)


def patiently(value: ClusterValue, wanted: Pod, work: int) -> tuple[Decision, int]:
    """The decision, and how often it was interrupted."""
    cycle = Cycle(value, FeatureGates.defaults())
    for interruptions in range(1_000):
        try:
            with work_allowance(work):
                return cycle.decide(wanted, NOW), interruptions
        except WorkExceeded:
            continue
    raise AssertionError("the decision does not end")


ZONES = [{"matchExpressions": [{"key": f"zone-{number}", "operator": "Exists"}]} for number in range(20)]
HOSTS = [{"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["n3", "n4"]}]}]
DECISIONS: Mapping[str, tuple[Any, Document]] = {
    "selectors that match one device": (request(where=f"{NUMBER} == 4003"), {}),
    "selectors that match none": (request(where=f"{NUMBER} < 0"), {}),
    "a search that fits": (request(count=2, where=f"{NUMBER} >= 4000"), {}),
    "affinity to nodes": (
        request(),
        {
            "affinity": {
                "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": ZONES + HOSTS}}
            }
        },
    ),
    "affinity that no node has": (
        request(),
        {
            "affinity": {
                "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": ZONES}}
            }
        },
    ),
}


@pytest.mark.parametrize("name", DECISIONS)
def test_a_decision_that_is_interrupted_ends_as_any_other(name: str) -> None:
    wanted, spec = DECISIONS[name]
    nodes = {f"n{number}": numbered(number, 4) for number in range(6)}
    # What is found out about devices is kept with them, so that the second decision has a cluster of its own.
    at_once, _ = patiently(cluster(nodes, [claim("claim", wanted)]), pod(**spec), 10**9)
    in_pieces, interruptions = patiently(cluster(nodes, [claim("claim", wanted)]), pod(**spec), 0)
    assert interruptions
    match at_once, in_pieces:
        case Placement(), Placement():
            assert in_pieces.node == at_once.node
            assert in_pieces.new == at_once.new
        case Rejection(), Rejection():
            assert in_pieces.message == at_once.message
        case _:
            raise AssertionError(f"{at_once} is not {in_pieces}")


def test_a_table_of_other_pods_survives_an_interrupted_decision() -> None:
    value = cluster({"n0": numbered(0, 4)}, [claim("claim", request(where=f"{NUMBER} == 3"))])
    cycle = Cycle(value, FeatureGates.defaults())
    other = pod(resourceClaims=[])
    before = cycle.decide(other, NOW)
    with pytest.raises(WorkExceeded), work_allowance(-1):
        cycle.decide(pod(), NOW)
    assert isinstance(before, Placement)
    after = cycle.decide(other, NOW)
    assert isinstance(after, Placement)
    assert after.node == before.node
