"""Tables of `kubectl get`: recorded tables, and cells of each kind."""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from dralloc.primitives.errors import BadRequest
from dralloc.server.describe.table_columns import print_duration
from dralloc.server.describe.tables import IncludeObject, read_include_object, table_of
from dralloc.server.documents.json_documents import Document

DRA = "resource.k8s.io"
NOW = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
CONVERSATION = Path(__file__).parents[2] / "vectors" / "http.jsonl.gz"


def named(**parts: Any) -> Document:
    metadata = {"name": "x", "creationTimestamp": "2026-01-01T11:59:00Z", **parts.pop("metadata", {})}
    return {"metadata": metadata, **parts}


def shown(kind: tuple[str, str], document: Document) -> dict[str, Any]:
    """The cells by their columns."""
    table = table_of(*kind, [document], NOW)
    return dict(zip([column["name"] for column in table["columnDefinitions"]], table["rows"][0]["cells"], strict=True))


def result(device: str, share: str | None = None, **consumed: str) -> dict[str, Any]:
    found: dict[str, Any] = {"request": "r", "driver": "d", "pool": "p", "device": device}
    if share:
        found |= {"shareID": share, "consumedCapacity": consumed}
    return found


def allocated(*results: dict[str, Any], node: str = "", consumers: int = 0) -> Document:
    allocation: Document = {"devices": {"results": list(results)}}
    if node:
        requirement = {"key": "metadata.name", "operator": "In", "values": [node]}
        allocation["nodeSelector"] = {"nodeSelectorTerms": [{"matchFields": [requirement]}]}
    status: Document = {"allocation": allocation}
    if consumers:
        status["reservedFor"] = [{"resource": "pods", "name": f"p{number}"} for number in range(consumers)]
    return named(status=status)


@dataclass(frozen=True)
class Case:
    id: str
    kind: tuple[str, str]
    document: Document
    want: dict[str, Any]


CLAIM, SLICE, RULE = (DRA, "ResourceClaim"), (DRA, "ResourceSlice"), (DRA, "DeviceTaintRule")
PRIORITY = ("scheduling.k8s.io", "PriorityClass")
POD, NODE, JOB = ("", "Pod"), ("", "Node"), ("batch", "Job")
JOBS = {"apiGroup": "batch", "resource": "jobs", "name": "j"}
TAINTED = {"taint": {"key": "k", "value": "v", "effect": "NoExecute"}}


def waiting(reason: str) -> dict[str, Any]:
    return {"name": "c", "ready": False, "restartCount": 0, "state": {"waiting": {"reason": reason}}}


def ended(code: int, **more: Any) -> dict[str, Any]:
    return {"name": "c", "ready": False, "restartCount": 0, "state": {"terminated": {"exitCode": code, **more}}}


def running(*, ready: bool = True, restarts: int = 0, ended_at: str = "") -> dict[str, Any]:
    last = {"terminated": {"finishedAt": ended_at}} if ended_at else {}
    return {"name": "c", "ready": ready, "restartCount": restarts, "state": {"running": {}}, "lastState": last}


def pod(
    *statuses: dict[str, Any], init: tuple[dict[str, Any], ...] = (), phase: str = "Running", **parts: Any
) -> Document:
    status = {
        "phase": phase,
        "containerStatuses": list(statuses),
        "initContainerStatuses": list(init),
        **parts.pop("status", {}),
    }
    return named(
        spec={"containers": [{"name": "c"}] * max(len(statuses), 1), **parts.pop("spec", {})}, status=status, **parts
    )


CASES = [
    Case("a new claim", CLAIM, named(), {"Name": "x", "State": "pending", "Devices": "<none>", "Shares": 0, "Consumed": "<none>", "Reserved For": "<none>", "Age": "60s"}),
    Case("an allocated claim", CLAIM, allocated(result("gpu-0"), node="n1"), {"State": "allocated", "Devices": "p/gpu-0", "Node": "n1"}),
    Case("a claim in use", CLAIM, allocated(result("gpu-0"), consumers=2), {"State": "allocated,reserved", "Reserved For": "pods/p0,pods/p1", "Node": "<all>"}),
    Case("many consumers are counted", CLAIM, allocated(result("gpu-0"), consumers=256), {"Reserved For": "256 pods"}),
    Case("a workload consumes", CLAIM, named(status={"reservedFor": [JOBS]}), {"Reserved For": "jobs.batch/j"}),
    Case("pods and a workload", CLAIM, named(status={"reservedFor": [{"resource": "pods", "name": "p"}] * 4 + [JOBS]}), {"Reserved For": "4 pods,1 jobs.batch"}),
    Case("shares add up", CLAIM, allocated(result("nic", "1", bw="1Gi", ports="1"), result("nic", "2", bw="2Gi", ports="1")), {"Devices": "p/nic (x2)", "Shares": 2, "Consumed": "bw=3Gi,ports=2"}),
    Case("many devices are counted", CLAIM, allocated(*(result(f"gpu-{number}") for number in range(8))), {"Devices": "8 devices"}),
    Case("a priority class", PRIORITY, named(value=7, preemptionPolicy="Never"), {"Name": "x", "Value": 7, "Global-Default": False, "Age": "60s", "PreemptionPolicy": "Never"}),
    Case("a claim that goes", CLAIM, named(metadata={"deletionTimestamp": "2026-01-01T12:00:00Z"}), {"State": "deleted"}),
    Case("a claim that goes and is in use", CLAIM, {**allocated(result("gpu-0"), consumers=1), "metadata": {"name": "x", "deletionTimestamp": "t"}}, {"State": "deleted,allocated,reserved", "Age": "<unknown>"}),
    Case("what a claim asks", CLAIM, named(spec={"devices": {"requests": [{"name": "a", "exactly": {"deviceClassName": "gpu", "count": 2}}, {"name": "b", "firstAvailable": [{"deviceClassName": "big"}, {"deviceClassName": "small", "allocationMode": "All"}]}]}}), {"Requests": "a=2:gpu,b=1:big|all:small"}),
    Case("what an old claim asks", CLAIM, named(spec={"devices": {"requests": [{"name": "a", "deviceClassName": "gpu"}]}}), {"Requests": "a=1:gpu"}),
    Case("what a template asks", (DRA, "ResourceClaimTemplate"), named(spec={"spec": {"devices": {"requests": [{"name": "a", "exactly": {"deviceClassName": "gpu"}}]}}}), {"Name": "x", "Requests": "a=1:gpu"}),
    Case("a slice of a node", SLICE, named(spec={"driver": "d", "nodeName": "n", "pool": {"name": "p", "generation": 2, "resourceSliceCount": 1}, "devices": [{"allowMultipleAllocations": True, "taints": [{}]}, {}]}), {"Node": "n", "Driver": "d", "Pool": "p", "Devices": 2, "Shareable": 1, "Tainted": 1, "Generation": "2 (1 slices)", "Available On": "n"}),
    Case("a slice in the old shape", SLICE, named(spec={"devices": [{"basic": {"allowMultipleAllocations": True}}], "allNodes": True}), {"Node": "", "Shareable": 1, "Available On": "<all>"}),
    Case("a class", (DRA, "DeviceClass"), named(spec={"selectors": [{"cel": {"expression": "true"}}], "extendedResourceName": "e.com/gpu"}), {"Name": "x", "Extended Resource": "e.com/gpu", "Selectors": "true"}),
    Case("a rule for some devices", RULE, named(spec={"deviceSelector": {"driver": "d", "device": "g"}, **TAINTED}), {"Devices": "driver=d,device=g", "Taint": "k=v:NoExecute", "Evicting": "<none>"}),
    Case("a rule for all devices", RULE, named(spec={"deviceSelector": {}, "taint": {"key": "k", "effect": "None"}}), {"Devices": "<all>", "Taint": "k:None"}),
    Case("a rule for no device", RULE, named(spec=TAINTED, status={"conditions": [{"type": "EvictionInProgress", "status": "False"}]}), {"Devices": "<none>", "Evicting": "False"}),
    Case("a new pod", POD, pod(phase="Pending"), {"Ready": "0/1", "Status": "Pending", "Restarts": "0", "IP": "<none>", "Node": "<none>", "Claims": "<none>"}),
    Case("a running pod", POD, pod(running(), spec={"nodeName": "n"}, status={"podIP": "10.0.0.1"}), {"Ready": "1/1", "Status": "Running", "IP": "10.0.0.1", "Node": "n"}),
    Case("a pod that restarts", POD, pod(running(restarts=3, ended_at="2026-01-01T11:50:00Z")), {"Restarts": "3 (10m ago)"}),
    Case("a container waits", POD, pod(waiting("ImagePullBackOff"), phase="Pending"), {"Status": "ImagePullBackOff"}),
    Case("the first container that has a reason counts", POD, pod(running(), waiting("CrashLoopBackOff")), {"Ready": "1/2", "Status": "CrashLoopBackOff"}),
    Case("a container failed", POD, pod(ended(2), phase="Failed"), {"Status": "ExitCode:2"}),
    Case("a container was killed", POD, pod(ended(137, signal=9), phase="Failed"), {"Status": "Signal:9"}),
    Case("a pod is done", POD, pod(ended(0, reason="Completed"), phase="Succeeded"), {"Status": "Completed"}),
    Case("one container is done, one runs", POD, pod(running(), ended(0, reason="Completed"), status={"conditions": [{"type": "Ready", "status": "False"}]}), {"Status": "NotReady"}),
    Case("the first containers are not done", POD, pod(init=(ended(0), running(ready=False)), phase="Pending"), {"Status": "Init:1/2"}),
    Case("a first container fails", POD, pod(init=(waiting("CrashLoopBackOff"),), phase="Pending"), {"Status": "Init:CrashLoopBackOff"}),
    Case("a pod goes", POD, pod(running(), metadata={"deletionTimestamp": "t"}), {"Status": "Terminating"}),
    Case("a gated pod", POD, pod(phase="Pending", status={"conditions": [{"type": "PodScheduled", "reason": "SchedulingGated"}]}), {"Status": "SchedulingGated"}),
    Case("an evicted pod", POD, pod(phase="Failed", status={"reason": "Evicted"}), {"Status": "Evicted"}),
    Case("claims of a pod", POD, pod(spec={"resourceClaims": [{"name": "a", "resourceClaimName": "c1"}, {"name": "b"}, {"name": "d"}]}, status={"resourceClaimStatuses": [{"name": "b", "resourceClaimName": "x-b-12"}]}), {"Claims": "c1,x-b-12,<d>"}),
    Case("readiness gates of a pod", POD, pod(spec={"readinessGates": [{"conditionType": "a"}, {"conditionType": "b"}]}, status={"conditions": [{"type": "a", "status": "True"}]}), {"Readiness Gates": "1/2"}),
    Case("a new node", NODE, named(), {"Status": "Unknown", "Roles": "<none>", "Version": "", "Internal-IP": "<none>"}),
    Case("a ready node", NODE, named(metadata={"labels": {"node-role.kubernetes.io/worker": "", "kubernetes.io/role": "gpu"}}, spec={"unschedulable": True}, status={"conditions": [{"type": "Ready", "status": "True"}], "addresses": [{"type": "InternalIP", "address": "10.0.0.2"}], "nodeInfo": {"kubeletVersion": "v1"}}), {"Status": "Ready,SchedulingDisabled", "Roles": "gpu,worker", "Version": "v1", "Internal-IP": "10.0.0.2"}),
    Case("a namespace", ("", "Namespace"), named(status={"phase": "Active"}), {"Name": "x", "Status": "Active", "Age": "60s"}),
    Case("an event", ("", "Event"), named(involvedObject={"kind": "Pod", "name": "p"}, lastTimestamp="2026-01-01T11:00:00Z", type="Warning", reason="No", message=" no \n", count=3, source={"component": "s", "host": "h"}), {"Last Seen": "60m", "Type": "Warning", "Reason": "No", "Object": "pod/p", "Message": "no", "Count": 3, "Source": "s, h", "Name": "x"}),
    Case("an event in a series", ("", "Event"), named(eventTime="2026-01-01T10:00:00.5Z", series={"count": 7, "lastObservedTime": "2026-01-01T11:59:30.000001Z"}), {"Last Seen": "29s", "First Seen": "119m", "Count": 7}),
    Case("a quota", ("", "ResourceQuota"), named(status={"hard": {"pods": "4", "limits.cpu": "2"}, "used": {"pods": "1"}}), {"Request": "pods: 1/4", "Limit": "limits.cpu: 0/2"}),
    Case("a lease", ("coordination.k8s.io", "Lease"), named(spec={"holderIdentity": "me"}), {"Holder": "me"}),
    Case("a role", ("rbac.authorization.k8s.io", "Role"), named(), {"Name": "x", "Created At": "2026-01-01T11:59:00Z"}),
    Case("a binding", ("rbac.authorization.k8s.io", "RoleBinding"), named(roleRef={"kind": "Role", "name": "r"}, subjects=[{"kind": "User", "name": "u"}, {"kind": "User", "name": "v"}, {"kind": "ServiceAccount", "name": "s", "namespace": "n"}]), {"Role": "Role/r", "Age": "60s", "Users": "u, v", "Groups": "", "ServiceAccounts": "n/s"}),
    Case("a running job", JOB, named(spec={"completions": 3}, status={"succeeded": 1, "startTime": "2026-01-01T11:58:00Z"}), {"Status": "Running", "Completions": "1/3", "Duration": "2m"}),
    Case("a finished job", JOB, named(spec={"parallelism": 2}, status={"startTime": "2026-01-01T11:58:00Z", "completionTime": "2026-01-01T11:58:05Z", "conditions": [{"type": "Complete", "status": "True"}]}), {"Status": "Complete", "Completions": "0/1 of 2", "Duration": "5s"}),
    Case("a kind without columns of its own", ("x", "Other"), named(), {"Name": "x", "Age": "60s"}),
    Case("an odd object hides nothing", POD, named(status={"containerStatuses": [1]}), {"Name": "x", "Status": "<unknown>", "Age": "60s"}),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_cells(case: Case) -> None:
    cells = shown(case.kind, case.document)
    assert {name: cells[name] for name in case.want} == case.want


def recorded_tables() -> list[tuple[str, str, dict[str, Any]]]:
    kinds = {"resourceclaims": "ResourceClaim", "resourceslices": "ResourceSlice", "deviceclasses": "DeviceClass"}
    with gzip.open(CONVERSATION, "rt") as lines:
        steps = [json.loads(line) for line in lines]
    return [
        (step["name"], kinds[step["path"].partition("?")[0].rpartition("/")[2]], step["response"])
        for step in steps
        if step["compare"] == "table"
    ]


@pytest.mark.parametrize(
    ("name", "kind", "recorded"), recorded_tables(), ids=lambda value: value if isinstance(value, str) else ""
)
def test_columns_keep_the_names_and_order_of_kubernetes(name: str, kind: str, recorded: dict[str, Any]) -> None:
    ours = [column["name"] for column in table_of(DRA, kind, [], NOW)["columnDefinitions"]]
    assert [column for column in ours if column in recorded["columns"]] == recorded["columns"], name


def test_rows_include_as_much_of_the_object_as_requested() -> None:
    document = {**named(), "spec": {}}

    def row(include: IncludeObject) -> Any:
        return table_of(*CLAIM, [document], NOW, include=include)["rows"][0].get("object")

    assert row(IncludeObject.NONE) is None
    assert row(IncludeObject.OBJECT) == document
    assert row(IncludeObject.METADATA) == {
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": document["metadata"],
    }


def test_later_watch_events_have_no_columns() -> None:
    table = table_of(*CLAIM, [named()], NOW, list_metadata={"resourceVersion": "7"}, with_columns=False)
    assert (table["columnDefinitions"], table["metadata"], len(table["rows"])) == ([], {"resourceVersion": "7"}, 1)


def test_include_object_parameter() -> None:
    assert [read_include_object(text).value for text in ("", "None", "Object")] == ["Metadata", "None", "Object"]
    with pytest.raises(BadRequest, match="includeObject"):
        read_include_object("Some")


@pytest.mark.parametrize(
    ("seconds", "want"),
    [
        (-2, "<invalid>"), (-1, "0s"), (0, "0s"), (119, "119s"), (120, "2m"), (121, "2m1s"), (599, "9m59s"), (600, "10m"),
        (10_799, "179m"), (10_800, "3h"), (10_860, "3h1m"), (28_799, "7h59m"), (28_800, "8h"), (172_799, "47h"),
        (172_800, "2d"), (176_400, "2d1h"), (691_199, "7d23h"), (691_200, "8d"), (63_071_999, "729d"),
        (63_072_000, "2y"), (63_158_400, "2y1d"), (252_288_000, "8y"),
    ],
)  # fmt: skip
def test_print_duration(seconds: int, want: str) -> None:
    assert print_duration(timedelta(seconds=seconds)) == want
