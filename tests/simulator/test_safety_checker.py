"""The safety checker reports each wrong state at the revision that brings it, and no right one."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from msgspec.structs import replace

from dralloc.kube.codec import encode
from dralloc.kube.device_parts import capacity, request_policy
from dralloc.kube.meta_v1 import ApiObject
from dralloc.kube.pod_claims import pod_reference
from dralloc.kube.resource_v1 import ResourceClaim, ResourceSlice
from dralloc.testing.builders import allocation, claim, device, held, request, resource_slice
from tests.simulator.change_checker import CLAIMS, PODS
from tests.simulator.history import CommittedChange
from tests.simulator.safety_checker import CLAIM_COUNT, JOBS, QUOTAS, SLICES, SafetyChecker
from tests.support.workloads import existing, pod, seen

USER = seen(pod("p", {"gpu": existing("c")}, node="node-a"), phase="Running")
SLICE = resource_slice(
    "s", device("gpu-0", shareable=True, capacity={"memory": capacity("8Gi", default="1Gi", minimum="1Gi")})
)
HALVES = resource_slice(
    "halves",
    *(device(name, draws={"card": {"slots": "5"}}) for name in ("gpu-0", "gpu-1")),
    counters={"card": {"slots": "8"}},
)


def used(name: str, *results: object, by: object = USER) -> ResourceClaim:
    plain = claim(name, request(), allocation=allocation(*results))  # type: ignore[arg-type]
    consumers = (pod_reference(by),) if by is not None else ()  # type: ignore[arg-type]
    return replace(plain, status=replace(plain.status, reserved_for=consumers))


SHARES = [
    used(name, held("gpu-0", share_id=f"share-{name}", consumed={"memory": "5Gi"}), by=None) for name in ("c", "d")
]


FIRST_DECIDES = resource_slice(
    "first",
    device(
        "gpu-0",
        shareable=True,
        capacity={"memory": capacity("8Gi", policy_name="first")},
        policies={"first": request_policy(strategy="ConsumedOrNever")},
    ),
)
CONSUMING, OTHER_CONSUMING = (
    used(name, held("gpu-0", share_id=f"share-{name}", consumed={"memory": "4Gi"}), by=None) for name in ("c", "d")
)
WITHOUT, OTHER_WITHOUT = (used(name, held("gpu-0", share_id=f"share-{name}"), by=None) for name in ("e", "f"))
BEYOND_LIMIT = used(
    "g", held("gpu-0", share_id="share-g", consumed={"memory": "4Gi"}, limits={"memory": "2Gi"}), by=None
)


@dataclass(frozen=True)
class Case:
    id: str
    objects: tuple[ApiObject, ...]
    says: str = ""


CASES = [
    Case("more memory than the device has", (SLICE, *SHARES), "memory of device"),
    Case("as much memory as the device has", (SLICE, SHARES[0])),
    Case("more slots than the counter has", (HALVES, used("c", held("gpu-0"), held("gpu-1"))), "slots"),
    Case("as many slots as the counter has", (HALVES, used("c", held("gpu-0")))),
    Case(
        "one share for two claims",
        (SHARES[0], replace(SHARES[0], metadata=replace(SHARES[0].metadata, name="e"))),
        "is allocated 2 times",
    ),
    Case("a share beside the whole device", (SHARES[0], used("d", held("gpu-0"))), "as a whole and in shares"),
    Case("a consuming share beside one that is not", (FIRST_DECIDES, WITHOUT, CONSUMING), "and not by others"),
    Case("a share without an entry beside a consuming one", (FIRST_DECIDES, CONSUMING, WITHOUT), "and not by others"),
    Case("shares that all consume", (FIRST_DECIDES, CONSUMING, OTHER_CONSUMING)),
    Case("shares none of which consumes", (FIRST_DECIDES, WITHOUT, OTHER_WITHOUT)),
    Case("both kinds without the strategy", (SLICE, CONSUMING, WITHOUT)),
    Case("more than the limit", (SLICE, BEYOND_LIMIT), "than its limit"),
    Case("a pod with its device", (used("c", held("gpu-0")), USER)),
    Case(
        "one device for two claims",
        (used("c", held("gpu-0")), used("d", held("gpu-0"))),
        "at revision 2: device",
    ),
    Case("a pod whose claim is not allocated", (claim("c", request()), USER), "is not allocated"),
    Case("a pod whose claim is gone", (USER,), "is not allocated"),
    Case("a pod for which the claim is not reserved", (used("c", held("gpu-0"), by=None), USER), "not reserved for it"),
]


def key_of(item: ApiObject) -> str:
    if isinstance(item, ResourceSlice):
        return SLICES + item.metadata.name
    prefix = CLAIMS if isinstance(item, ResourceClaim) else PODS
    return f"{prefix}{item.metadata.namespace}/{item.metadata.name}"


def checked(*objects: ApiObject) -> SafetyChecker:
    checker = SafetyChecker()
    for revision, item in enumerate(objects, 1):
        checker.on_change(CommittedChange(revision, key_of(item), encode(item), None))
    return checker


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_violations(case: Case) -> None:
    found = "; ".join(checked(*case.objects).violations)
    assert (case.says in found) if case.says else not found


def test_a_device_may_be_allocated_again_after_its_claim_is_gone() -> None:
    first, second = used("c", held("gpu-0")), used("d", held("gpu-0"))
    checker = checked(first)
    checker.on_change(CommittedChange(2, key_of(first), None, None))
    checker.on_change(CommittedChange(3, key_of(second), encode(second), None))
    assert not checker.violations


def test_a_quota_is_exceeded_by_the_claim_that_is_one_too_many() -> None:
    checker = SafetyChecker()
    quota = b'{"spec": {"hard": {"%b": "1"}}}' % CLAIM_COUNT.encode()
    checker.on_change(CommittedChange(1, f"{QUOTAS}default/q", quota, None))
    for revision, name in enumerate(("c", "d"), 2):
        item = claim(name, request())
        checker.on_change(CommittedChange(revision, key_of(item), encode(item), None))
    assert checker.violations == ["at revision 3: namespace default has 2 claims, more than its quota"]


def test_a_claim_stays_reserved_for_a_job_until_the_job_is_over() -> None:
    job = b'{"metadata": {"name": "j", "uid": "1"}, "status": {"conditions": [%b]}}'
    reserved = b'{"status": {"allocation": {}, "reservedFor": [{"resource": "jobs", "name": "j", "uid": "1"}]}}'
    over = b'{"type": "Complete", "status": "True"}'
    for conditions, wrong in ((b"", True), (over, False)):
        checker = SafetyChecker()
        checker.on_change(CommittedChange(1, f"{JOBS}default/j", job % conditions, None))
        checker.on_change(CommittedChange(2, f"{CLAIMS}default/c", reserved, None))
        checker.on_change(CommittedChange(3, f"{CLAIMS}default/c", b'{"status": {"allocation": {}}}', None))
        assert bool(checker.violations) is wrong
