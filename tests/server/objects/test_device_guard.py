"""The device guard: no device is allocated twice, nor beyond its capacity or its counters."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.support.local_api import CLAIMS, MERGE_PATCH, RESOURCE, LocalApi, settle, with_api
from tests.support.local_api import claim_document as claim

SHARE = "11111111-2222-4333-8444-{:012}"


def allocated(device: str, share: int | None = None, memory: str | None = None, **more: Any) -> dict[str, Any]:
    result: dict[str, Any] = {"request": "gpu", "driver": "d.example.com", "pool": "p", "device": device, **more}
    if share is not None:
        result |= {"shareID": SHARE.format(share), "consumedCapacity": {"memory": memory or "0"}}
    return {"status": {"allocation": {"devices": {"results": [result]}}}}


def results_of(patch: dict[str, Any]) -> list[dict[str, Any]]:
    results: list[dict[str, Any]] = patch["status"]["allocation"]["devices"]["results"]
    return results


async def publish(api: LocalApi, memory: str, generation: int = 1, *, shareable: bool = True) -> None:
    device: dict[str, Any] = {"name": "gpu", "capacity": {"memory": {"value": memory}}}
    if shareable:
        device["allowMultipleAllocations"] = True
    pool = {"name": "p", "generation": generation, "resourceSliceCount": 1}
    spec = {"driver": "d.example.com", "allNodes": True, "pool": pool, "devices": [device]}
    await api.create(f"{RESOURCE}/resourceslices", {"metadata": {"name": f"s{generation}"}, "spec": spec})


async def allocate(api: LocalApi, name: str, device: str, *share: Any, **more: Any) -> int:
    """Create a claim and allocate it; returns the code of the latter."""
    await api.create(CLAIMS, claim(name))
    body = allocated(device, *share, **more)
    return (await api.call("PATCH", f"{CLAIMS}/{name}/status", body, content_type=MERGE_PATCH)).code


@with_api
async def test_a_device_is_allocated_once(api: LocalApi) -> None:
    assert await allocate(api, "first", "gpu-0") == 200
    assert await allocate(api, "second", "gpu-0") == 409
    assert await allocate(api, "share", "gpu-0", 1) == 409
    assert await allocate(api, "admin", "gpu-1") == 200
    await api.patch(f"{CLAIMS}/first/status", {"status": {"allocation": None}})
    await settle()
    await api.patch(f"{CLAIMS}/second/status", allocated("gpu-0"))


@with_api
async def test_of_concurrent_allocations_of_one_device_one_succeeds(api: LocalApi) -> None:
    for number in range(10):
        await api.create(CLAIMS, claim(f"c{number}"))
    paths = [f"{CLAIMS}/c{number}/status" for number in range(10)]
    answers = await asyncio.gather(
        *(api.call("PATCH", path, allocated("gpu-0"), content_type=MERGE_PATCH) for path in paths)
    )
    assert sorted(answer.code for answer in answers) == [200] + [409] * 9
    assert "device d.example.com/p/gpu-0 is already allocated to claim default/c0" in answers[1].document["message"]


@with_api
async def test_shares_do_not_exceed_the_capacity_of_the_newest_generation(api: LocalApi) -> None:
    await publish(api, "10Gi")
    assert await allocate(api, "a", "gpu", 1, "6Gi") == 200
    assert await allocate(api, "b", "gpu", 2, "6Gi") == 409
    assert await allocate(api, "c", "gpu", 3, "4Gi") == 200
    assert await allocate(api, "whole", "gpu") == 409
    await publish(api, "20Gi", generation=2)
    await settle()
    await api.patch(f"{CLAIMS}/b/status", allocated("gpu", 2, "6Gi"))
    await publish(api, "1Gi", generation=3)
    await settle()
    assert await allocate(api, "of-nothing", "gpu", 4, "0") == 200
    assert await allocate(api, "of-something", "gpu", 5, "1") == 409


@with_api
async def test_a_dedicated_device_is_allocated_once_even_with_share_ids(api: LocalApi) -> None:
    await publish(api, "10Gi", shareable=False)
    assert await allocate(api, "first", "gpu", 1, "1Gi") == 200
    assert await allocate(api, "second", "gpu", 2, "1Gi") == 409
    await publish(api, "10Gi", generation=2)
    await settle()
    await api.patch(f"{CLAIMS}/second/status", allocated("gpu", 2, "1Gi"))


@pytest.mark.parametrize(
    ("shares", "code"),
    [
        pytest.param((None, None), 409, id="whole, and whole again"),
        pytest.param((None, 1), 409, id="whole, and a share of it"),
        pytest.param((1, None), 409, id="a share, and the whole"),
        pytest.param((1, 2), 200, id="two shares"),
    ],
)
def test_one_claim_gets_a_device_once_unless_by_shares(shares: tuple[int | None, ...], code: int) -> None:
    @with_api
    async def scenario(api: LocalApi) -> None:
        await publish(api, "10Gi")
        await api.create(CLAIMS, claim("c"))
        results = [result for share in shares for result in results_of(allocated("gpu", share, "1Gi"))]
        body = {"status": {"allocation": {"devices": {"results": results}}}}
        answer = await api.call("PATCH", f"{CLAIMS}/c/status", body, content_type=MERGE_PATCH)
        assert answer.code == code

    scenario()


@with_api
async def test_admin_access_does_not_use_up_devices(api: LocalApi) -> None:
    await api.patch(
        "/api/v1/namespaces/default", {"metadata": {"labels": {"resource.kubernetes.io/admin-access": "true"}}}
    )
    assert await allocate(api, "holder", "gpu-0") == 200
    assert await allocate(api, "admin", "gpu-0", adminAccess=True) == 200
    assert await allocate(api, "other", "gpu-0") == 409


async def publish_partitions(
    api: LocalApi, only: tuple[str, ...] = ("counters", "devices"), *, pool_name: str = "p", generation: int = 1
) -> None:
    """Two halves and the whole of a card with eight slots."""
    pool = {"name": pool_name, "generation": generation, "resourceSliceCount": 2}
    where = {"driver": "d.example.com", "allNodes": True, "pool": pool}
    counters = [{"name": "card", "counters": {"slots": {"value": "8"}}}]
    devices = [
        {"name": name, "consumesCounters": [{"counterSet": "card", "counters": {"slots": {"value": slots}}}]}
        for name, slots in (("half-0", "4"), ("half-1", "4"), ("whole", "8"))
    ]
    for name, content in (("counters", {"sharedCounters": counters}), ("devices", {"devices": devices})):
        metadata = {"name": f"{pool_name}-{generation}-{name}"}
        if name in only:
            await api.create(f"{RESOURCE}/resourceslices", {"metadata": metadata, "spec": {**where, **content}})


async def withdraw_slices(api: LocalApi) -> None:
    """As a kubelet does when it starts, or when a driver stays away."""
    await api.call("DELETE", f"{RESOURCE}/resourceslices")
    await settle()


@with_api
async def test_partitions_do_not_exceed_their_counters(api: LocalApi) -> None:
    await publish_partitions(api)
    assert await allocate(api, "half", "half-0") == 200
    assert await allocate(api, "whole", "whole") == 409
    assert await allocate(api, "other-half", "half-1") == 200
    for name in ("half", "other-half"):
        await api.patch(f"{CLAIMS}/{name}/status", {"status": {"allocation": None}})
    await settle()
    assert await allocate(api, "whole-again", "whole") == 200


@with_api
async def test_concurrent_allocations_do_not_exceed_counters(api: LocalApi) -> None:
    await publish_partitions(api)
    codes = await asyncio.gather(*(allocate(api, name, name) for name in ("half-0", "half-1", "whole")))
    assert sorted(codes) in ([200, 200, 409], [200, 409, 409])


@pytest.mark.parametrize("published", [(), ("counters",), ("devices",)], ids=["nothing", "counters", "devices"])
@with_api
async def test_partitions_are_not_allocated_beside_others_while_their_pool_is_being_published(
    api: LocalApi, published: tuple[str, ...]
) -> None:
    await publish_partitions(api)
    assert await allocate(api, "whole", "whole") == 200
    await withdraw_slices(api)
    await publish_partitions(api, published, generation=2)
    await settle()
    assert await allocate(api, "half", "half-0") == 409
    await api.patch(f"{CLAIMS}/whole/status", {"status": {"allocation": None}})
    await settle()
    # A scheduler that does not know yet that the slices are gone has decided about all of the pool.
    await api.patch(f"{CLAIMS}/half/status", allocated("half-0"))
    assert await allocate(api, "other-half", "half-1") == 409
    missing = tuple(name for name in ("counters", "devices") if name not in published)
    await publish_partitions(api, missing, generation=2)
    await settle()
    await api.patch(f"{CLAIMS}/other-half/status", allocated("half-1"))


@with_api
async def test_pools_of_the_same_driver_show_that_partitions_share_counters(api: LocalApi) -> None:
    """A server that was started while the slices of a node were away knows them from other nodes."""
    await publish_partitions(api, pool_name="other-node")
    assert await allocate(api, "whole", "whole") == 200
    assert await allocate(api, "half", "half-0") == 409


@with_api
async def test_shares_are_not_allocated_beside_others_while_their_device_is_not_published(api: LocalApi) -> None:
    await publish(api, "10Gi")
    assert await allocate(api, "a", "gpu", 1, "6Gi") == 200
    await withdraw_slices(api)
    assert await allocate(api, "b", "gpu", 2, "6Gi") == 409
    assert await allocate(api, "other-device", "gpu-1", 3, "6Gi") == 200
    await publish(api, "20Gi", generation=2)
    await settle()
    await api.patch(f"{CLAIMS}/b/status", allocated("gpu", 2, "6Gi"))


@with_api
async def test_a_refusal_says_what_is_requested_and_what_is_available(api: LocalApi) -> None:
    await publish(api, "10Gi")
    await allocate(api, "first", "gpu", 1, "6Gi")
    await api.create(CLAIMS, claim("second"))
    body = allocated("gpu", 2, "5Gi")
    answer = await api.call("PATCH", f"{CLAIMS}/second/status", body, content_type=MERGE_PATCH)
    insufficient = "device d.example.com/p/gpu: insufficient memory: requested 5Gi, available 4Gi"
    assert insufficient in answer.document["message"]


@with_api
async def test_a_refusal_names_the_counter_that_is_exhausted(api: LocalApi) -> None:
    await publish_partitions(api)
    await allocate(api, "half", "half-0")
    await api.create(CLAIMS, claim("whole"))
    answer = await api.call("PATCH", f"{CLAIMS}/whole/status", allocated("whole"), content_type=MERGE_PATCH)
    insufficient = "pool d.example.com/p: insufficient counter card/slots: requested 8, available 4"
    assert insufficient in answer.document["message"]
