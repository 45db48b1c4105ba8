"""The guard of claims in use: bindings and deallocations cannot both succeed, whatever their order and whichever server gets them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from random import Random
from typing import Any, NamedTuple

import pytest

from dralloc.primitives.features import FeatureGates
from dralloc.server.store.sqlite import SqliteStore
from dralloc.server.write.claim_use_guard import BoundPod, ClaimUsers, PodUse
from dralloc.testing.virtual_time import run_virtual
from tests.simulator.simulated_disk import DATABASE, SimulatedDisk
from tests.support.api_server import api_server
from tests.support.etcd_apis import etcd_apis
from tests.support.local_api import (
    CLAIMS,
    MERGE_PATCH,
    PODS,
    Answer,
    LocalApi,
    local_api,
    pod_document,
    refusal,
    settle,
    with_api,
)
from tests.support.local_api import claim_document as claim

GROUPS = "/apis/scheduling.k8s.io/v1beta1/namespaces/default/podgroups"
GROUP = {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "g", "uid": "u"}
JOB = {"apiGroup": "batch", "resource": "jobs", "name": "j", "uid": "u"}


def allocation(node: str = "n") -> dict[str, Any]:
    result = {"request": "gpu", "driver": "d.example.com", "pool": "p", "device": "gpu-0"}
    fields = [{"key": "metadata.name", "operator": "In", "values": [node]}]
    selector = {"nodeSelectorTerms": [{"matchFields": fields}]}
    return {"devices": {"results": [result]}, "nodeSelector": selector}


def pod(name: str = "p", **claims: str) -> dict[str, Any]:
    document = pod_document(name)
    used = claims or {"gpu": "c"}
    document["spec"]["resourceClaims"] = [{"name": entry, "resourceClaimName": each} for entry, each in used.items()]
    return document


async def bind(api: LocalApi, name: str = "p", node: str = "n") -> int:
    return (await api.call("POST", f"{PODS}/{name}/binding", await binding(api, name, node))).code


async def binding(api: LocalApi, name: str = "p", node: str = "n") -> dict[str, Any]:
    """A binding as schedulers send it."""
    uid = (await api.get(f"{PODS}/{name}"))["metadata"]["uid"]
    return {"metadata": {"uid": uid}, "target": {"kind": "Node", "name": node}}


async def deallocate(api: LocalApi, name: str = "c") -> int:
    patch = {"status": {"allocation": None, "reservedFor": None}}
    return (await api.call("PATCH", f"{CLAIMS}/{name}/status", patch, content_type=MERGE_PATCH)).code


async def prepare(api: LocalApi, *, workload: bool = False) -> None:
    """A pod without a node, and its claim, allocated and reserved as a scheduler does before it binds the pod."""
    made = claim("c")
    if workload:
        made["spec"]["reservedFor"] = JOB
    await api.create(CLAIMS, made)
    uid = (await api.create(PODS, pod()))["metadata"]["uid"]
    consumer = JOB if workload else {"resource": "pods", "name": "p", "uid": uid}
    status: dict[str, Any] = {"allocation": allocation(), "reservedFor": [consumer]}
    if workload:
        status["allocation"]["reservedForAnyPod"] = True
    await api.patch(f"{CLAIMS}/c/status", {"status": status})


async def assert_consistent(api: LocalApi) -> None:
    """A pod with a node has an allocated claim."""
    is_bound = "nodeName" in (await api.get(f"{PODS}/p"))["spec"]
    is_allocated = "allocation" in (await api.get(f"{CLAIMS}/c")).get("status", {})
    assert is_allocated or not is_bound


@pytest.mark.parametrize("workload", [False, True])
@with_api
async def test_a_claim_is_deallocated_only_after_its_bound_pods(api: LocalApi, workload: bool) -> None:
    await prepare(api, workload=workload)
    assert await bind(api) == 201
    answer = await refusal(api.patch(f"{CLAIMS}/c/status", {"status": {"allocation": None, "reservedFor": None}}))
    assert answer.code == 409
    assert "pod p (" in answer.document["message"]
    assert "has a node and uses the claim" in answer.document["message"]
    await api.patch(f"{PODS}/p/status", {"status": {"phase": "Succeeded"}})
    assert await deallocate(api) == 200


@with_api
async def test_a_pod_that_was_created_with_a_node_counts_and_a_deleted_one_does_not(api: LocalApi) -> None:
    await prepare(api)
    forced = pod("forced")
    forced["spec"]["nodeName"] = "n"
    await api.create(PODS, forced)
    assert await deallocate(api) == 409
    await api.delete(f"{PODS}/forced", gracePeriodSeconds="0")
    assert await deallocate(api) == 200


PROTECTION = "resource.kubernetes.io/delete-protection"


@pytest.mark.parametrize("workload", [False, True])
@with_api
async def test_a_claim_without_its_finalizer_is_not_removed_before_its_bound_pods(
    api: LocalApi, workload: bool
) -> None:
    await prepare(api, workload=workload)
    assert await bind(api) == 201
    await api.delete(f"{CLAIMS}/c")
    marked = await api.get(f"{CLAIMS}/c")
    assert marked["metadata"]["deletionTimestamp"]
    assert (marked["metadata"]["finalizers"], "allocation" in marked["status"]) == ([PROTECTION], True)
    answer = await refusal(api.patch(f"{CLAIMS}/c", {"metadata": {"finalizers": None}}))
    assert (answer.code, "has a node and uses the claim" in answer.document["message"]) == (409, True)
    await api.patch(f"{PODS}/p/status", {"status": {"phase": "Succeeded"}})
    await api.patch(f"{CLAIMS}/c", {"metadata": {"finalizers": None}})
    assert (await refusal(api.get(f"{CLAIMS}/c"))).code == 404


@pytest.mark.parametrize("policies", [("Foreground",), ("Orphan",), ("Foreground", "Background")])
@with_api
async def test_a_claim_in_use_is_removed_by_no_propagation_policy(api: LocalApi, policies: Sequence[str]) -> None:
    """Also not by the garbage collector, after the dependents, nor by a later deletion that does not wait for them."""
    await prepare(api)
    assert await bind(api) == 201
    uid = (await api.get(f"{CLAIMS}/c"))["metadata"]["uid"]
    owner = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "name": "c", "uid": uid}
    held = claim("d", ownerReferences=[{**owner, "blockOwnerDeletion": True}], finalizers=["example.com/held"])
    if len(policies) > 1:
        await api.create(CLAIMS, held)
    for policy in policies:
        await settle()
        await api.delete(f"{CLAIMS}/c", propagationPolicy=policy)
    await settle()
    metadata = (await api.get(f"{CLAIMS}/c"))["metadata"]
    assert (metadata["finalizers"], "deletionTimestamp" in metadata) == ([PROTECTION], True)
    await api.patch(f"{PODS}/p/status", {"status": {"phase": "Succeeded"}})
    await api.patch(f"{CLAIMS}/c", {"metadata": {"finalizers": None}})
    assert (await refusal(api.get(f"{CLAIMS}/c"))).code == 404


@with_api
async def test_a_claim_that_no_bound_pod_uses_is_removed_at_once(api: LocalApi) -> None:
    await prepare(api)
    await api.delete(f"{CLAIMS}/c")
    assert (await refusal(api.get(f"{CLAIMS}/c"))).code == 404
    assert await bind(api) == 409


@with_api
async def test_a_pod_keeps_its_devices_if_the_owner_of_its_claim_is_changed(api: LocalApi) -> None:
    document = pod_document()
    document["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "t"}]
    uid = (await api.create(PODS, document))["metadata"]["uid"]
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": uid, "controller": True}
    await api.create(CLAIMS, claim("c", ownerReferences=[owner]))
    await api.patch(
        f"{PODS}/p/status", {"status": {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "c"}]}}
    )
    consumer = {"resource": "pods", "name": "p", "uid": uid}
    await api.patch(f"{CLAIMS}/c/status", {"status": {"allocation": allocation(), "reservedFor": [consumer]}})
    assert await bind(api) == 201
    await api.patch(f"{CLAIMS}/c", {"metadata": {"ownerReferences": None}})
    assert await deallocate(api) == 409
    assert (await refusal(api.patch(f"{CLAIMS}/c/status", {"status": {"reservedFor": None}}))).code == 409


@with_api
async def test_a_bound_pod_stays_listed_and_a_workload_need_not(api: LocalApi) -> None:
    await prepare(api)
    assert await bind(api) == 201
    listed = (await api.get(f"{CLAIMS}/c"))["status"]["reservedFor"]
    both = {"status": {"reservedFor": [*listed, JOB]}}
    await api.patch(f"{CLAIMS}/c/status", both)
    assert (await refusal(api.patch(f"{CLAIMS}/c/status", {"status": {"reservedFor": [JOB]}}))).code == 409
    await api.patch(f"{CLAIMS}/c/status", {"status": {"reservedFor": listed}})


def test_the_group_of_a_bound_pod_stays_listed() -> None:
    """A controller that does not know of a restored back-up yet takes groups off their claims that have come back."""

    async def scenario() -> None:
        async with local_api(gates=FeatureGates.parse("GenericWorkload=true,DRAWorkloadResourceClaims=true")) as api:
            await api.create(CLAIMS, claim("c"))
            member = pod()
            member["spec"]["schedulingGroup"] = {"podGroupName": "g"}
            uid = (await api.create(PODS, member))["metadata"]["uid"]
            await api.patch(f"{CLAIMS}/c/status", {"status": {"allocation": allocation(), "reservedFor": [GROUP]}})
            assert await bind(api) == 201
            answer = await refusal(api.patch(f"{CLAIMS}/c/status", {"status": {"reservedFor": None}}))
            assert answer.code == 409
            assert f"pod p ({uid}) has a node and uses the claim" in answer.document["message"]
            listed = {"resource": "pods", "name": "p", "uid": uid}
            await api.patch(f"{CLAIMS}/c/status", {"status": {"reservedFor": [listed]}})

    run_virtual(scenario())


def test_the_pods_of_a_group_keep_their_devices_if_the_group_is_orphaned() -> None:
    """The claim was made for the group, and has lost that owner."""

    async def scenario() -> None:
        async with local_api(gates=FeatureGates.parse("GenericWorkload=true,DRAWorkloadResourceClaims=true")) as api:
            group = await api.create(GROUPS, {"metadata": {"name": "g"}, "spec": {"schedulingPolicy": {"basic": {}}}})
            owner = {"apiVersion": "scheduling.k8s.io/v1beta1", "kind": "PodGroup", "name": "g", "controller": True}
            await api.create(CLAIMS, claim("c", ownerReferences=[{**owner, "uid": group["metadata"]["uid"]}]))
            member = pod_document()
            member["spec"]["schedulingGroup"] = {"podGroupName": "g"}
            member["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "t"}]
            await api.create(PODS, member)
            made = {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "c"}]}
            await api.patch(f"{PODS}/p/status", {"status": made})
            await api.patch(f"{CLAIMS}/c/status", {"status": {"allocation": allocation(), "reservedFor": [GROUP]}})
            assert await bind(api) == 201
            await api.delete(f"{GROUPS}/g", propagationPolicy="Orphan")
            await settle()
            assert not (await api.get(f"{CLAIMS}/c"))["metadata"].get("ownerReferences")
            assert (await refusal(api.patch(f"{CLAIMS}/c/status", {"status": {"reservedFor": None}}))).code == 409
            assert await deallocate(api) == 409

    run_virtual(scenario())


@with_api
async def test_a_pod_is_not_bound_without_its_devices(api: LocalApi) -> None:
    await api.create(PODS, pod())
    answer = await api.call("POST", f"{PODS}/p/binding", await binding(api))
    assert answer.code == 409
    assert "claim c does not exist" in answer.document["message"]
    await api.create(CLAIMS, claim("c"))
    answer = await api.call("POST", f"{PODS}/p/binding", await binding(api))
    assert answer.code == 409
    assert "claim c is not allocated" in answer.document["message"]
    await api.patch(f"{CLAIMS}/c/status", {"status": {"allocation": allocation("other")}})
    answer = await api.call("POST", f"{PODS}/p/binding", await binding(api))
    assert answer.code == 409
    assert "claim c is not reserved for it" in answer.document["message"]
    uid = (await api.get(f"{PODS}/p"))["metadata"]["uid"]
    reserved = [{"resource": "pods", "name": "p", "uid": uid}]
    await api.patch(f"{CLAIMS}/c/status", {"status": {"reservedFor": reserved}})
    await api.create("/api/v1/nodes", {"metadata": {"name": "n"}})
    answer = await api.call("POST", f"{PODS}/p/binding", await binding(api))
    assert "the devices of claim c are not available on node n" in answer.document["message"]
    assert await bind(api, node="other") == 201


class RunningStore(NamedTuple):
    api: LocalApi
    store: SqliteStore
    disk: SimulatedDisk


@asynccontextmanager
async def sqlite_api() -> AsyncIterator[RunningStore]:
    disk = SimulatedDisk(Random(1))
    try:
        async with await SqliteStore.open(DATABASE, disk=disk) as store, api_server(store=store) as server:
            yield RunningStore(LocalApi(server), store, disk)
    finally:
        disk.close()


async def reserved_for_pod(api: LocalApi) -> dict[str, Any]:
    """A claim that is allocated, and reserved for the pod."""
    uid = (await api.get(f"{PODS}/p"))["metadata"]["uid"]
    return {"status": {"allocation": allocation(), "reservedFor": [{"resource": "pods", "name": "p", "uid": uid}]}}


async def remove_reservation_and_bind(api: LocalApi) -> tuple[Answer, Answer]:
    """Both at the same time, of a claim that is reserved for the pod."""
    await api.create(CLAIMS, claim("c"))
    await api.create(PODS, pod())
    reserved, unreserved = await reserved_for_pod(api), {"status": {"reservedFor": None}}
    # The first guarded write takes the fence over, and others wait for that.
    for status in reserved, unreserved, reserved:
        await api.patch(f"{CLAIMS}/c/status", status)
    removal = api.call("PATCH", f"{CLAIMS}/c/status", unreserved, content_type=MERGE_PATCH)
    return await asyncio.gather(removal, api.call("POST", f"{PODS}/p/binding", await binding(api)))


def test_a_pod_is_not_bound_while_its_reservation_is_being_removed() -> None:
    """The removal is queued, and readers still see the reservation."""

    async def scenario() -> None:
        async with sqlite_api() as (api, _, _):
            removed, answer = await remove_reservation_and_bind(api)
            assert (removed.code, answer.code) == (200, 409)
            assert "its reservation of claim c is being removed" in answer.document["message"]

    run_virtual(scenario())


def test_of_a_binding_and_the_removal_of_its_reservation_one_succeeds_on_etcd() -> None:
    """Both are under way at the same time, in every order that messages to etcd can have."""

    async def round_of(seed: int) -> list[int]:
        async with etcd_apis(Random(seed)) as ((api,), _):
            codes = [answer.code for answer in await remove_reservation_and_bind(api)]
            is_bound = "nodeName" in (await api.get(f"{PODS}/p"))["spec"]
            is_reserved = "reservedFor" in (await api.get(f"{CLAIMS}/c"))["status"]
            assert is_reserved or not is_bound, f"seed {seed}: {codes}"
        return codes

    codes = [run_virtual(round_of(seed)) for seed in range(60)]
    assert [200, 409] in codes
    assert [409, 201] in codes


def test_a_pod_is_not_bound_while_its_allocation_is_queued() -> None:
    """The commit of the allocation may still fail, as it does here."""

    async def scenario() -> None:
        async with sqlite_api() as (api, store, disk):
            await api.create(CLAIMS, claim("c"))
            await api.create(PODS, pod())
            assert await bind(api) == 409, "and from now on the guard knows the pods, for which the first binding waits"
            before, status, bound = await store.current_revision(), await reserved_for_pod(api), await binding(api)
            disk.fails_to_sync = True
            allocated, answer = await asyncio.gather(
                api.call("PATCH", f"{CLAIMS}/c/status", status, content_type=MERGE_PATCH),
                api.call("POST", f"{PODS}/p/binding", bound),
            )
            assert (allocated.code, answer.code) == (503, 409)
            assert "claim c is not allocated" in answer.document["message"]
            assert await store.current_revision() == before

    run_virtual(scenario())


@with_api
async def test_a_pod_is_not_bound_to_a_claim_that_was_not_made_for_it(api: LocalApi) -> None:
    from_template = pod()
    from_template["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "t"}]
    await prepare(api)
    await api.delete(f"{PODS}/p", gracePeriodSeconds="0")
    await api.create(PODS, from_template)
    statuses = [{"name": "gpu", "resourceClaimName": "c"}]
    await api.patch(f"{PODS}/p/status", {"status": {"resourceClaimStatuses": statuses}})
    answer = await api.call("POST", f"{PODS}/p/binding", await binding(api))
    assert answer.code == 409
    assert "claim c was not made for it" in answer.document["message"]


@with_api
async def test_a_pod_is_not_bound_before_its_claims_are_made(api: LocalApi) -> None:
    waiting = pod_document("p")
    waiting["spec"]["resourceClaims"] = [{"name": "own", "resourceClaimTemplateName": "t"}]
    await api.create(PODS, waiting)
    answer = await refusal(api.create(f"{PODS}/p/binding", await binding(api)))
    assert (answer.code, "the claim for its entry own has not been made" in answer.document["message"]) == (409, True)
    await api.patch(f"{PODS}/p/status", {"status": {"resourceClaimStatuses": [{"name": "own"}]}})
    assert await bind(api) == 201, "this entry needs no claim"


@with_api
async def test_a_bound_pod_keeps_the_claims_that_it_was_bound_with(api: LocalApi) -> None:
    """A controller that has not noticed a restore yet would give it other ones."""
    made = pod_document("p")
    made["spec"]["resourceClaims"] = [{"name": "own", "resourceClaimTemplateName": "t"}]
    await api.create(PODS, made)

    async def record(claim: str) -> int:
        patch = {"status": {"resourceClaimStatuses": [{"name": "own", "resourceClaimName": claim}]}}
        return (await api.call("PATCH", f"{PODS}/p/status", patch, content_type=MERGE_PATCH)).code

    assert [await record("c"), await record("other"), await record("c")] == [200, 200, 200]
    body = {"target": {"kind": "Node", "name": "n"}}
    assert (await api.call("POST", f"{PODS}/p/binding", body)).code == 201
    assert [await record("other"), await record("c")] == [422, 200]


@with_api
async def test_a_binding_without_a_uid_is_accepted_as_by_kubernetes(api: LocalApi) -> None:
    await api.create(CLAIMS, claim("c"))
    await api.create(PODS, pod())
    answer = await api.call("POST", f"{PODS}/p/binding", {"target": {"kind": "Node", "name": "n"}})
    assert answer.code == 201


@with_api
async def test_of_a_binding_and_a_deallocation_at_once_one_succeeds(api: LocalApi) -> None:
    for steps in range(12):
        await prepare(api)
        deallocating = asyncio.create_task(deallocate(api))
        for _ in range(steps):
            await asyncio.sleep(0)
        codes = await bind(api), await deallocating
        assert codes in ((201, 409), (409, 200))
        await assert_consistent(api)
        await api.delete(f"{PODS}/p", gracePeriodSeconds="0")
        await settle()
        await api.delete(f"{CLAIMS}/c")


def test_the_cost_of_a_binding_is_linear_in_the_claims_of_the_pod() -> None:
    class CountedKey(str):
        hashes = 0

        def __hash__(self) -> int:
            CountedKey.hashes += 1
            return super().__hash__()

    count = 100
    use = PodUse(BoundPod("uid", "p", "n", ""), tuple((CountedKey(f"/claims/{each}"), False) for each in range(count)))
    users = ClaimUsers()
    users.hold("/pods/p", use)
    users.settle("/pods/p", use, None)
    assert CountedKey.hashes <= 5 * count
