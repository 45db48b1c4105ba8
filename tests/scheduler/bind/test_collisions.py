"""Which claims keep an over-allocated device: the earliest ones that it can serve."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from dralloc.devices.snapshot import Snapshot
from dralloc.kube.resource_v1 import DeviceRequestAllocationResult
from dralloc.scheduler.bind.binder import Holder, beaten_by
from dralloc.testing.builders import allocation, claim, device, held, resource_slice


def share(amount: str, name: str = "nic") -> DeviceRequestAllocationResult:
    return held(name, share_id="s", consumed={"bandwidth": amount})


@dataclass(frozen=True)
class Case:
    id: str
    # The allocations of the claims, in the order of their writes.
    given: tuple[DeviceRequestAllocationResult, ...]
    want: tuple[bool, ...]
    # How many of the first claims have an unknown revision.
    unseen: int = 0


CASES = [
    Case("different devices", (held("gpu"), held("nic")), want=(True, True)),
    Case("the same device whole", (held("gpu"), held("gpu"), held("gpu")), want=(True, False, False)),
    Case("shares that go round", (share("4G"), share("6G")), want=(True, True)),
    Case("only the share that is too much", (share("4G"), share("4G"), share("4G")), want=(True, True, False)),
    Case("a share after a whole device", (held("nic"), share("1G")), want=(True, False)),
    Case("a whole device after a share", (share("1G"), held("nic")), want=(True, False)),
    Case("shares of what cannot be shared", (share("1G", "gpu"), share("1G", "gpu")), want=(True, False)),
    Case("old shares of what cannot be shared", (share("1G", "gpu"), share("1G", "gpu")), want=(True, True), unseen=2),
    Case("a new share of it", (share("1G", "gpu"), share("1G", "gpu")), want=(True, False), unseen=1),
    Case("partitions that go round", (held("quarter"), held("half")), want=(True, True)),
    Case("a partition that is too much", (held("half"), held("most"), held("quarter")), want=(True, False, False)),
    Case("partitions of different cards", (held("most"), held("other")), want=(True, True)),
    Case("admin access takes nothing", (held("gpu"), held("gpu", admin=True)), want=(True, True)),
    Case("of unknown order, both give way", (held("gpu"), held("gpu")), want=(False, False), unseen=2),
    Case("who came before us counts as first", (held("gpu"), held("gpu")), want=(True, False), unseen=1),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_which_claims_keep_the_device(case: Case) -> None:
    nic = device("nic", shareable=True, capacity={"bandwidth": "10G"})
    holders = [
        Holder(claim(f"c{number}", allocation=allocation(result)), 0 if number < case.unseen else number + 1)
        for number, result in enumerate(case.given)
    ]
    partitions = [
        device(name, draws={card: {"slots": slots}})
        for name, card, slots in (("quarter", "a", "2"), ("half", "a", "4"), ("most", "a", "6"), ("other", "b", "8"))
    ]
    published = (
        resource_slice("cards", counters={"a": {"slots": "8"}, "b": {"slots": "8"}}, of=2),
        resource_slice("devices", device("gpu"), nic, *partitions, of=2),
    )
    snapshot = Snapshot.of(slices=published, claims=[holder.claim for holder in holders])
    keeps = [beaten_by(snapshot, mine, [other for other in holders if other is not mine]) is None for mine in holders]
    assert tuple(keeps) == case.want
