"""Table columns of workloads, storage, network and the other kinds that are only stored, as in Kubernetes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, Final

from dralloc.server.describe.table_columns import AGE, NAME, NONE, WIDE, Cell, Column, at, field, time_since
from dralloc.server.documents.json_documents import Document

Render = Callable[[Document, datetime], Cell]

_UNSET: Final = "<unset>"
# Short names of access modes, in the order in which Kubernetes prints them.
_ACCESS_MODES: Final = {
    "ReadWriteOnce": "RWO",
    "ReadOnlyMany": "ROX",
    "ReadWriteMany": "RWX",
    "ReadWriteOncePod": "RWOP",
}
_SHOWN_MAX: Final = 3


def _count(*path: str) -> Render:
    return field(*path, absent=0)


def _ready_of(wanted: int) -> Render:
    def cell(workload: Document, _: datetime) -> Cell:
        desired = at(workload, "spec", "replicas")
        return f"{at(workload, 'status', 'readyReplicas') or 0}/{wanted if desired is None else desired}"

    return cell


def _containers(key: str, *template: str) -> Render:
    def cell(workload: Document, _: datetime) -> Cell:
        return ",".join(str(each.get(key, "")) for each in at(workload, *template, "spec", "containers") or ())

    return cell


def _labels(*path: str) -> Render:
    def cell(document: Document, _: datetime) -> Cell:
        return _printed_labels(at(document, *path) or {}) or NONE

    return cell


def _selector(*path: str) -> Render:
    def cell(document: Document, _: datetime) -> Cell:
        selector = at(document, *path) or {}
        terms = [_printed_labels(selector.get("matchLabels") or {})]
        for term in selector.get("matchExpressions") or ():
            values = ",".join(term.get("values") or ())
            words = {"Exists": term["key"], "DoesNotExist": f"!{term['key']}"}
            terms.append(words.get(term["operator"], f"{term['key']} {term['operator'].lower()} ({values})"))
        return ",".join(filter(None, terms)) or NONE

    return cell


def _printed_labels(labels: Mapping[str, Any]) -> str:
    return ",".join(f"{key}={value}" for key, value in sorted(labels.items()))


def _some(texts: Iterable[str], empty: str = NONE) -> str:
    """The first three, and how many more there are."""
    listed = list(texts)
    more = f" + {len(listed) - _SHOWN_MAX} more..." if len(listed) > _SHOWN_MAX else ""
    return ",".join(listed[:_SHOWN_MAX]) + more or empty


def _access_modes(*path: str) -> Render:
    def cell(document: Document, _: datetime) -> Cell:
        modes = at(document, *path) or ()
        return ",".join(short for mode, short in _ACCESS_MODES.items() if mode in modes)

    return cell


def _volume_claim(volume: Document, _: datetime) -> Cell:
    claim = at(volume, "spec", "claimRef")
    return f"{claim.get('namespace', '')}/{claim.get('name', '')}" if claim else ""


def _phase(document: Document, _: datetime) -> Cell:
    if at(document, "metadata", "deletionTimestamp"):
        return "Terminating"
    return str(at(document, "status", "phase") or "")


def _service_address(service: Document, _: datetime) -> Cell:
    kind, external = at(service, "spec", "type") or "ClusterIP", at(service, "spec", "externalIPs") or []
    if kind == "ExternalName":
        return str(at(service, "spec", "externalName") or NONE)
    balancers = at(service, "status", "loadBalancer", "ingress") or ()
    found = [*(str(each.get("ip") or each.get("hostname")) for each in balancers), *external]
    return ",".join(found) or ("<pending>" if kind == "LoadBalancer" else NONE)


def _service_ports(service: Document, _: datetime) -> Cell:
    def printed(port: Mapping[str, Any]) -> str:
        node_port = f":{port['nodePort']}" if port.get("nodePort") else ""
        return f"{port.get('port')}{node_port}/{port.get('protocol') or 'TCP'}"

    return ",".join(map(printed, at(service, "spec", "ports") or ())) or NONE


def _ingress_hosts(ingress: Document, _: datetime) -> Cell:
    return _some((rule["host"] for rule in at(ingress, "spec", "rules") or () if rule.get("host")), "*")


def _ingress_address(ingress: Document, _: datetime) -> Cell:
    balancers = at(ingress, "status", "loadBalancer", "ingress") or ()
    return ",".join(str(each.get("ip") or each.get("hostname")) for each in balancers)


def _ingress_ports(ingress: Document, _: datetime) -> Cell:
    return "80, 443" if at(ingress, "spec", "tls") else "80"


def _ingress_parameters(class_: Document, _: datetime) -> Cell:
    parameters = at(class_, "spec", "parameters")
    if not parameters:
        return NONE
    group = f".{parameters['apiGroup']}" if parameters.get("apiGroup") else ""
    return f"{parameters.get('kind')}{group}/{parameters.get('name')}"


def _endpoints(endpoints: Document, _: datetime) -> Cell:
    return _some(
        f"{address.get('ip')}:{port.get('port')}"
        for subset in endpoints.get("subsets") or ()
        for port in subset.get("ports") or ()
        for address in subset.get("addresses") or ()
    )


def _slice_ports(slice_: Document, _: datetime) -> Cell:
    return _some((str(port.get("port", "*")) for port in slice_.get("ports") or ()), _UNSET)


def _slice_addresses(slice_: Document, _: datetime) -> Cell:
    return _some((a for each in slice_.get("endpoints") or () for a in each.get("addresses") or ()), _UNSET)


def _targets(autoscaler: Document, _: datetime) -> Cell:
    """`name: current/target` of each metric."""
    metrics, current = at(autoscaler, "spec", "metrics") or (), at(autoscaler, "status", "currentMetrics") or ()
    texts = []
    for position, metric in enumerate(metrics):
        part = metric.get(_metric_member(metric.get("type", "")), {})
        observed = current[position].get(_metric_member(metric.get("type", "")), {}) if position < len(current) else {}
        name = f"{part['name']}: " if part.get("name") else ""
        texts.append(f"{name}{_measure(observed.get('current') or {})}/{_measure(part.get('target') or {})}")
    return _some(texts)


def _metric_member(kind: str) -> str:
    return kind[:1].lower() + kind[1:]


def _measure(value: Mapping[str, Any]) -> str:
    if "averageUtilization" in value:
        return f"{value['averageUtilization']}%"
    return str(value.get("averageValue") or value.get("value") or "<unknown>")


def _scaled_object(autoscaler: Document, _: datetime) -> Cell:
    target = at(autoscaler, "spec", "scaleTargetRef") or {}
    return f"{target.get('kind')}/{target.get('name')}"


def _last_schedule(job: Document, now: datetime) -> Cell:
    last = at(job, "status", "lastScheduleTime")
    return time_since(last, now) if last else NONE


def _owner(revision: Document, _: datetime) -> Cell:
    owner = next((each for each in at(revision, "metadata", "ownerReferences") or () if each.get("controller")), None)
    if owner is None:
        return NONE
    group = str(owner.get("apiVersion", "")).partition("/")[0]
    return f"{str(owner.get('kind', '')).lower()}.{group}/{owner.get('name')}"


def _class_name(class_: Document, _: datetime) -> Cell:
    """The name, marked if the class is the default."""
    annotations = at(class_, "metadata", "annotations") or {}
    marked = any(name.endswith("is-default-class") and value == "true" for name, value in annotations.items())
    return f"{at(class_, 'metadata', 'name')} (default)" if marked else str(at(class_, "metadata", "name"))


def _truth(*path: str, absent: bool = False) -> Render:
    return lambda document, _: "true" if (absent if (v := at(document, *path)) is None else v) else "false"


def _integer(name: str, *path: str) -> Column:
    return Column(name, _count(*path), type="integer")


def _text(name: str, *path: str, absent: str = "", priority: int = 0) -> Column:
    return Column(name, field(*path, absent=absent), priority=priority)


def _template(*template: str) -> tuple[Column, ...]:
    return (
        Column("Containers", _containers("name", *template), priority=WIDE),
        Column("Images", _containers("image", *template), priority=WIDE),
    )


_TEMPLATE: Final = _template("spec", "template")
_SELECTOR: Final = Column("Selector", _selector("spec", "selector"), priority=WIDE)
_REPLICAS: Final = (
    NAME,
    _integer("Desired", "spec", "replicas"),
    _integer("Current", "status", "replicas"),
    _integer("Ready", "status", "readyReplicas"),
    AGE,
    *_TEMPLATE,
)
_CLASS: Final = Column("Name", _class_name, NAME.description, format="name")

STORED_COLUMNS: Final[Mapping[tuple[str, str], tuple[Column, ...]]] = {
    ("apps", "Deployment"): (
        NAME,
        Column("Ready", _ready_of(1)),
        _integer("Up-to-date", "status", "updatedReplicas"),
        _integer("Available", "status", "availableReplicas"),
        AGE,
        *_TEMPLATE,
        _SELECTOR,
    ),
    ("apps", "ReplicaSet"): (*_REPLICAS, _SELECTOR),
    ("", "ReplicationController"): (*_REPLICAS, Column("Selector", _labels("spec", "selector"), priority=WIDE)),
    ("apps", "StatefulSet"): (NAME, Column("Ready", _ready_of(1)), AGE, *_TEMPLATE),
    ("apps", "DaemonSet"): (
        NAME,
        _integer("Desired", "status", "desiredNumberScheduled"),
        _integer("Current", "status", "currentNumberScheduled"),
        _integer("Ready", "status", "numberReady"),
        _integer("Up-to-date", "status", "updatedNumberScheduled"),
        _integer("Available", "status", "numberAvailable"),
        Column("Node Selector", _labels("spec", "template", "spec", "nodeSelector")),
        AGE,
        *_TEMPLATE,
        _SELECTOR,
    ),
    ("apps", "ControllerRevision"): (
        NAME,
        Column("Controller", _owner),
        _integer("Revision", "revision"),
        AGE,
    ),
    ("batch", "CronJob"): (
        NAME,
        _text("Schedule", "spec", "schedule"),
        _text("Timezone", "spec", "timeZone", absent=NONE),
        Column("Suspend", _truth("spec", "suspend"), type="boolean"),
        Column("Active", lambda job, _: len(at(job, "status", "active") or ()), type="integer"),
        Column("Last Schedule", _last_schedule),
        AGE,
        *_template("spec", "jobTemplate", "spec", "template"),
        Column("Selector", _selector("spec", "jobTemplate", "spec", "selector"), priority=WIDE),
    ),
    ("", "PodTemplate"): (
        NAME,
        Column("Containers", _containers("name", "template")),
        Column("Images", _containers("image", "template")),
        Column("Pod Labels", _labels("template", "metadata", "labels")),
    ),
    ("policy", "PodDisruptionBudget"): (
        NAME,
        _text("Min Available", "spec", "minAvailable", absent="N/A"),
        _text("Max Unavailable", "spec", "maxUnavailable", absent="N/A"),
        _integer("Allowed Disruptions", "status", "disruptionsAllowed"),
        AGE,
    ),
    ("autoscaling", "HorizontalPodAutoscaler"): (
        NAME,
        Column("Reference", _scaled_object),
        Column("Targets", _targets),
        _text("MinPods", "spec", "minReplicas", absent=_UNSET),
        _integer("MaxPods", "spec", "maxReplicas"),
        _integer("Replicas", "status", "currentReplicas"),
        AGE,
    ),
    ("", "Service"): (
        NAME,
        _text("Type", "spec", "type", absent="ClusterIP"),
        _text("Cluster-IP", "spec", "clusterIP", absent=NONE),
        Column("External-IP", _service_address),
        Column("Port(s)", _service_ports),
        AGE,
        Column("Selector", _labels("spec", "selector"), priority=WIDE),
    ),
    ("", "Endpoints"): (NAME, Column("Endpoints", _endpoints), AGE),
    ("discovery.k8s.io", "EndpointSlice"): (
        NAME,
        _text("AddressType", "addressType"),
        Column("Ports", _slice_ports),
        Column("Endpoints", _slice_addresses),
        AGE,
    ),
    ("networking.k8s.io", "Ingress"): (
        NAME,
        _text("Class", "spec", "ingressClassName", absent=NONE),
        Column("Hosts", _ingress_hosts),
        Column("Address", _ingress_address),
        Column("Ports", _ingress_ports),
        AGE,
    ),
    ("networking.k8s.io", "IngressClass"): (
        _CLASS,
        _text("Controller", "spec", "controller"),
        Column("Parameters", _ingress_parameters),
        AGE,
    ),
    ("networking.k8s.io", "NetworkPolicy"): (NAME, Column("Pod-Selector", _selector("spec", "podSelector")), AGE),
    ("", "PersistentVolume"): (
        NAME,
        _text("Capacity", "spec", "capacity", "storage"),
        Column("Access Modes", _access_modes("spec", "accessModes")),
        _text("Reclaim Policy", "spec", "persistentVolumeReclaimPolicy"),
        Column("Status", _phase),
        Column("Claim", _volume_claim),
        _text("StorageClass", "spec", "storageClassName"),
        _text("VolumeAttributesClass", "spec", "volumeAttributesClassName", absent=_UNSET),
        _text("Reason", "status", "reason"),
        AGE,
        _text("VolumeMode", "spec", "volumeMode", absent=_UNSET, priority=WIDE),
    ),
    ("", "PersistentVolumeClaim"): (
        NAME,
        Column("Status", _phase),
        _text("Volume", "spec", "volumeName"),
        _text("Capacity", "status", "capacity", "storage"),
        Column("Access Modes", _access_modes("status", "accessModes")),
        _text("StorageClass", "spec", "storageClassName"),
        _text("VolumeAttributesClass", "spec", "volumeAttributesClassName", absent=_UNSET),
        AGE,
        _text("VolumeMode", "spec", "volumeMode", absent=_UNSET, priority=WIDE),
    ),
    ("storage.k8s.io", "StorageClass"): (
        _CLASS,
        _text("Provisioner", "provisioner"),
        _text("ReclaimPolicy", "reclaimPolicy", absent="Delete"),
        _text("VolumeBindingMode", "volumeBindingMode", absent="Immediate"),
        Column("AllowVolumeExpansion", _truth("allowVolumeExpansion")),
        AGE,
    ),
    ("storage.k8s.io", "VolumeAttributesClass"): (_CLASS, _text("DriverName", "driverName"), AGE),
    ("storage.k8s.io", "VolumeAttachment"): (
        NAME,
        _text("Attacher", "spec", "attacher"),
        _text("PV", "spec", "source", "persistentVolumeName"),
        _text("Node", "spec", "nodeName"),
        Column("Attached", _truth("status", "attached"), type="boolean"),
        AGE,
    ),
    ("storage.k8s.io", "CSINode"): (
        NAME,
        Column("Drivers", lambda node, _: len(at(node, "spec", "drivers") or ()), type="integer"),
        AGE,
    ),
    ("storage.k8s.io", "CSIDriver"): (
        NAME,
        Column("AttachRequired", _truth("spec", "attachRequired", absent=True), type="boolean"),
        Column("PodInfoOnMount", _truth("spec", "podInfoOnMount"), type="boolean"),
        Column("StorageCapacity", _truth("spec", "storageCapacity"), type="boolean"),
        _text("TokenRequests", "spec", "tokenRequests", absent=_UNSET),
        Column("RequiresRepublish", _truth("spec", "requiresRepublish"), type="boolean"),
        Column("Modes", lambda driver, _: ",".join(at(driver, "spec", "volumeLifecycleModes") or ("Persistent",))),
        AGE,
    ),
    ("storage.k8s.io", "CSIStorageCapacity"): (
        NAME,
        _text("StorageClassName", "storageClassName"),
        _text("Capacity", "capacity", absent=_UNSET),
    ),
    ("node.k8s.io", "RuntimeClass"): (NAME, _text("Handler", "handler"), AGE),
}
