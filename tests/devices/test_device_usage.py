"""The usage of one device, and which results occupy devices at all."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dralloc.devices.device_usage import FREE, DeviceUsage, counted_results, devices_used, pools_used
from dralloc.devices.identity import DeviceId, PoolId
from dralloc.kube.resource_v1 import DeviceRequestAllocationResult
from dralloc.primitives.quantity import NANOS
from dralloc.testing.builders import DRIVER, POOL, allocation, claim, held


def test_shares_consume_capacity_and_whole_devices_do_not() -> None:
    usage = FREE.changed_by(held("d", share_id="a", consumed={"memory": "4", "slots": "0"}), 1)
    usage = usage.changed_by(held("d", share_id="b", consumed={"memory": "2"}), 1)
    assert usage == DeviceUsage(shares=2, consumed={"memory": 6 * NANOS, "slots": 0}, without={"slots": 1})
    assert FREE.changed_by(held("d", consumed={"memory": "4"}), 1) == DeviceUsage(dedicated=1)


def test_admin_access_occupies_nothing() -> None:
    watched, own = held("watched", admin=True), held("own")
    item = claim(allocation=allocation(watched, own, held("own", share_id="s")))
    assert watched not in counted_results(item)
    assert devices_used(item) == {DeviceId(DRIVER, POOL, "own")}
    assert pools_used(item) == {PoolId(DRIVER, POOL)}
    assert counted_results(claim()) == ()


shares = st.builds(
    lambda share_id, amounts: held("d", share_id=share_id, consumed={name: str(n) for name, n in amounts.items()}),
    st.none() | st.just("s"),
    st.dictionaries(st.sampled_from(["memory", "slots"]), st.integers(0, 5)),
)


@given(st.lists(shares, max_size=4), shares)
def test_a_release_undoes_an_allocation(
    before: list[DeviceRequestAllocationResult], result: DeviceRequestAllocationResult
) -> None:
    usage = FREE
    for earlier in before:
        usage = usage.changed_by(earlier, 1)
    assert usage.changed_by(result, 1).changed_by(result, -1) == usage
    assert not usage.changed_by(result, 1).is_free
