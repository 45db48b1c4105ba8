"""How a driver handles a NodePrepareResources call for a claim."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from dralloc.driver.checkpoint import PreparationRecord
from dralloc.driver.claims import ClaimReference
from dralloc.driver.preparer import (
    FetchedClaim,
    Ignore,
    Missing,
    Prepare,
    PrepareContext,
    Refuse,
    Repeat,
    Unreachable,
    decide_prepare,
)
from dralloc.kube.resource_v1 import ResourceClaim
from dralloc.testing.builders import DRIVER, allocation, claim, held, request

SHARE_A, SHARE_B = "00000000-0000-4000-8000-00000000000a", "00000000-0000-4000-8000-00000000000b"


def having(device: str, name: str = "c", *, share: str | None = None, admin: bool | None = None) -> ResourceClaim:
    return claim(name, request(), allocation=allocation(held(device, share_id=share, admin=admin)))


def record(held_claim: ResourceClaim, *, prepared: bool = True, boot: str = "boot-1") -> PreparationRecord:
    return PreparationRecord(claim=held_claim, is_prepared=prepared, boot_id=boot)


PUBLISHED = {("pool-a", "gpu-0"), ("pool-a", "gpu-1")}
CLAIM = having("gpu-0")
FABRIC = claim("c", request(), allocation=allocation(held("port-1", pool="fabric")))
DONE = record(CLAIM)
BEGUN = record(CLAIM, prepared=False)
ASKED = ClaimReference("default", "c", CLAIM.metadata.uid)


@dataclass(frozen=True)
class Case:
    id: str
    want: object
    fetched: FetchedClaim = CLAIM
    known: PreparationRecord | None = None
    others: tuple[PreparationRecord, ...] = ()
    asked: ClaimReference = ASKED


CASES = [
    Case(id="a new claim", want=Prepare(CLAIM)),
    Case(
        id="a device that is not there",
        fetched=having("gpu-7"),
        want=Refuse("claim default/c: device pool-a/gpu-7 is not on this node (any more)"),
    ),
    Case(id="a device of a pool that another program publishes for all nodes", fetched=FABRIC, want=Prepare(FABRIC)),
    Case(id="asked again", known=DONE, want=Repeat(DONE)),
    Case(id="interrupted", known=BEGUN, want=Prepare(CLAIM, before=BEGUN)),
    Case(
        id="the machine was started since",
        known=record(CLAIM, boot="boot-0"),
        want=Prepare(CLAIM, before=record(CLAIM, boot="boot-0")),
    ),
    Case(
        id="other devices under the same UID",
        fetched=having("gpu-1"),
        known=DONE,
        want=Prepare(having("gpu-1"), before=DONE, release=True),
    ),
    Case(
        id="the server does not answer, and it is prepared", fetched=Unreachable("lost"), known=DONE, want=Repeat(DONE)
    ),
    Case(id="the server does not answer", fetched=Unreachable("lost"), want=Refuse("claim default/c: lost")),
    Case(
        id="the server does not answer, and it is half done",
        fetched=Unreachable("lost"),
        known=BEGUN,
        want=Refuse("claim default/c: lost"),
    ),
    Case(id="no such claim", fetched=Missing(), want=Refuse("claim default/c does not exist")),
    Case(
        id="no such claim any more, although prepared",
        fetched=Missing(),
        known=DONE,
        want=Refuse("claim default/c does not exist"),
    ),
    Case(
        id="another claim of that name",
        asked=ClaimReference("default", "c", "other"),
        want=Refuse("claim default/c was replaced: its UID is uid-of-default-c, not other"),
    ),
    Case(id="not allocated", fetched=claim("c", request()), want=Refuse("claim default/c is not allocated")),
    Case(
        id="nothing of this driver",
        fetched=claim("c", request(), allocation=allocation(held("nic", driver="nic.example.com"))),
        want=Ignore(),
    ),
    Case(
        id="a device that another claim has",
        others=(record(having("gpu-0", "d")),),
        want=Refuse("claim default/c: device pool-a/gpu-0 is in use by claim default/d"),
    ),
    Case(
        id="even if that one is only half prepared",
        others=(record(having("gpu-0", "d"), prepared=False),),
        want=Refuse("claim default/c: device pool-a/gpu-0 is in use by claim default/d"),
    ),
    Case(id="another device of the same pool", others=(record(having("gpu-1", "d")),), want=Prepare(CLAIM)),
    Case(
        id="shares of one device",
        fetched=having("gpu-0", share=SHARE_A),
        others=(record(having("gpu-0", "d", share=SHARE_B)),),
        want=Prepare(having("gpu-0", share=SHARE_A)),
    ),
    Case(
        id="a share of a device that another claim has alone",
        fetched=having("gpu-0", share=SHARE_A),
        others=(record(having("gpu-0", "d")),),
        want=Refuse("claim default/c: device pool-a/gpu-0 is in use by claim default/d"),
    ),
    Case(
        id="an administrator looks on",
        fetched=having("gpu-0", admin=True),
        others=(record(having("gpu-0", "d")),),
        want=Prepare(having("gpu-0", admin=True)),
    ),
    Case(id="an administrator is no obstacle", others=(record(having("gpu-0", "d", admin=True)),), want=Prepare(CLAIM)),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_decide_prepare(case: Case) -> None:
    situation = PrepareContext(
        driver=DRIVER, boot_id="boot-1", published=PUBLISHED, record=case.known, others=case.others
    )
    assert decide_prepare(case.asked, case.fetched, situation) == case.want


def test_a_uid_that_is_no_file_name_is_refused() -> None:
    strange = claim("c", request(), allocation=allocation(held("gpu-0")))
    metadata = type(strange.metadata)(name="c", namespace="default", uid="../../etc/passwd")
    decision = decide_prepare(
        ClaimReference("default", "c", "../../etc/passwd"),
        type(strange)(metadata=metadata, spec=strange.spec, status=strange.status),
        PrepareContext(driver=DRIVER, boot_id="", published=PUBLISHED),
    )
    assert isinstance(decision, Refuse)
