"""Table columns for pods, nodes and other core kinds, as in Kubernetes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

from dralloc.kube.member_forms import EVENT_FORMS
from dralloc.kube.timestamps import BadTimestamp, parse_timestamp
from dralloc.server.describe.table_columns import (
    AGE,
    NAME,
    NONE,
    UNKNOWN,
    WIDE,
    Cell,
    Column,
    at,
    field,
    print_duration,
    time_since,
)
from dralloc.server.documents.json_documents import Document

# --- pods ---------------------------------------------------------------------------------------------------


def _statuses(pod: Document, of: str = "containerStatuses") -> list[Any]:
    return at(pod, "status", of) or []


def _pod_ready(pod: Document, _: datetime) -> Cell:
    ready = sum(1 for status in _statuses(pod) if status.get("ready"))
    return f"{ready}/{len(at(pod, 'spec', 'containers') or ())}"


def _pod_status(pod: Document, _: datetime) -> Cell:
    """The reason why a container waits or terminated, or else the pod's phase."""
    reason = at(pod, "status", "reason") or at(pod, "status", "phase") or ""
    if _condition(pod, "PodScheduled").get("reason") == "SchedulingGated":
        reason = "SchedulingGated"
    unfinished = _unfinished_init(pod)
    reason = unfinished or next(filter(None, map(_container_reason, _statuses(pod))), reason)
    if reason == "Completed" and any(at(status, "state", "running") is not None for status in _statuses(pod)):
        reason = "Running" if _condition(pod, "Ready").get("status") == "True" else "NotReady"
    if at(pod, "metadata", "deletionTimestamp"):
        return "Unknown" if at(pod, "status", "reason") == "NodeLost" else "Terminating"
    return str(reason)


def _unfinished_init(pod: Document) -> str:
    """The progress of init containers; empty once they are done."""
    statuses = _statuses(pod, "initContainerStatuses")
    for position, status in enumerate(statuses):
        if at(status, "state", "terminated", "exitCode") == 0 or status.get("started"):
            continue
        reason = _container_reason(status)
        return f"Init:{reason}" if reason and reason != "PodInitializing" else f"Init:{position}/{len(statuses)}"
    return ""


def _container_reason(status: Mapping[str, Any]) -> str:
    state = status.get("state") or {}
    if state.get("waiting"):
        return str(state["waiting"].get("reason") or "")
    ended = state.get("terminated")
    if not ended:
        return ""
    if ended.get("reason"):
        return str(ended["reason"])
    return f"Signal:{ended['signal']}" if ended.get("signal") else f"ExitCode:{ended.get('exitCode', 0)}"


def _pod_restarts(pod: Document, now: datetime) -> Cell:
    statuses = _statuses(pod)
    restarts = sum(status.get("restartCount", 0) for status in statuses)
    ends = [end for status in statuses if (end := at(status, "lastState", "terminated", "finishedAt"))]
    return f"{restarts} ({time_since(max(ends), now)} ago)" if restarts and ends else str(restarts)


def _pod_claims(pod: Document, _: datetime) -> Cell:
    """The pod's resource claims: named ones, and ones generated from templates."""
    made = {
        status.get("name"): status.get("resourceClaimName")
        for status in at(pod, "status", "resourceClaimStatuses") or ()
    }
    references = at(pod, "spec", "resourceClaims") or ()
    names = [reference.get("resourceClaimName") or made.get(reference.get("name")) for reference in references]
    return _joined(name or f"<{reference.get('name')}>" for name, reference in zip(names, references, strict=True))


def _readiness_gates(pod: Document, _: datetime) -> Cell:
    gates = at(pod, "spec", "readinessGates") or ()
    if not gates:
        return NONE
    met = sum(1 for gate in gates if _condition(pod, gate.get("conditionType")).get("status") == "True")
    return f"{met}/{len(gates)}"


def _condition(document: Document, type_: Any) -> Mapping[str, Any]:
    conditions = at(document, "status", "conditions") or ()
    return next((condition for condition in conditions if condition.get("type") == type_), {})


# --- nodes --------------------------------------------------------------------------------------------------

_ROLE_PREFIX: Final = "node-role.kubernetes.io/"


def _node_status(node: Document, _: datetime) -> Cell:
    words = {"True": "Ready", None: "Unknown"}
    status = words.get(_condition(node, "Ready").get("status"), "NotReady")
    return f"{status},SchedulingDisabled" if at(node, "spec", "unschedulable") else status


def _node_roles(node: Document, _: datetime) -> Cell:
    labels = at(node, "metadata", "labels") or {}
    roles = {label.removeprefix(_ROLE_PREFIX) for label in labels if label.startswith(_ROLE_PREFIX)}
    if role := labels.get("kubernetes.io/role"):
        roles.add(role)
    return _joined(sorted(roles))


def _node_address(kind: str) -> Any:
    def cell(node: Document, _: datetime) -> Cell:
        addresses = at(node, "status", "addresses") or ()
        return next((str(address.get("address")) for address in addresses if address.get("type") == kind), NONE)

    return cell


# --- events, quotas, jobs -----------------------------------------------------------------------------------


def _last_seen(event: Document, now: datetime) -> Cell:
    """The time since the event was last seen, with count and period if it was repeated."""
    series = event.get("series") or {}
    last = series.get("lastObservedTime") or event.get("lastTimestamp") or event.get("eventTime")
    return time_since(last, now)


def _first_seen(event: Document, now: datetime) -> Cell:
    return time_since(event.get("firstTimestamp") or event.get("eventTime"), now)


def _event_count(event: Document, _: datetime) -> Cell:
    return int(at(event, "series", "count") or event.get("count") or 1)


def _event_object(event: Document, _: datetime) -> Cell:
    about = event.get("involvedObject") or {}
    return (
        f"{str(about.get('kind', '')).lower()}/{about.get('name', '')}"
        if about.get("name")
        else str(about.get("kind", ""))
    )


def _event_source(event: Document, _: datetime) -> Cell:
    parts = (at(event, "source", "component") or event.get("reportingComponent"), at(event, "source", "host"))
    return ", ".join(str(part) for part in parts if part)


def _event_message(event: Document, _: datetime) -> Cell:
    return str(event.get("message") or "").strip()


def _quota(is_limit: bool) -> Any:
    def cell(quota: Document, _: datetime) -> Cell:
        hard, used = at(quota, "status", "hard") or {}, at(quota, "status", "used") or {}
        named = [name for name in sorted(hard) if name.startswith("limits.") is is_limit]
        return ", ".join(f"{name}: {used.get(name, 0)}/{hard[name]}" for name in named)

    return cell


def _job_status(job: Document, _: datetime) -> Cell:
    for condition, word in (("Complete", "Complete"), ("Failed", "Failed")):
        if _condition(job, condition).get("status") == "True":
            return word
    if at(job, "metadata", "deletionTimestamp"):
        return "Terminating"
    for condition, word in (
        ("Suspended", "Suspended"),
        ("FailureTarget", "FailureTarget"),
        ("SuccessCriteriaMet", "SuccessCriteriaMet"),
    ):
        if _condition(job, condition).get("status") == "True":
            return word
    return "Running"


def _job_completions(job: Document, _: datetime) -> Cell:
    succeeded = at(job, "status", "succeeded") or 0
    wanted = at(job, "spec", "completions")
    if wanted is not None:
        return f"{succeeded}/{wanted}"
    parallelism = at(job, "spec", "parallelism") or 1
    return f"{succeeded}/1 of {parallelism}" if parallelism > 1 else f"{succeeded}/1"


def _job_duration(job: Document, now: datetime) -> Cell:
    began, ended = at(job, "status", "startTime"), at(job, "status", "completionTime")
    if not began:
        return ""
    try:
        return print_duration((parse_timestamp(ended) if ended else now) - parse_timestamp(began))
    except BadTimestamp:
        return UNKNOWN


def _job_containers(key: str) -> Any:
    def cell(job: Document, _: datetime) -> Cell:
        containers = at(job, "spec", "template", "spec", "containers") or ()
        return _joined(str(container.get(key)) for container in containers)

    return cell


def _job_selector(job: Document, _: datetime) -> Cell:
    labels = at(job, "spec", "selector", "matchLabels") or {}
    return _joined(f"{name}={value}" for name, value in sorted(labels.items()))


def _count(*members: str) -> Callable[[Document, datetime], Cell]:
    return lambda document, _: sum(len(document.get(member) or ()) for member in members)


def _joined(texts: Iterable[str]) -> str:
    return ",".join(texts) or NONE


# --- roles and bindings ---------------------------------------------------------------------------------------


def _role_of_binding(binding: Document, _: datetime) -> Cell:
    return f"{at(binding, 'roleRef', 'kind')}/{at(binding, 'roleRef', 'name')}"


def _subjects(kind: str) -> Callable[[Document, datetime], Cell]:
    def cell(binding: Document, _: datetime) -> Cell:
        found = [subject for subject in binding.get("subjects") or () if subject.get("kind") == kind]
        return ", ".join(
            f"{subject.get('namespace', '')}/{subject['name']}" if kind == "ServiceAccount" else subject["name"]
            for subject in found
        )

    return cell


_ROLE: Final = (
    NAME,
    Column("Created At", field("metadata", "creationTimestamp"), "When the role was created."),
)
_BINDING: Final = (
    NAME,
    Column("Role", _role_of_binding, "The role that is granted."),
    AGE,
    Column("Users", _subjects("User"), "The users that the role is granted to.", WIDE),
    Column("Groups", _subjects("Group"), "The groups that the role is granted to.", WIDE),
    Column("ServiceAccounts", _subjects("ServiceAccount"), "The accounts that the role is granted to.", WIDE),
)


_EVENT: Final = (
    Column("Last Seen", _last_seen, "When this was last seen."),
    Column("Type", field("type", absent=""), "Normal, or a warning."),
    Column("Reason", field("reason", absent=""), "What happened, in a word."),
    Column("Object", _event_object, "What it happened to."),
    Column(
        "Subobject",
        field("involvedObject", "fieldPath", absent=""),
        "The part of the object that the event is about.",
        WIDE,
    ),
    Column("Source", _event_source, "Who saw it.", WIDE),
    Column("Message", _event_message, "What happened."),
    Column("First Seen", _first_seen, "When this was first seen.", WIDE),
    Column("Count", _event_count, "How often this was seen.", WIDE, "integer"),
    Column("Name", NAME.cell, NAME.description, WIDE, format="name"),
)


def _of_new_event(column: Column) -> Column:
    """The column for an event in the form of events.k8s.io."""
    return replace(column, cell=lambda event, now: column.cell(EVENT_FORMS.to_stored(event), now))


CORE_COLUMNS: Final[Mapping[tuple[str, str], tuple[Column, ...]]] = {
    ("", "Pod"): (
        NAME,
        Column("Ready", _pod_ready, "Ready containers of all containers."),
        Column("Status", _pod_status, "The pod's phase, or the reason why it does not run."),
        Column("Restarts", _pod_restarts, "The number of container restarts, and the time since the last."),
        AGE,
        Column("IP", field("status", "podIP"), "The pod's address.", WIDE),
        Column("Node", field("spec", "nodeName"), "The node that the pod is bound to.", WIDE),
        Column(
            "Nominated Node",
            field("status", "nominatedNodeName"),
            "The node on which pods are preempted for this pod.",
            WIDE,
        ),
        Column("Readiness Gates", _readiness_gates, "Additional conditions for the pod to be ready.", WIDE),
        Column("Claims", _pod_claims, "The resource claims that the pod uses.", WIDE),
    ),
    ("", "Node"): (
        NAME,
        Column("Status", _node_status, "Whether the node is ready and schedulable."),
        Column("Roles", _node_roles, "What the node is for."),
        AGE,
        Column("Version", field("status", "nodeInfo", "kubeletVersion", absent=""), "The version of the node's agent."),
        Column("Internal-IP", _node_address("InternalIP"), "The node's address inside the cluster.", WIDE),
        Column("External-IP", _node_address("ExternalIP"), "The node's external address.", WIDE),
        Column("OS-Image", field("status", "nodeInfo", "osImage", absent=UNKNOWN), "The operating system.", WIDE),
        Column("Kernel-Version", field("status", "nodeInfo", "kernelVersion", absent=UNKNOWN), "The kernel.", WIDE),
        Column(
            "Container-Runtime",
            field("status", "nodeInfo", "containerRuntimeVersion", absent=UNKNOWN),
            "The container runtime.",
            WIDE,
        ),
    ),
    ("", "Namespace"): (
        NAME,
        Column("Status", field("status", "phase", absent=""), "The namespace's phase."),
        AGE,
    ),
    ("", "Event"): _EVENT,
    ("events.k8s.io", "Event"): tuple(map(_of_new_event, _EVENT)),
    ("", "ResourceQuota"): (
        NAME,
        Column("Request", _quota(is_limit=False), "Used requests of the hard limits."),
        Column("Limit", _quota(is_limit=True), "Used limits of the hard limits."),
        AGE,
    ),
    ("", "ConfigMap"): (
        NAME,
        Column("Data", _count("data", "binaryData"), "The number of keys.", type="integer"),
        AGE,
    ),
    ("", "Secret"): (
        NAME,
        Column("Type", field("type", absent=""), "What the secret is for."),
        Column("Data", _count("data"), "The number of keys.", type="integer"),
        AGE,
    ),
    ("", "ServiceAccount"): (NAME, AGE),
    ("rbac.authorization.k8s.io", "Role"): _ROLE,
    ("rbac.authorization.k8s.io", "ClusterRole"): _ROLE,
    ("rbac.authorization.k8s.io", "RoleBinding"): _BINDING,
    ("rbac.authorization.k8s.io", "ClusterRoleBinding"): _BINDING,
    ("coordination.k8s.io", "Lease"): (
        NAME,
        Column("Holder", field("spec", "holderIdentity", absent=""), "Who holds the lease."),
        AGE,
    ),
    ("scheduling.k8s.io", "PriorityClass"): (
        NAME,
        Column("Value", field("value", absent=0), "The priority of pods of the class."),
        Column("Global-Default", field("globalDefault", absent=False), "Whether pods without a class get this class."),
        AGE,
        Column("PreemptionPolicy", field("preemptionPolicy"), "Whether its pods may preempt others."),
    ),
    ("batch", "Job"): (
        NAME,
        Column("Status", _job_status, "Whether the job runs, is complete or has failed."),
        Column("Completions", _job_completions, "Succeeded pods of the wanted completions."),
        Column("Duration", _job_duration, "The run time of the job."),
        AGE,
        Column("Containers", _job_containers("name"), "The containers of its pods.", WIDE),
        Column("Images", _job_containers("image"), "The images of its pods.", WIDE),
        Column("Selector", _job_selector, "The labels of its pods.", WIDE),
    ),
}
