"""What shares consume of a device one after the other, as tables and against the plain allocator's rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dralloc.devices.allocator.consumable_capacity import Charge, charge_for
from dralloc.devices.device_usage import FREE, DeviceUsage
from dralloc.devices.overcommit import is_overcommitted
from dralloc.devices.published_slice import PublishedDevice
from dralloc.devices.share_terms import capacities_of, least_amount, terms_of
from dralloc.kube.device_parts import capacity
from dralloc.kube.resource_v1 import Device, DeviceCapacity, DeviceRequestAllocationResult
from dralloc.primitives.quantity import NANOS, Quantity
from dralloc.testing.builders import device, held
from tests.support import plain_shares

Share = Mapping[str, str]


def nic(remainder: str | None = None, **capacities: DeviceCapacity) -> Device:
    return device("d", shareable=True, capacity=capacities, remainder=remainder)


def consume(found: Device, living: Sequence[Share], asked: Share) -> Share | None:
    """What one more share gets."""
    terms = terms_of(found)
    assert terms is not None
    charge = charge_for(capacities_of(found), quantities(asked), fractional_ranges=False)
    if not isinstance(charge, Charge):
        return None
    amounts = terms.amounts(terms.state(usage_of(living)), charge.nanos, charge.unasked)
    if amounts is None:
        return None
    taken = charge.taking(amounts, found.capacity.values()).amounts
    return {name: str(amount) for name, amount in zip(found.capacity, taken, strict=True) if amount is not None}


def quantities(amounts: Share) -> dict[str, Quantity]:
    return {name: Quantity.parse(amount) for name, amount in amounts.items()}


def result_of(share: Share) -> DeviceRequestAllocationResult:
    return held("d", share_id="s", consumed=share)


def usage_of(living: Sequence[Share]) -> DeviceUsage:
    usage = FREE
    for share in living:
        usage = usage.changed_by(result_of(share), 1)
    return usage


@dataclass(frozen=True)
class Case:
    id: str
    device: Device
    living: Sequence[Share]
    asked: Share
    want: Share | None


NEVER = nic(bandwidth=capacity("10", default="2", strategy="ConsumedOrNever"))
NEVER_SLOTS = nic(bandwidth=capacity("10", strategy="ConsumedOrNever"), slots=capacity("2", default="1"))
BLOCK = nic(bandwidth=capacity("10", default="2", minimum="1", maximum="5", strategy="BlockOrShare"))
BLOCK_ALL = nic(bandwidth=capacity("10", strategy="BlockOrShare"))
LAST = nic("GiveToLast", core=capacity("100"), memory=capacity("80"))
LAST_BLOCKS = nic("GiveToLast", core=capacity("100"), memory=capacity("10", default="4", minimum="4", step="4"))

CASES = [
    # --- ConsumedOrNever
    Case("never: a first share without a request does not consume", NEVER, [], {}, {}),
    Case("never: a first share with a request consumes", NEVER, [], {"bandwidth": "3"}, {"bandwidth": "3"}),
    Case("never: a request of zero is a request", NEVER, [], {"bandwidth": "0"}, {"bandwidth": "0"}),
    Case("never: shares without a request follow one", NEVER, [{}, {}], {}, {}),
    Case("never: no request where a share does not consume", NEVER, [{}], {"bandwidth": "1"}, None),
    Case("never: the default where shares consume", NEVER, [{"bandwidth": "3"}], {}, {"bandwidth": "2"}),
    Case("never: the default where a share consumes zero", NEVER, [{"bandwidth": "0"}], {}, {"bandwidth": "2"}),
    Case("never: requests up to the capacity", NEVER, [{"bandwidth": "3"}], {"bandwidth": "7"}, {"bandwidth": "7"}),
    Case("never: no more than the capacity", NEVER, [{"bandwidth": "3"}], {"bandwidth": "8"}, None),
    Case("never: not the default either", NEVER, [{"bandwidth": "9"}], {}, None),
    Case("never: both kinds admit no share", NEVER, [{}, {"bandwidth": "1"}], {}, None),
    Case("never: both kinds admit no request", NEVER, [{}, {"bandwidth": "1"}], {"bandwidth": "1"}, None),
    Case("never: other capacities are consumed", NEVER_SLOTS, [{"slots": "1"}], {}, {"slots": "1"}),
    Case("never: other capacities have an end", NEVER_SLOTS, [{"slots": "1"}, {"slots": "1"}], {}, None),
    Case(
        "never: without a default all of it, where shares consume",
        NEVER_SLOTS,
        [{"bandwidth": "0", "slots": "1"}],
        {},
        {"bandwidth": "10", "slots": "1"},
    ),
    # --- BlockOrShare
    Case("block: a first share without a request takes all", BLOCK, [], {}, {"bandwidth": "10"}),
    Case("block: a first share with a request takes that", BLOCK, [], {"bandwidth": "3"}, {"bandwidth": "3"}),
    Case("block: nothing beside a share that has all", BLOCK, [{"bandwidth": "10"}], {}, None),
    Case("block: no request beside a share that has all", BLOCK, [{"bandwidth": "10"}], {"bandwidth": "1"}, None),
    Case("block: the default beside other shares", BLOCK, [{"bandwidth": "3"}], {}, {"bandwidth": "2"}),
    Case("block: without a default all of it, which is too much", BLOCK_ALL, [{"bandwidth": "3"}], {}, None),
    Case(
        "block: a request beside other shares", BLOCK_ALL, [{"bandwidth": "3"}], {"bandwidth": "7"}, {"bandwidth": "7"}
    ),
    Case("block: every share takes something", BLOCK_ALL, [], {"bandwidth": "0"}, None),
    Case("block: the policy still applies to requests", BLOCK, [], {"bandwidth": "6"}, None),
    # --- GiveToLast
    Case("last: not yet", LAST, [], {"core": "50", "memory": "20"}, {"core": "50", "memory": "20"}),
    Case(
        "last: the share that takes the last of one gets the rest of the other",
        LAST,
        [{"core": "80", "memory": "40"}],
        {"core": "20", "memory": "20"},
        {"core": "20", "memory": "40"},
    ),
    Case("last: all at once", LAST, [], {"core": "100", "memory": "1"}, {"core": "100", "memory": "80"}),
    Case(
        "last: a share that takes nothing of a used-up capacity is not the last",
        LAST,
        [{"core": "100", "memory": "40"}],
        {"core": "0", "memory": "10"},
        {"core": "0", "memory": "10"},
    ),
    Case(
        "last: too little for another share is the end, and given, too",
        LAST_BLOCKS,
        [{"core": "10", "memory": "4"}],
        {"core": "10", "memory": "4"},
        {"core": "90", "memory": "6"},
    ),
    Case(
        "last: what is not consumed is not given",
        nic("GiveToLast", core=capacity("2"), rate=capacity("10", consumed=False)),
        [],
        {"core": "2"},
        {"core": "2", "rate": "0"},
    ),
    Case(
        "last: what is not consumable is not given",
        nic("GiveToLast", core=capacity("2"), rate=capacity("10", strategy="ConsumedOrNever")),
        [],
        {"core": "2"},
        {"core": "2"},
    ),
    Case(
        "last: a device of nothing has no last share",
        nic("GiveToLast", core=capacity("0"), memory=capacity("8")),
        [],
        {"memory": "2"},
        {"core": "0", "memory": "2"},
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_shares(case: Case) -> None:
    assert consume(case.device, case.living, case.asked) == case.want


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_the_plain_rules_agree_with_the_table(case: Case) -> None:
    assert consume_plainly(case.device, case.living, case.asked) == case.want


def consume_plainly(found: Device, living: Sequence[Share], asked: Share) -> Share | None:
    charged = plain_shares.charge(found, quantities(asked), {}, fractional_ranges=False)
    if isinstance(charged, str):
        return None
    share = plain_shares.share(found, asked.keys(), charged, [quantities(share) for share in living])
    return None if share is None else {name: str(amount) for name, amount in share.items()}


def test_ordinary_devices_have_no_terms() -> None:
    assert terms_of(nic(memory=capacity("4", default="1", strategy="AlwaysConsumed"), remainder="Keep")) is None
    assert terms_of(device("d", capacity={"memory": capacity("4", strategy="BlockOrShare")})) is None


@pytest.mark.parametrize(
    ("policy", "want"),
    [
        (capacity("8"), 1),
        (capacity("8", default="2"), 1),
        (capacity("8", default="4", valid=("4", "8")), 4 * NANOS),
        (capacity("8", default="0", valid=("0", "2")), 2 * NANOS),
        (capacity("8", default="2", minimum="2", step="2"), 2 * NANOS),
        (capacity("8", default="0", minimum="0", step="3"), 3 * NANOS),
        (capacity("8", default="0", minimum="0"), 1),
        (capacity("8", maximum="4"), 1),
    ],
)
def test_least_amount(policy: DeviceCapacity, want: int) -> None:
    assert least_amount(policy.request_policy) == want


# --- Histories --------------------------------------------------------------------------------------------------------

strategies = st.sampled_from(["", "AlwaysConsumed", "ConsumedOrNever", "BlockOrShare"])
policies = st.one_of(
    st.builds(lambda value, strategy: capacity(value, strategy=strategy), st.integers(1, 8), strategies),
    st.builds(lambda value, strategy: capacity(value, default=1, strategy=strategy), st.integers(1, 8), strategies),
    st.builds(
        lambda value, strategy: capacity(value, default=2, minimum=2, step=2, strategy=strategy),
        st.integers(4, 8),
        strategies,
    ),
    st.builds(lambda value: capacity(value, consumed=False), st.integers(1, 8)),
)
devices = st.builds(nic, st.sampled_from([None, "GiveToLast"]), a=policies, b=policies).filter(
    lambda found: terms_of(found) is not None
)
asks = st.dictionaries(st.sampled_from("ab"), st.integers(0, 5).map(str))


@given(devices, st.lists(st.tuples(asks, st.integers(0, 9)), max_size=8))
def test_histories_of_shares_and_releases(found: Device, steps: list[tuple[Share, int]]) -> None:
    """Every share is what the plain rules say, and the state is that of the living shares, which never exceed the device."""
    living: list[Share] = []
    usage = FREE
    for asked, release in steps:
        share = consume(found, living, asked)
        assert share == consume_plainly(found, living, asked)
        if share is not None:
            living.append(share)
            usage = usage.changed_by(result_of(share), 1)
        if release < len(living):
            usage = usage.changed_by(result_of(living.pop(release)), -1)
        assert usage == usage_of(living)
        assert not is_overcommitted(usage, PublishedDevice.of(found))


@given(devices, st.lists(asks, max_size=5))
def test_the_state_of_a_search_is_that_of_the_living_shares(found: Device, requests: list[Share]) -> None:
    terms = terms_of(found)
    assert terms is not None
    state = terms.state(FREE)
    living: list[Share] = []
    for asked in requests:
        charge = charge_for(capacities_of(found), quantities(asked), fractional_ranges=False)
        amounts = terms.amounts(state, charge.nanos, charge.unasked) if isinstance(charge, Charge) else None
        if amounts is None:
            continue
        least = terms.least(charge.nanos, charge.unasked) if isinstance(charge, Charge) else ()
        assert all((amount or 0) >= bound for amount, bound in zip(amounts, least, strict=True))
        state = terms.after(state, amounts)
        share = consume(found, living, asked)
        assert share is not None
        living.append(share)
        assert state == terms.state(usage_of(living))


@given(devices, st.lists(asks, min_size=1, max_size=4), asks)
def test_what_has_no_room_gets_none_from_later_shares(found: Device, requests: list[Share], asked: Share) -> None:
    """The search leaves out a device that has no room, whatever it takes later: only releases make room."""
    living: list[Share] = []
    was_refused = consume(found, living, asked) is None
    for other in requests:
        share = consume(found, living, other)
        if share is not None:
            living.append(share)
        is_refused = consume(found, living, asked) is None
        assert is_refused or not was_refused
        was_refused = is_refused
