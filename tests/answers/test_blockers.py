"""What blocks a pod, in the order of its life; `allocate` and `plan` do not place pods that are blocked."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec.structs import replace

from dralloc.answers.allocations import allocate_waiting
from dralloc.answers.blockers import Stage
from dralloc.answers.cluster_objects import ClusterObjects
from dralloc.answers.engine import Engine
from dralloc.answers.planner import CandidateShape, plan_pods
from dralloc.answers.pod_explanation import SubjectExplanation, explain_claim, explain_pod
from dralloc.kube.codec import decode, encode
from dralloc.kube.core_v1 import Event, Node, ResourceQuota
from dralloc.kube.meta_v1 import ApiObject, ObjectMeta
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.resource_v1 import ResourceClaim, ResourceClaimTemplate
from dralloc.kube.scheduling_v1 import PriorityClass
from dralloc.primitives.features import FeatureGates
from dralloc.primitives.quantity import Quantity
from dralloc.testing.builders import CLASS, claim, device, device_class, request, resource_slice
from tests.support.workloads import claim_template, existing, quota, template
from tests.support.workloads import pod as pod_document

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LONG_AGO = "2025-12-31T23:00:00Z"
DEVICES = f"{CLASS}.deviceclass.resource.k8s.io/devices"


def read(document: dict[str, Any], kind: type[Any]) -> Any:
    return decode(encode(document), kind)


def pod(name: str = "p", claims: dict[str, Any] | None = None, **spec: Any) -> Pod:
    """A pod of a server, which is an hour old."""
    document = pod_document(name, claims)
    document["metadata"] |= {"uid": f"uid-{name}", "creationTimestamp": LONG_AGO}
    document["spec"] |= spec
    return read(document, Pod)  # type: ignore[no-any-return]


def new(made: Any) -> Any:
    """The object as a manifest has it."""
    return replace(made, metadata=replace(made.metadata, uid="", creation_timestamp=None))


def objects_of(*items: ApiObject) -> ClusterObjects:
    objects = ClusterObjects(FeatureGates.defaults())
    amounts = {name: Quantity.parse("100") for name in ("cpu", "pods")}
    node = read({"metadata": {"name": "n1", "uid": "uid-n1"}}, Node)
    objects.add(replace(node, status=replace(node.status, allocatable=amounts)))
    published = resource_slice("gpus", *(device(f"gpu-{number}") for number in range(4)), pool="n1")
    objects.add(replace(published, spec=replace(published.spec, node_name="n1", all_nodes=None)))
    objects.add(device_class())
    for item in items:
        objects.add(item)
    return objects


def explained(asked: Pod, *items: ApiObject, **engine: Any) -> SubjectExplanation:
    return explain_pod(Engine(objects_of(asked, *items), NOW, **engine), asked)


def one_gpu(name: str = "one") -> ResourceClaimTemplate:
    return read(claim_template(name, request()), ResourceClaimTemplate)  # type: ignore[no-any-return]


def limited(hard: dict[str, str]) -> ResourceQuota:
    return read(quota("limits", hard), ResourceQuota)  # type: ignore[no-any-return]


def stored(name: str) -> ResourceClaim:
    made = claim(name, request())
    return replace(made, metadata=replace(made.metadata, uid=f"uid-{name}"))


GPU = {"gpu": template("one")}
WAITING = {"gpu": existing("wanted")}


def full_claim() -> ResourceClaim:
    listed = [{"resource": "pods", "name": f"p{number}", "uid": f"u{number}"} for number in range(256)]
    result = {"request": "r", "driver": "gpu.example.com", "pool": "n1", "device": "gpu-0"}
    status = {"reservedFor": listed, "allocation": {"devices": {"results": [result]}}}
    made = stored("wanted")
    return replace(made, status=read(status, type(made.status)))


CASES: dict[str, tuple[Callable[[], tuple[ApiObject, ...]], Stage, str, str]] = {
    "gates": (
        lambda: (pod(schedulingGates=[{"name": "a.io/wait"}]),),
        Stage.GATES,
        "Gated",
        "it waits for the removal of the scheduling gate a.io/wait",
    ),
    "another scheduler": (
        lambda: (pod(schedulerName="volcano"),),
        Stage.SCHEDULER,
        "OtherScheduler",
        "its schedulerName is volcano, not default-scheduler or dralloc",
    ),
    "quota": (
        lambda: (pod(claims=GPU), one_gpu(), limited({DEVICES: "1"}), stored("other")),
        Stage.CLAIMS,
        "QuotaExceeded",
        f"claim default/p-gpu is not created: exceeded quota: limits, requested: {DEVICES}=1, used: {DEVICES}=1, "
        f"limited: {DEVICES}=1",
    ),
    "no template": (
        lambda: (pod(claims=GPU),),
        Stage.CLAIMS,
        "TemplateMissing",
        "claim gpu: template default/one does not exist",
    ),
    "no controller": (
        lambda: (pod(claims=GPU), one_gpu()),
        Stage.CLAIMS,
        "ClaimNotCreated",
        "claim gpu is not created: its template exists; is the controller running?",
    ),
    "the controller's message": (
        lambda: (pod(claims=GPU), one_gpu(), event("FailedResourceClaimCreation", "the webhook says no")),
        Stage.CLAIMS,
        "ClaimNotCreated",
        "claim gpu is not created: the webhook says no",
    ),
    "a new pod without its class": (
        lambda: (new(pod(priorityClassName="high")),),
        Stage.CREATION,
        "PriorityRefused",
        "it would not be created: no PriorityClass with name high was found",
    ),
    "a new pod over quota": (
        lambda: (new(pod()), pod("other"), limited({"count/pods": "1"})),
        Stage.CREATION,
        "QuotaExceeded",
        "it would not be created: exceeded quota: limits, requested: count/pods=1, used: count/pods=1, "
        "limited: count/pods=1",
    ),
    "a new claim over quota": (
        lambda: (pod(claims=WAITING), new(stored("wanted")), stored("other"), limited({DEVICES: "1"})),
        Stage.CLAIMS,
        "QuotaExceeded",
        f"claim default/wanted is not created: exceeded quota: limits, requested: {DEVICES}=1, used: {DEVICES}=1, "
        f"limited: {DEVICES}=1",
    ),
    "a persistent volume": (
        lambda: (pod(volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]),),
        Stage.SCHEDULING,
        "Rejected",
        '0/1 nodes are available: persistentvolumeclaim "data" not found',
    ),
    "the 257th pod of a claim": (
        lambda: (pod(claims=WAITING), full_claim()),
        Stage.SCHEDULING,
        "Rejected",
        "claim default/wanted is reserved for 256 pods, the maximum",
    ),
}


def event(reason: str, message: str, at: str = LONG_AGO) -> Event:
    about = {"kind": "Pod", "namespace": "default", "name": "p", "uid": "uid-p"}
    document = {
        "metadata": {"name": f"p.{reason}.{at}", "namespace": "default"},
        "involvedObject": about,
        "type": "Warning",
        "reason": reason,
        "message": message,
        "lastTimestamp": at,
    }
    return read(document, Event)  # type: ignore[no-any-return]


@pytest.mark.parametrize("case", CASES)
def test_a_pod_that_waits_is_blocked(case: str) -> None:
    make, stage, reason, message = CASES[case]
    found = explained(*make())  # type: ignore[arg-type]
    assert not found.is_good
    assert [(each.stage, each.reason, each.message) for each in found.blockers[:1]] == [(stage, reason, message)]
    assert next(found.lines()) == f"pod default/p cannot be scheduled: {message}"
    assert found.values()["blockers"][0] == {"stage": stage.value, "reason": reason, "message": message}


@pytest.mark.parametrize("case", CASES)
def test_a_pod_that_is_blocked_is_not_placed(case: str) -> None:
    make, _, _, message = CASES[case]
    asked, *others = make()
    assert isinstance(asked, Pod)
    engine = Engine(objects_of(asked, *others), NOW)
    answer = allocate_waiting(engine, None)
    assert [each.claim.metadata.name for each in answer.allocated if each.claim.metadata.name != "other"] == []
    if asked.spec.resource_claims:
        assert (answer.refusals[0].subject, answer.refusals[0].message.partition(": ")[2]) == (
            "pod default/p",
            message,
        )
    again = Engine(objects_of(asked, *others), NOW)
    plan = plan_pods(again, [asked], CandidateShape.parse("gpu=1"), NOW)
    assert [each.message for each in plan.unplaced] == [message]


def test_a_pod_that_nothing_blocks() -> None:
    found = explained(pod(claims=WAITING), stored("wanted"))
    assert (found.is_good, found.verdict, found.values()["blockers"]) == (True, "Fits", [])


def test_a_new_pod_gets_its_claim_from_the_template() -> None:
    assert explained(new(pod(claims=GPU)), one_gpu(), limited({DEVICES: "1"})).verdict == "Fits"


def test_the_quota_serves_new_pods_in_the_order_of_their_manifests() -> None:
    """Claims are made when pods are created, whatever the priority of the pods."""
    high = PriorityClass(metadata=ObjectMeta(name="high"), value=10)
    pods = [new(pod("first", GPU)), new(pod("second", GPU, priorityClassName="high"))]
    answer = allocate_waiting(Engine(objects_of(*pods, high, one_gpu(), limited({DEVICES: "1"})), NOW), None)
    assert [each.claim.metadata.name for each in answer.allocated] == ["first-gpu"]
    assert [each.subject for each in answer.refusals] == ["pod default/second"]


def test_the_priority_of_a_new_pod_is_that_of_its_class() -> None:
    high = PriorityClass(metadata=ObjectMeta(name="high"), value=10)
    four = read(claim_template("four", request(count=4)), ResourceClaimTemplate)
    pods = [
        new(pod("a", {"gpu": template("four")})),
        new(pod("b", {"gpu": template("four")}, priorityClassName="high")),
    ]
    answer = allocate_waiting(Engine(objects_of(*pods, high, four), NOW), None)
    assert {each.claim.metadata.name for each in answer.allocated} == {"b-gpu"}


def test_the_names_of_the_scheduler_can_be_given() -> None:
    asked = pod(schedulerName="volcano")
    assert explained(asked, scheduler_names={"volcano"}).is_good
    assert not explained(pod(), scheduler_names={"volcano"}).is_good
    wanted = stored("wanted")
    engine = Engine(objects_of(wanted), NOW, scheduler_names={"volcano"})
    assert explain_claim(engine, wanted).is_good


def test_a_gated_pod_that_would_not_fit_either_has_two_blockers() -> None:
    big = replace(claim("wanted", request(count=5)), metadata=ObjectMeta(name="wanted", namespace="default", uid="u"))
    found = explained(pod(claims=WAITING, schedulingGates=[{"name": "wait"}]), big)
    assert [each.stage for each in found.blockers] == [Stage.GATES, Stage.SCHEDULING]
    assert found.verdict == "Blocked"


# --- Pods that have a node ------------------------------------------------------------------------------------------


def placed(**spec: Any) -> Pod:
    return pod(claims=WAITING, nodeName="n1", **spec)


def test_a_claim_that_is_not_reserved_for_the_pod() -> None:
    found = explained(placed(), replace(full_claim(), status=replace(full_claim().status, reserved_for=())))
    assert [(each.stage, each.reason) for each in found.blockers] == [(Stage.BINDING, "NotReserved")]
    assert next(found.lines()).endswith("and does not run: claim default/wanted is not reserved for it")


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ("ResourceClaim default/wanted: DRA driver gpu.example.com is not registered", "DriverNotRegistered"),
        ("NodePrepareResources failed for ResourceClaim wanted: the card is on fire", "FailedPrepareDynamicResources"),
    ],
)
def test_what_the_node_says(message: str, reason: str) -> None:
    """The newest event counts, and none once the pod runs."""
    older = event("FailedPrepareDynamicResources", "an older problem", at="2025-12-31T22:00:00Z")
    newest = event("FailedPrepareDynamicResources", message)
    reserved = _reserved_for_pod()
    found = explained(placed(), reserved, newest, older)
    assert [(each.stage, each.reason, each.message) for each in found.blockers] == [(Stage.NODE, reason, message)]
    running = placed()
    running = replace(running, status=replace(running.status, phase="Running"))
    assert explained(running, reserved, newest, older).is_good


def crashing(state: dict[str, Any], phase: str = "Running", last: dict[str, Any] | None = None, **spec: Any) -> Pod:
    status = {"name": "main", "state": state, "lastState": last or {}, "restartCount": 4}
    made = placed(**spec)
    return replace(made, status=read({"phase": phase, "containerStatuses": [status]}, type(made.status)))


CRASHED = {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}
LOGS = "kubectl logs -n default p -c main --previous shows its output"


@pytest.mark.parametrize(
    ("asked", "reason", "message"),
    [
        (
            crashing({"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 5m0s"}}, last=CRASHED),
            "CrashLoopBackOff",
            "container main: CrashLoopBackOff: back-off 5m0s; its last run ended with exit code 137 (OOMKilled), "
            f"restarts: 4; {LOGS}",
        ),
        (
            crashing({"waiting": {"reason": "ImagePullBackOff"}}, phase="Pending"),
            "ImagePullBackOff",
            "container main: ImagePullBackOff",
        ),
        (
            crashing(CRASHED, restartPolicy="OnFailure"),
            "OOMKilled",
            "container main: it is about to be restarted; its last run ended with exit code 137 (OOMKilled), "
            f"restarts: 4; {LOGS}",
        ),
    ],
)
def test_containers_that_do_not_run(asked: Pod, reason: str, message: str) -> None:
    """Their states are newer than any event."""
    found = explained(asked, _reserved_for_pod(), event("Failed", "an older problem"))
    assert [(each.stage, each.reason, each.message) for each in found.blockers] == [(Stage.NODE, reason, message)]
    assert next(found.lines()) == f"pod default/p is on node n1 already and does not run: {message}"


@pytest.mark.parametrize(
    "asked",
    [
        crashing({"running": {}}, last=CRASHED),
        crashing({"waiting": {"reason": "ContainerCreating"}}, phase="Pending"),
        crashing({"terminated": {"exitCode": 0}}),
        crashing(CRASHED, restartPolicy="Never"),
    ],
)
def test_containers_that_run_start_or_have_ended(asked: Pod) -> None:
    assert explained(asked, _reserved_for_pod()).is_good


def _reserved_for_pod() -> ResourceClaim:
    made = full_claim()
    status = {"reservedFor": [{"resource": "pods", "name": "p", "uid": "uid-p"}]}
    return replace(made, status=replace(made.status, reserved_for=read(status, type(made.status)).reserved_for))


def test_a_node_that_does_not_exist() -> None:
    found = explained(pod(nodeName="gone"))
    assert [each.reason for each in found.blockers] == ["NodeMissing"]


def test_devices_that_are_not_ready_to_be_bound() -> None:
    made = _reserved_for_pod()
    assert made.status.allocation is not None
    [result] = made.status.allocation.devices.results
    waiting = replace(result, binding_conditions=("attached",), binding_failure_conditions=("failed",))
    devices = replace(made.status.allocation.devices, results=(waiting,))
    allocation = replace(made.status.allocation, devices=devices)
    found = explained(pod(claims=WAITING), replace(made, status=replace(made.status, allocation=allocation)))
    assert [(each.stage, each.reason) for each in found.blockers] == [(Stage.BINDING, "DevicesPending")]
    assert not found.is_good


def test_a_pod_whose_node_does_not_suit_it_any_more() -> None:
    running = pod(nodeName="n1", nodeSelector={"zone": "a"})
    running = replace(running, status=replace(running.status, phase="Running"))
    found = explained(running)
    assert (found.verdict, found.is_good) == ("NoLongerFits", True)
    assert next(found.lines()) == (
        "pod default/p is on node n1 already; it would not be placed there again: "
        "node selector or affinity does not match"
    )


def test_a_pod_that_has_ended() -> None:
    ended = pod(nodeName="n1")
    ended = replace(ended, status=replace(ended.status, phase="Succeeded"))
    assert next(explained(ended).lines()) == "pod default/p has ended: Succeeded"
