"""The claims that a pod gets: a table and properties."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from dralloc.controllers.claim_creation import CreateClaim, ReportProblem
from dralloc.controllers.claim_templates.owned_claims import ClaimObjects, name_base
from dralloc.controllers.claim_templates.plan import (
    ClaimAction,
    PodContext,
    RecordClaims,
    Reserve,
    plan_pod,
)
from dralloc.controllers.planned_actions import PlannedActions
from dralloc.kube.codec import decode, encode
from dralloc.kube.meta_v1 import OwnerReference
from dralloc.kube.pod_claims import POD_CLAIM_NAME, pod_reference
from dralloc.kube.pod_v1 import Pod, PodResourceClaimStatus
from dralloc.kube.resource_v1 import ConsumerReference, ResourceClaim, ResourceClaimTemplate
from dralloc.kube.unstructured_object import UnstructuredObject, read_unstructured
from dralloc.primitives.features import FeatureGates
from dralloc.testing.builders import allocation, alternative, claim, first_available, held, request
from tests.support.workloads import claim_template, existing, pod, seen, template

NOW = datetime(2026, 1, 1, tzinfo=UTC)
GATES = FeatureGates.defaults()
JOB = ConsumerReference(api_group="batch", resource="jobs", name="job", uid="uid-of-job")
PLAIN = pod("p", {"gpu": template("t")})


def made_for(owner: Pod, name: str, entry: str = "gpu", **metadata: Any) -> ResourceClaim:
    """A claim that the pod controls."""
    reference = OwnerReference(
        api_version="v1", kind="Pod", name=owner.metadata.name, uid=owner.metadata.uid, controller=True
    )
    item = claim(name, request())
    return replace(
        item,
        metadata=replace(item.metadata, owner_references=(reference,), annotations={POD_CLAIM_NAME: entry}, **metadata),
    )


def allocated(item: ResourceClaim, *consumers: ConsumerReference, any_pod: bool | None = None) -> ResourceClaim:
    got = replace(allocation(held("gpu-0")), reserved_for_any_pod=any_pod)
    return replace(item, status=replace(item.status, allocation=got, reserved_for=consumers))


def templates(*documents: dict[str, Any]) -> dict[str, UnstructuredObject]:
    return {
        document["metadata"]["name"]: read_unstructured(encode(document), ResourceClaimTemplate)
        for document in documents
    }


@dataclass
class World:
    """The namespace of a pod, to which plans can be applied."""

    pod: Pod
    claims: dict[str, ResourceClaim] = field(default_factory=dict)
    templates: dict[str, UnstructuredObject] = field(default_factory=lambda: templates(claim_template("t", request())))
    gates: FeatureGates = GATES

    @classmethod
    def of(cls, pod: Pod, claims: Sequence[ResourceClaim] = (), **others: Any) -> World:
        return cls(pod, {item.metadata.name: item for item in claims}, **others)

    def plan(self) -> Sequence[ClaimAction]:
        return plan_pod(self.pod, PodContext(objects=self.objects(), now=NOW)).actions

    def objects(self) -> ClaimObjects:
        def made_for_uid(uid: str) -> list[ResourceClaim]:
            owned = (item for item in self.claims.values() if item.metadata.owner_references)
            return [item for item in owned if any(owner.uid == uid for owner in item.metadata.owner_references)]

        return ClaimObjects(
            find_claim=self.claims.get,
            find_template=self.templates.get,
            claims_made_for=made_for_uid,
            gates=self.gates,
        )

    def apply(self, action: ClaimAction) -> None:
        match action:
            case CreateClaim():
                made = decode(encode(action.document), ResourceClaim)
                assert made.metadata.name not in self.claims
                self.claims[made.metadata.name] = made
            case RecordClaims():
                statuses = tuple(
                    PodResourceClaimStatus(name=entry, resource_claim_name=name) for entry, name in action.names
                )
                kept = tuple(s for s in self.pod.status.resource_claim_statuses if s.resource_claim_name is None)
                self.pod = replace(
                    self.pod, status=replace(self.pod.status, resource_claim_statuses=(*kept, *statuses))
                )
            case Reserve():
                item = self.claims[action.claim]
                consumers = (*item.status.reserved_for, pod_reference(self.pod))
                self.claims[action.claim] = replace(item, status=replace(item.status, reserved_for=consumers))
            case ReportProblem():
                pass


def recorded(document: dict[str, Any], **status: Any) -> Pod:
    """The pod with `p-gpu-old` recorded for its entry."""
    return seen(document, resourceClaimStatuses=[{"name": "gpu", "resourceClaimName": "p-gpu-old"}], **status)


NEW = seen(PLAIN)
KNOWN = recorded(PLAIN)
RUNNING = recorded(pod("p", {"gpu": template("t")}, node="node-a"))
USER = seen(pod("p", {"nic": existing("shared")}, node="node-a"))


@dataclass(frozen=True)
class Case:
    id: str
    world: World
    want: tuple[str, ...] = ()


CASES = [
    Case("a new pod gets its claim, and it is recorded", World.of(NEW), ("create gpu", "record gpu")),
    Case("a recorded claim that exists needs no action", World.of(KNOWN, [made_for(KNOWN, "p-gpu-old")])),
    Case("a missing recorded claim is created again", World.of(KNOWN), ("create gpu", "record gpu")),
    Case(
        "a recorded claim of another owner is replaced",
        World.of(KNOWN, [claim("p-gpu-old", request())]),
        ("create gpu", "record gpu"),
    ),
    Case(
        "an unrecorded claim is used",
        World.of(NEW, [made_for(NEW, "p-gpu-orphan")]),
        ("record gpu",),
    ),
    Case(
        "an unrecorded claim of another entry is not used",
        World.of(NEW, [made_for(NEW, "p-gpu-orphan", entry="nic")]),
        ("create gpu", "record gpu"),
    ),
    Case(
        "an unrecorded claim that is being deleted is not used",
        World.of(NEW, [made_for(NEW, "p-gpu-orphan", deletion_timestamp="2026-01-01T00:00:00Z")]),
        ("create gpu", "record gpu"),
    ),
    Case(
        "an entry that needs no claim gets none, even without a template",
        World.of(seen(pod("p", {"gpu": template("none")}), resourceClaimStatuses=[{"name": "gpu"}])),
    ),
    Case(
        "a missing template is reported",
        World.of(seen(pod("p", {"gpu": template("none")}))),
        ('report PodResourceClaim gpu: resource claim template "none" not found',),
    ),
    Case(
        "one missing template does not prevent other claims",
        World.of(seen(pod("p", {"gpu": template("none"), "nic": template("t")}))),
        ('report PodResourceClaim gpu: resource claim template "none" not found', "create nic", "record nic"),
    ),
    Case(
        "a prioritized list requires its gate",
        World.of(
            NEW,
            templates=templates(claim_template("t", first_available("r", alternative("a")))),
            gates=FeatureGates.parse("DRAPrioritizedList=false"),
        ),
        ('report PodResourceClaim gpu: template "t" requires the feature gate DRAPrioritizedList, which is disabled',),
    ),
    Case(
        "admin access requires its gate",
        World.of(
            NEW,
            templates=templates(claim_template("t", request(admin=True))),
            gates=FeatureGates.parse("DRAAdminAccess=false"),
        ),
        ('report PodResourceClaim gpu: template "t" requires the feature gate DRAAdminAccess, which is disabled',),
    ),
    Case("a finished pod needs no action", World.of(seen(PLAIN, phase="Succeeded"))),
    Case("a standalone claim needs no action", World.of(seen(pod("p", {"nic": existing("shared")})))),
    Case(
        "a pod with a node gets a reservation of an allocated claim",
        World.of(USER, [allocated(claim("shared", request()))]),
        ("reserve shared",),
    ),
    Case(
        "a pod without a node is reserved by the scheduler",
        World.of(seen(pod("p", {"nic": existing("shared")})), [allocated(claim("shared", request()))]),
    ),
    Case(
        "a reserved pod is not reserved again",
        World.of(USER, [allocated(claim("shared", request()), pod_reference(USER))]),
    ),
    Case("no reservation of an unallocated claim", World.of(USER, [claim("shared", request())])),
    Case(
        "no reservation beside a workload",
        World.of(USER, [allocated(claim("shared", request()), JOB, any_pod=True)]),
    ),
    Case(
        "no reservation if any pod may use the claim",
        World.of(USER, [allocated(claim("shared", request()), any_pod=True)]),
    ),
    Case(
        "with the gate off, every pod gets a reservation",
        World.of(
            USER,
            [allocated(claim("shared", request()), JOB, any_pod=True)],
            gates=FeatureGates.parse("DRAReservedForWorkloads=false"),
        ),
        ("reserve shared",),
    ),
    Case(
        "a pod gets a reservation of its own claim",
        World.of(RUNNING, [allocated(made_for(RUNNING, "p-gpu-old"))]),
        ("reserve p-gpu-old",),
    ),
]


def in_words(action: ClaimAction) -> str:
    match action:
        case CreateClaim():
            return f"create {action.document['metadata']['annotations'][POD_CLAIM_NAME]}"
        case RecordClaims():
            return f"record {' '.join(entry for entry, _ in action.names)}"
        case Reserve():
            return f"reserve {action.claim}"
        case ReportProblem():
            return f"report {action.message}"


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_plan_pod(case: Case) -> None:
    assert tuple(map(in_words, case.world.plan())) == case.want


def test_a_terminating_pod_needs_no_action() -> None:
    leaving = replace(NEW, metadata=replace(NEW.metadata, deletion_timestamp="2026-01-01T00:00:00Z"))
    assert World.of(leaving).plan() == ()


def test_a_reservation_waits_for_the_one_of_the_scheduler() -> None:
    bound = {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    item = seen(pod("p", {"nic": existing("shared")}, node="node-a"), conditions=[bound])
    claims = {"shared": allocated(claim("shared", request()))}

    def plan(now: datetime) -> PlannedActions[ClaimAction]:
        objects = ClaimObjects(
            find_claim=claims.get, find_template=lambda _: None, claims_made_for=lambda _: (), gates=GATES
        )
        context = PodContext(objects=objects, now=now)
        return plan_pod(item, context)

    assert plan(NOW + timedelta(seconds=4)) == PlannedActions((), 6.0)
    assert plan(NOW + timedelta(seconds=10)) == PlannedActions((Reserve(item, "shared"),))


def test_a_claim_follows_its_template_and_is_controlled_by_its_pod() -> None:
    document = claim_template("t", request(count=2), labels={"team": "a"}, annotations={"note": "b"})
    document["spec"]["spec"]["fieldOfTheFuture"] = {"kept": True}
    (create, record) = World.of(NEW, templates=templates(document)).plan()
    assert isinstance(create, CreateClaim)
    assert isinstance(record, RecordClaims)
    metadata = create.document["metadata"]
    assert metadata["name"].startswith("p-gpu-")
    assert len(metadata["name"]) == len("p-gpu-") + 5
    assert metadata["generateName"] == "p-gpu-"
    assert metadata["labels"] == {"team": "a"}
    assert metadata["annotations"] == {"note": "b", POD_CLAIM_NAME: "gpu"}
    assert metadata["ownerReferences"] == [
        {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "uid-of-p", "controller": True}
    ]
    assert create.document["spec"] == document["spec"]["spec"]
    assert record.names == (("gpu", metadata["name"]),)


def test_a_replacement_never_has_the_name_of_the_claim_it_replaces() -> None:
    world = World.of(NEW)
    names = set()
    for _ in range(5):
        for action in world.plan():
            world.apply(action)
        names |= set(world.claims)
        world.claims.clear()
    assert len(names) == 5


def test_a_used_name_is_skipped() -> None:
    world = World.of(NEW)
    (create, _) = world.plan()
    assert isinstance(create, CreateClaim)
    taken = create.document["metadata"]["name"]
    (other, _) = World.of(NEW, [claim(taken, request())]).plan()
    assert isinstance(other, CreateClaim)
    assert other.document["metadata"]["name"] != taken


def test_a_claim_that_is_not_indexed_yet_is_found_by_name() -> None:
    """The server has answered, but the index of the pod's claims does not show the claim yet."""
    world = World.of(NEW)
    (create, _) = world.plan()
    world.apply(create)
    objects = dataclasses.replace(world.objects(), claims_made_for=lambda _: ())
    (record,) = plan_pod(NEW, PodContext(objects=objects, now=NOW)).actions
    assert record == RecordClaims(NEW, (("gpu", next(iter(world.claims))),))


@pytest.mark.parametrize(
    ("pod_name", "entry", "want"),
    [
        ("p", "gpu", "p-gpu-"),
        ("p" * 50, "c" * 5, f"{'p' * 50}-{'c' * 5}-"),
        ("p" * 51, "c" * 5, f"{'p' * 50}-{'c' * 4}"),
        ("p" * 63, "c" * 63, f"{'p' * 28}-{'c' * 28}"),
        ("p" * 27 + "." + "p" * 35, "c" * 63, f"{'p' * 27}-{'c' * 28}"),
    ],
    ids=[
        "short names are not cut",
        "57 characters are not too long",
        "58 are, and both parts give way",
        "the longest names",
        "no part ends with a dot",
    ],
)
def test_names_of_claims_start_with_pod_and_entry(pod_name: str, entry: str, want: str) -> None:
    base = name_base(pod_name, entry)
    assert base == want
    assert len(base) <= 57


ENTRIES = st.dictionaries(
    st.sampled_from(["a", "b", "c"]), st.sampled_from([template("t"), template("none"), existing("shared")])
)


@st.composite
def worlds(draw: st.DrawFn) -> World:
    entries = draw(ENTRIES)
    statuses = [
        {"name": entry, **draw(st.sampled_from([{}, {"resourceClaimName": f"p-{entry}-old"}]))}
        for entry, source in entries.items()
        if "resourceClaimTemplateName" in source and draw(st.booleans())
    ]
    phase = draw(st.sampled_from(["Pending", "Running", "Succeeded"]))
    owner = seen(
        pod("p", entries, node=draw(st.sampled_from([None, "node-a"]))), resourceClaimStatuses=statuses, phase=phase
    )
    claims = [made_for(owner, f"p-{entry}-{kind}", entry) for entry in entries for kind in ("old", "orphan")]
    claims += [claim(f"p-{entry}-old", request()) for entry in entries] + [claim("shared", request())]
    present = [item for item in claims if draw(st.booleans())]
    reserved = st.sampled_from([(), (JOB,), (pod_reference(owner),), (JOB, pod_reference(owner))])
    held_claims = [allocated(item, *draw(reserved)) if draw(st.booleans()) else item for item in present]
    gates = draw(st.sampled_from([GATES, FeatureGates.parse("DRAReservedForWorkloads=false")]))
    return World.of(owner, held_claims, gates=gates)


@given(world=worlds())
def test_a_second_plan_is_empty(world: World) -> None:
    for action in world.plan():
        world.apply(action)
    assert [action for action in world.plan() if not isinstance(action, ReportProblem)] == []


@given(world=worlds())
def test_an_interrupted_plan_is_continued_and_creates_nothing_twice(world: World) -> None:
    before = set(world.claims)
    for _ in range(10):
        actions = [action for action in world.plan() if not isinstance(action, ReportProblem)]
        if not actions:
            break
        world.apply(actions[0])
    assert world.plan() == tuple(action for action in world.plan() if isinstance(action, ReportProblem))
    made = [name for name in world.claims if name not in before]
    named = {status.resource_claim_name for status in world.pod.status.resource_claim_statuses}
    assert set(made) <= named
