"""Whether the claims of a pod can be prepared, and which driver is called for which claims."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec
import pytest

from dralloc.kube.meta_v1 import OwnerReference
from dralloc.kube.pod_claims import ClaimUse, pod_reference
from dralloc.kube.resource_v1 import AllocationResult, ConsumerReference, ResourceClaim
from dralloc.node.checkpoint import EVERYTHING, PREPARE, UNPREPARE, ClaimRecord, DriverPart, record_of
from dralloc.node.claim_cache import ClaimEntry
from dralloc.node.prepare_plan import (
    Batch,
    CannotPrepare,
    check_claim,
    check_entry,
    prepare_batches,
    resolve_claims,
    shared_devices,
    skipping_drivers,
    unprepare_batches,
)
from dralloc.testing.builders import allocation, claim, held
from tests.support.workloads import existing, pod, seen, template

POD = seen(pod("p", {"gpu": existing("claim")}))
OWN = ClaimUse("gpu", "claim", True)
OTHERS = ClaimUse("gpu", "claim", False)
JOB = ConsumerReference(api_group="batch", resource="jobs", name="j", uid="uid-of-j")


def allocated(
    *reserved: ConsumerReference,
    result: AllocationResult | None = None,
    any_pod: bool | None = None,
    owner: str | None = None,
) -> ResourceClaim:
    made = claim("claim", allocation=result or allocation(held("gpu-0")))
    assert made.status.allocation is not None
    status = msgspec.structs.replace(
        made.status,
        reserved_for=reserved,
        allocation=msgspec.structs.replace(made.status.allocation, reserved_for_any_pod=any_pod),
    )
    owners = (OwnerReference(kind="Pod", uid=owner, controller=True),) if owner else ()
    return msgspec.structs.replace(
        made, status=status, metadata=msgspec.structs.replace(made.metadata, owner_references=owners)
    )


@dataclass(frozen=True)
class Case:
    id: str
    claim: ResourceClaim
    use: ClaimUse = OTHERS
    drivers: frozenset[str] = field(default_factory=lambda: frozenset({"gpu.example.com"}))
    want: str | None = None


REFERENCE = pod_reference(POD)
CASES = [
    Case(id="a pod that is listed may", claim=allocated(REFERENCE)),
    Case(id="a pod that is not listed may not", claim=allocated(JOB), want="is not allowed to use ResourceClaim claim"),
    Case(id="any pod may where the claim says so", claim=allocated(JOB, any_pod=True)),
    Case(
        id="a pod of the same name is another pod",
        claim=allocated(ConsumerReference(resource="pods", name="p", uid="another")),
        want="pod p (uid-of-p) is not allowed",
    ),
    Case(id="its own claim", claim=allocated(REFERENCE, owner="uid-of-p"), use=OWN),
    Case(
        id="a claim that was made for another pod",
        claim=allocated(REFERENCE, owner="another"),
        use=OWN,
        want="ResourceClaim claim was not created for pod p",
    ),
    Case(
        id="a driver that is not there",
        claim=allocated(REFERENCE),
        drivers=frozenset(),
        want="DRA driver gpu.example.com is not registered",
    ),
    Case(
        id="one driver of two is not there",
        claim=allocated(REFERENCE, result=allocation(held("a"), held("b", driver="nic.example.com"))),
        want="DRA driver nic.example.com is not registered",
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_check_claim(case: Case) -> None:
    refused = check_claim(case.use, case.claim, POD, case.drivers.__contains__)
    if case.want is None:
        assert refused is None
    else:
        assert refused is not None
        assert case.want in refused.text


def test_a_pod_that_is_not_listed_is_refused_without_the_gate_for_workloads() -> None:
    for_any_pod = allocated(JOB, any_pod=True)
    assert check_claim(OTHERS, for_any_pod, POD, lambda _: True) is None
    refused = check_claim(OTHERS, for_any_pod, POD, lambda _: True, for_workloads=False)
    assert refused is not None
    assert "is not allowed to use ResourceClaim" in refused.text
    assert check_claim(OTHERS, allocated(REFERENCE), POD, lambda _: True, for_workloads=False) is None


def test_an_unallocated_claim_is_refused_even_if_the_pod_is_in_reserved_for() -> None:
    made = claim("claim")
    listed = msgspec.structs.replace(made, status=msgspec.structs.replace(made.status, reserved_for=(REFERENCE,)))
    assert check_claim(OTHERS, listed, POD, lambda _: True) == CannotPrepare("ResourceClaim claim: not allocated")


def test_claims_from_templates_must_exist() -> None:
    document = pod("p", {"mine": template("t"), "theirs": existing("shared")})
    assert resolve_claims(seen(document)) == CannotPrepare("pod claim mine: ResourceClaim not created yet")
    made = seen(document, resourceClaimStatuses=[{"name": "mine", "resourceClaimName": "p-mine"}])
    assert resolve_claims(made) == (ClaimUse("mine", "p-mine", True), ClaimUse("theirs", "shared", False))
    needless = seen(document, resourceClaimStatuses=[{"name": "mine"}])
    assert resolve_claims(needless) == (ClaimUse("theirs", "shared", False),)
    nothing = resolve_claims(seen(pod("p", {"odd": {}})))
    assert isinstance(nothing, CannotPrepare)


def test_an_earlier_entry_can_prevent_the_preparation() -> None:
    current = allocated(REFERENCE)
    record = record_of(current)
    assert check_entry(current, None) is None
    assert check_entry(current, ClaimEntry(record)) is None
    assert check_entry(current, ClaimEntry(record, allocation=current.status.allocation, is_prepared=True)) is None
    older = ClaimEntry(ClaimRecord(namespace="default", name="claim", uid="u"))
    refusals = {
        "old ResourceClaim with same name claim and different UID u still exists": older,
        "is being unprepared": ClaimEntry(record, is_unpreparing=True),
        "for an earlier allocation": ClaimEntry(record, allocation=allocation(held("gpu-7"))),
    }
    for text, entry in refusals.items():
        refused = check_entry(current, entry)
        assert refused is not None
        assert text in refused.text


def record(name: str, **drivers: DriverPart) -> ClaimRecord:
    return ClaimRecord(namespace="default", name=name, uid=f"uid-of-{name}", drivers=drivers)


def test_each_driver_is_called_once_for_all_claims_that_need_it() -> None:
    plain, unprepare_free, free = DriverPart(), DriverPart(skips=(UNPREPARE,)), DriverPart(skips=(EVERYTHING,))
    first, second = record("a", gpu=plain, nic=plain), record("b", nic=unprepare_free, fpga=free)
    assert prepare_batches([first, second]) == (Batch("gpu", (first,)), Batch("nic", (first, second)))
    assert unprepare_batches([first, second]) == (Batch("gpu", (first,)), Batch("nic", (first,)))
    assert skipping_drivers([first, second], PREPARE) == ("fpga",)
    assert skipping_drivers([first, second], UNPREPARE) == ("nic", "fpga")


def test_a_call_is_skipped_only_if_all_devices_of_the_driver_skip_it() -> None:
    def skipping(*devices: tuple[str, tuple[str, ...]]) -> AllocationResult:
        results = (
            msgspec.structs.replace(held(f"d{index}", driver=driver), skip_node_operations=skips)
            for index, (driver, skips) in enumerate(devices)
        )
        return allocation(*results)

    made = allocated(result=skipping(("a", ("*",)), ("b", ("*",)), ("b", ()), ("c", (UNPREPARE,))))
    skips = {driver: part.skips for driver, part in record_of(made, may_skip=True).drivers.items()}
    assert skips == {"a": (PREPARE, UNPREPARE), "b": (), "c": (UNPREPARE,)}
    assert all(not part.skips for part in record_of(made).drivers.values())


def test_shared_devices_are_listed_by_driver_and_claim() -> None:
    made = allocated(result=allocation(held("a", share_id="s"), held("b"), held("c", driver="nic.example.com")))
    assert shared_devices([made]) == {"gpu.example.com": {made.metadata.uid: "pool-a/a"}}
