"""The usage of a pool by allocated claims: whole devices, shares, capacity, counters."""

from __future__ import annotations

from msgspec import structs

from dralloc.devices.device_usage import DeviceUsage
from dralloc.devices.identity import ClaimId, PoolId
from dralloc.devices.pools import Visibility
from dralloc.devices.snapshot import Snapshot
from dralloc.kube.resource_v1 import ConsumerReference
from dralloc.testing.builders import DRIVER, POOL, allocation, claim, device, held, node, resource_slice

POOL_ID = PoolId(DRIVER, POOL)
EVERYTHING = Visibility(partitionable_devices=True, compatibility_groups=False)
NANOS = 10**9


def usage_of(snapshot: Snapshot, name: str) -> DeviceUsage | None:
    usage = snapshot.usage.get(POOL_ID)
    return usage.devices.get(name) if usage is not None else None


def test_a_device_without_share_id_is_dedicated() -> None:
    snapshot = Snapshot.of(claims=[claim(allocation=allocation(held("gpu-0")))])
    assert usage_of(snapshot, "gpu-0") == DeviceUsage(dedicated=1)


def test_shares_add_up() -> None:
    first = claim("one", allocation=allocation(held("gpu-0", share_id="a", consumed={"memory": "4", "slots": "0"})))
    second = claim("two", allocation=allocation(held("gpu-0", share_id="b", consumed={"memory": "2"})))
    snapshot = Snapshot.of(claims=[first, second])
    assert usage_of(snapshot, "gpu-0") == DeviceUsage(
        shares=2, consumed={"memory": 6 * NANOS, "slots": 0}, without={"slots": 1}
    )
    assert usage_of(snapshot.without_claim(ClaimId.of(first)), "gpu-0") == DeviceUsage(
        shares=1, consumed={"memory": 2 * NANOS}
    )


def test_admin_access_uses_nothing() -> None:
    assert not Snapshot.of(claims=[claim(allocation=allocation(held("gpu-0", admin=True)))]).usage


def test_a_claim_replaces_its_earlier_usage() -> None:
    snapshot = Snapshot.of(claims=[claim(allocation=allocation(held("gpu-0")))])
    moved = snapshot.with_claim(claim(allocation=allocation(held("gpu-1"))))
    assert (usage_of(moved, "gpu-0"), usage_of(moved, "gpu-1")) == (None, DeviceUsage(dedicated=1))
    assert not snapshot.with_claim(claim()).usage


def test_an_unchanged_claim_returns_the_same_snapshot() -> None:
    snapshot = Snapshot.of(claims=[claim(allocation=allocation(held("gpu-0")))])
    assert snapshot.with_claim(claim(allocation=allocation(held("gpu-0")))) is snapshot


def test_a_claim_with_the_same_allocation_is_replaced() -> None:
    before = claim(allocation=allocation(held("gpu-0")))
    reserved = structs.replace(before.status, reserved_for=(ConsumerReference(resource="pods", name="p", uid="u"),))
    after = Snapshot.of(claims=[before]).with_claim(structs.replace(before, status=reserved))
    assert after.claims[ClaimId.of(before)].status.reserved_for == reserved.reserved_for
    assert usage_of(after, "gpu-0") == DeviceUsage(dedicated=1)


def test_claims_and_slices_may_come_in_any_order() -> None:
    gpus = resource_slice("s", device("gpu-0"), device("gpu-1"))
    holder = claim(allocation=allocation(held("gpu-1")))
    early = Snapshot.of(slices=[gpus], claims=[holder])
    late = Snapshot.of(claims=[holder]).with_slice(gpus)
    assert early.usage[POOL_ID].dedicated == late.usage[POOL_ID].dedicated == (0b10,)


def test_a_device_that_is_published_again_is_still_in_use() -> None:
    snapshot = Snapshot.of(
        slices=[resource_slice("s", device("gpu-0"))], claims=[claim(allocation=allocation(held("gpu-0")))]
    )
    gone = snapshot.with_slice(resource_slice("s", device("gpu-9"), generation=2))
    back = gone.with_slice(resource_slice("s", device("gpu-9"), device("gpu-0"), generation=3))
    assert (gone.usage[POOL_ID].dedicated, back.usage[POOL_ID].dedicated) == ((0b0,), (0b10,))


def test_a_device_draws_from_counters_once_on_any_node() -> None:
    partition = {"card": {"memory": "4"}}
    slices = [
        resource_slice("a", device("p0", draws=partition, shareable=True), device("p1", draws=partition), of=3),
        resource_slice("b", device("p2", draws=partition), of=3, node_name="node-b"),
        resource_slice("c", counters={"card": {"memory": "20"}}, of=3, all_nodes=True),
    ]
    claims = [
        claim("one", allocation=allocation(held("p0", share_id="x"))),
        claim("two", allocation=allocation(held("p0", share_id="y"))),
        claim("three", allocation=allocation(held("p2"))),
    ]
    snapshot = Snapshot.of(slices=slices, claims=claims)
    (pool,) = snapshot.view(node(), EVERYTHING).pools
    assert pool.slices.counters_left(pool.layout, snapshot.usage[POOL_ID]) == {("card", "memory"): 12 * NANOS}
