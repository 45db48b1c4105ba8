"""Allocate, release and change devices in any order: no device is allocated twice, and none is lost."""

from __future__ import annotations

from collections import Counter
from itertools import count

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, multiple, rule
from msgspec import structs

from dralloc.devices.allocator.allocate import AllocationProblem, allocate
from dralloc.devices.allocator.features import Features
from dralloc.devices.allocator.outcome import Allocated, BudgetExhausted, Fatal
from dralloc.devices.allocator.requests import compile_demand
from dralloc.devices.allocator.stamp import stamp
from dralloc.devices.identity import ClaimId, DeviceId
from dralloc.devices.snapshot import Snapshot
from dralloc.kube.device_parts import capacity
from dralloc.kube.resource_v1 import (
    Device,
    DeviceRequest,
    DeviceRequestAllocationResult,
    ResourceClaim,
    ResourceClaimStatus,
    ResourceSlice,
)
from dralloc.testing.builders import (
    alternative,
    claim,
    device,
    device_class,
    distinct,
    first_available,
    match,
    node,
    request,
    resource_slice,
)

FEATURES = Features()
NODE = node()
CLASSES = {"gpu": device_class()}
COUNTERS = resource_slice("counters", counters={"card": {"memory": "12"}}, of=2)

devices = st.builds(
    device,
    st.sampled_from(("gpu-0", "gpu-1", "gpu-2", "gpu-3")),
    attributes=st.fixed_dictionaries({"numa": st.integers(0, 1)}),
    capacity=st.sampled_from((None, {"memory": "4"}, {"memory": capacity("6", default="2", minimum="2", step="2")})),
    shareable=st.sampled_from((None, True)),
    draws=st.sampled_from((None, {"card": {"memory": "3"}}, {"card": {"memory": "6"}})),
)
slices = st.lists(devices, min_size=1, max_size=4, unique_by=lambda found: found.name)
amounts = st.sampled_from((None, {"memory": "1"}, {"memory": "3"}))
requests = st.one_of(
    st.builds(request, count=st.integers(1, 2), capacity=amounts),
    st.builds(request, everything=st.just(True)),
    st.builds(request, admin=st.just(True)),
    st.builds(
        lambda one, two: first_available(
            "request", alternative("one", count=2, capacity=one), alternative("two", capacity=two)
        ),
        amounts,
        amounts,
    ),
)
constraints = st.sampled_from(((), (match("gpu.example.com/numa"),), (distinct("gpu.example.com/numa"),)))


class Lifecycle(RuleBasedStateMachine):
    """The model is the claims that were allocated and the slices as they are published now."""

    allocated = Bundle("allocated")

    def __init__(self) -> None:
        super().__init__()
        self.names = count()
        self.claims: dict[ClaimId, ResourceClaim] = {}
        self.slices: dict[str, ResourceSlice] = {}
        self.snapshot = Snapshot()

    @initialize(found=slices)
    def publish_first(self, found: list[Device]) -> None:
        self.publish_slice(COUNTERS)
        self.publish_slice(resource_slice("gpus", *found, of=2))

    @rule(found=slices)
    def publish(self, found: list[Device]) -> None:
        self.publish_slice(resource_slice("gpus", *found, of=2))

    def publish_slice(self, changed: ResourceSlice) -> None:
        self.slices[str(changed.metadata.name)] = changed
        self.snapshot = self.snapshot.with_slice(changed)

    @rule(target=allocated, wanted=st.lists(requests, min_size=1, max_size=2), bound=constraints)
    def allocate(self, wanted: list[DeviceRequest], bound: tuple[object, ...]) -> object:
        named = [structs.replace(found, name=f"r{index}") for index, found in enumerate(wanted)]
        new = claim(f"claim-{next(self.names)}", *named, constraints=bound)  # type: ignore[arg-type]
        problem = AllocationProblem(compile_demand([new], CLASSES, FEATURES), NODE, self.snapshot)
        outcome = allocate(problem)
        assert not isinstance(outcome, BudgetExhausted)
        if not isinstance(outcome, Allocated):
            assert not isinstance(outcome, Fatal) or bound, "only constraints on all devices are fatal here"
            return multiple()
        result = stamp(outcome.claims[0], lambda: f"share-{next(self.names)}")
        given = structs.replace(new, status=ResourceClaimStatus(allocation=result))
        self.claims[ClaimId.of(given)] = given
        self.snapshot = self.snapshot.with_claim(given)
        self.check_given(result.devices.results)
        return ClaimId.of(given)

    @rule(released=consumes(allocated))
    def release(self, released: ClaimId) -> None:
        del self.claims[released]
        self.snapshot = self.snapshot.without_claim(released)

    # --- What must hold -----------------------------------------------------------------------------------------------

    def check_given(self, results: tuple[DeviceRequestAllocationResult, ...]) -> None:
        """The devices of the new allocation were available."""
        for found in results:
            published = self.published(found)
            for name, stated in published.capacity.items():
                consumed = sum(
                    other.consumed_capacity[name].nanos
                    for other in self.shares_of(found)
                    if name in other.consumed_capacity
                )
                assert consumed <= stated.value.nanos, f"{found.device} is shared beyond its {name}"
        given = [found.device for found in results if not found.admin_access]
        held = [found.device for found in self.held()]
        # A device that has shares already draws no more, however much others have come to draw since it was given.
        first = (found for found in results if held.count(found.device) == given.count(found.device) > 0)
        if any(self.published(found).consumes_counters for found in first):
            assert self.drawn() <= 12 * 10**9, "the counter is overdrawn"

    def published(self, result: DeviceRequestAllocationResult) -> Device:
        return next(found for found in self.slices["gpus"].spec.devices or () if found.name == result.device)

    def held(self) -> list[DeviceRequestAllocationResult]:
        allocations = (found.status.allocation for found in self.claims.values())
        return [
            result
            for found in allocations
            if found is not None
            for result in found.devices.results
            if not result.admin_access
        ]

    def shares_of(self, result: DeviceRequestAllocationResult) -> list[DeviceRequestAllocationResult]:
        return [found for found in self.held() if found.device == result.device and found.share_id is not None]

    def drawn(self) -> int:
        in_use = {found.device for found in self.held()}
        return sum(
            counter.value.nanos
            for found in self.slices["gpus"].spec.devices or ()
            if found.name in in_use
            for use in found.consumes_counters
            for counter in use.counters.values()
        )

    @invariant()
    def no_device_is_given_out_whole_twice(self) -> None:
        whole = Counter(DeviceId.of(found) for found in self.held() if found.share_id is None)
        assert all(times == 1 for times in whole.values()), whole

    @invariant()
    def share_ids_are_unique(self) -> None:
        ids = [found.share_id for found in self.held() if found.share_id is not None]
        assert len(set(ids)) == len(ids)

    def teardown(self) -> None:
        for released in list(self.claims):
            self.release(released)
        assert len(self.snapshot.usage) == len(self.snapshot.claims) == 0


TestLifecycle = pytest.mark.slow(Lifecycle.TestCase)
TestLifecycle.settings = settings(max_examples=80, stateful_step_count=20, deadline=None)
