"""Writes docs/reference from the code: commands, fields, metrics, feature gates, reasons, Python. Called by `make reference`."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import typer.main

from dralloc.allocator.diagnosis.reasons import Reason, ReasonCause
from dralloc.api.registry import KINDS
from dralloc.apiserver.audit.audit_metrics import AuditMetrics
from dralloc.apiserver.description.openapi_v3 import openapi_document
from dralloc.apiserver.http.flow_control import FlowControl
from dralloc.apiserver.http.request_metrics import ServerMetrics
from dralloc.cli.main import app, is_example
from dralloc.controllers.metrics import ControllerMetrics
from dralloc.doctor.examination import CHECKS as FAULTS
from dralloc.driver.metrics import DriverMetrics
from dralloc.driver_kit.check import Check, Feature
from dralloc.driver_kit.checks import ALL as CHECKS
from dralloc.fleet.metrics import FleetMetrics
from dralloc.node.metrics import NodeMetrics
from dralloc.primitives.features import GATES, FeatureGates
from dralloc.primitives.gate_metric import gate_metric
from dralloc.primitives.metrics import Metric
from dralloc.primitives.quantity import Quantity
from dralloc.scheduler.report.metrics import SchedulerMetrics
from dralloc.whatif.cluster_objects import relevant_kinds
from scripts.python_reference import python_page

PLACE: Final = Path(__file__).parents[1] / "docs" / "reference"
GENERATED: Final = "<!-- Written by `make reference` from the code. -->"
Row = Sequence[str]


def pages() -> Iterator[tuple[str, str]]:
    """Yields file name and text of every page of the reference."""
    writers: Mapping[str, Callable[[], Iterable[str]]] = {
        "cli.md": commands_page,
        "api.md": fields_page,
        "metrics.md": metrics_page,
        "doctor.md": faults_page,
        "feature-gates.md": gates_page,
        "reasons.md": reasons_page,
        "sdk.md": sdk_page,
        "driver-checks.md": driver_checks_page,
        "python.md": library_page,
    }
    for name, write in writers.items():
        title, *rest = write()
        yield name, "\n".join([title, "", GENERATED, "", *rest]).rstrip() + "\n"


def table(head: Row, rows: Iterable[Row]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield f"|{'---|' * len(head)}"
    for row in rows:
        yield "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in row) + " |"
    yield ""


# --- Commands -------------------------------------------------------------------------------------------------------


def commands_page() -> Iterator[str]:
    root: Any = typer.main.get_command(app)
    yield "# Commands"
    yield "Exit codes: 0 means success, 1 a negative result (an invalid manifest, a pod that does not fit, a failed test), 2 an error: the last"
    yield "line of the output then says what to do. 130 and 143 mean that the command was interrupted by Ctrl-C or SIGTERM; everything that it had"
    yield "started has ended, too. `dralloc COMMAND --help` shows the contents of this page."
    yield ""
    listed = list(commands(root, "dralloc"))
    yield from table(
        ["command", "what it does"],
        ([f"[`{name}`](#{anchor(name)})", sentence(command.help)] for name, command in listed),
    )
    for name, command in listed:
        yield from command_section(name, command)


def commands(command: Any, name: str) -> Iterator[tuple[str, Any]]:
    if hasattr(command, "commands"):
        for each, found in sorted(command.commands.items()):
            yield from commands(found, f"{name} {each}")
    elif not command.hidden:
        yield name, command


def command_section(name: str, command: Any) -> Iterator[str]:
    arguments = [each for each in command.params if each.param_type_name == "argument"]
    options = [each for each in command.params if each.param_type_name == "option" and not each.hidden]
    usage = [name, *("[OPTIONS]" if options else "",), *(placeholder(each) for each in arguments)]
    yield f"## {name}"
    yield ""
    yield f"`{' '.join(filter(None, usage))}`"
    yield ""
    yield from help_text(command.help)
    rows = [[f"`{placeholder(each)}`", each.help or ""] for each in arguments]
    rows += [[f"`{spelling(each)}`", f"{each.help or ''}{default_of(each)}"] for each in options]
    if rows:
        yield from table(["argument or option", "meaning"], rows)


def help_text(text: str) -> Iterator[str]:
    """Yields the help of a command; indented paragraphs are examples."""
    for paragraph in re.split(r"\n\s*\n", text.strip()):
        lines = paragraph.split("\n")
        if is_example(paragraph):
            yield "```console not-run: an example"
            yield from map(example_line, lines)
            yield "```"
        else:
            yield from (line.strip() for line in lines)
        yield ""


def example_line(line: str) -> str:
    return line if line.startswith("#") else f"$ {line}"


def placeholder(argument: Any) -> str:
    name = argument.metavar or argument.name.upper()
    several = f"{name}…" if argument.nargs == -1 else name
    return several if argument.required else f"[{several}]"


def spelling(option: Any) -> str:
    names = ", ".join([*option.opts, *option.secondary_opts])
    return names if option.is_flag or option.count else f"{names} {option.metavar or option.name.upper()}"


def default_of(option: Any) -> str:
    if option.required:
        return " Required."
    if option.is_flag or option.default in (None, "", (), []) or callable(option.default):
        return ""
    value = getattr(option.default, "value", option.default)
    return f" Default: `{value}`."


def sentence(text: str) -> str:
    first = re.split(r"\n\s*\n", text.strip())[0]
    return " ".join(first.split()).partition(". ")[0].rstrip(".") + "."


def anchor(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


# --- Fields ---------------------------------------------------------------------------------------------------------

GROUP: Final = "resource.k8s.io"
VERSIONS: Final = ("v1", "v1beta2", "v1beta1")
OWN_KINDS: Final = ("DeviceClass", "ResourceSlice", "ResourceClaim", "ResourceClaimTemplate", "DeviceTaintRule")
Schemas = dict[str, dict[str, Any]]


def fields_page() -> Iterator[str]:
    by_version = {version: schemas_of(version) for version in VERSIONS}
    yield "# Fields of resource.k8s.io"
    yield "The kinds, then the types of their fields. A field that is missing in some versions names the versions that have it; `*` marks required fields."
    yield "`kubectl explain` shows the same on a dralloc API server."
    yield ""
    kinds = [name for name in OWN_KINDS if any(name in schemas for schemas in by_version.values())]
    for name in (*kinds, *parts_of(by_version, kinds)):
        yield from type_section(name, by_version)


def schemas_of(version: str) -> Schemas:
    """Returns the types of a version by their short names."""
    schemas = openapi_document(KINDS, GROUP, version, "")["components"]["schemas"]
    return {name.rpartition(".")[2]: schema for name, schema in schemas.items()}


def parts_of(by_version: Mapping[str, Schemas], kinds: Sequence[str]) -> list[str]:
    """Returns the types of the kinds' fields, in the order of their first use."""
    found: list[str] = []
    waiting = list(reversed(kinds))
    while waiting:
        name = waiting.pop()
        if name not in kinds:
            if name in found:
                continue
            found.append(name)
        parts: dict[str, None] = {}
        for schemas in by_version.values():
            for field in schemas.get(name, {}).get("properties", {}).values():
                parts |= dict.fromkeys(referred(field))
        waiting.extend(reversed([part for part in parts if part not in found and part not in kinds]))
    return [name for name in found if any(schemas.get(name, {}).get("properties") for schemas in by_version.values())]


def referred(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        if "$ref" in schema:
            yield schema["$ref"].rpartition(".")[2]
        for value in schema.values():
            yield from referred(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from referred(value)


def type_section(name: str, by_version: Mapping[str, Schemas]) -> Iterator[str]:
    having = {version: schemas[name] for version, schemas in by_version.items() if name in schemas}
    yield f"## {name}"
    yield ""
    if len(having) < len(by_version):
        yield f"In {' and '.join(having)}."
        yield ""
    description = next(iter(having.values())).get("description", "")
    if description:
        yield from (description, "")
    fields: dict[str, dict[str, Any]] = {}
    for version, schema in having.items():
        for field, content in schema.get("properties", {}).items():
            fields.setdefault(field, {})[version] = (content, field in schema.get("required", ()))
    rows = []
    for field, versions in fields.items():
        content, required = next(iter(versions.values()))
        where = "" if len(versions) == len(having) else f" *({', '.join(versions)} only)*"
        rows.append([f"`{field}`{'*' if required else ''}", type_text(content), content.get("description", "") + where])
    yield from table(["field", "type", "meaning"], rows)


def type_text(schema: dict[str, Any]) -> str:
    if "allOf" in schema:
        return type_text(schema["allOf"][0])
    if "$ref" in schema:
        name = schema["$ref"].rpartition(".")[2]
        return name if name in ("Quantity", "RawExtension", "Time") else f"[{name}](#{anchor(name)})"
    if schema.get("type") == "array":
        return f"list of {type_text(schema['items'])}"
    if "additionalProperties" in schema:
        return f"map of {type_text(schema['additionalProperties'])}"
    return str(schema.get("format") if schema.get("format") == "date-time" else schema.get("type", "any"))


# --- Metrics --------------------------------------------------------------------------------------------------------


def component_metrics() -> Sequence[tuple[str, str, Sequence[Metric]]]:
    """Each component with where its metrics are, and the metrics."""
    gates = gate_metric(FeatureGates.defaults())
    return (
        (
            "API server",
            "`/metrics` of the server, for authenticated clients.",
            (
                *ServerMetrics(watches=lambda: 0, gates=FeatureGates.defaults()).all(),
                *FlowControl().metrics(),
                *AuditMetrics().all(),
            ),
        ),
        ("Scheduler", "`dralloc scheduler --metrics-address HOST:PORT`.", (*SchedulerMetrics().all(), gates)),
        ("Controllers", "`dralloc controllers --metrics-address HOST:PORT`.", (*ControllerMetrics().all(), gates)),
        ("Node", "`dralloc node --metrics-address HOST:PORT`.", (*NodeMetrics(tuple).all(), gates)),
        (
            "Simulated nodes",
            "`dralloc node --fake COUNT --metrics-address HOST:PORT`.",
            (*FleetMetrics(int, tuple).all(), gates),
        ),
        ("Driver", "A driver built with `dralloc.driver`, at `DRA_METRICS_ADDRESS`.", DriverMetrics("driver").all()),
    )


def metrics_page() -> Iterator[str]:
    yield "# Metrics"
    yield "Every component serves its metrics at `/metrics` in the Prometheus text format. If Kubernetes has a metric, its name, labels and buckets"
    yield "are used, so that existing dashboards work. Times are in seconds."
    yield ""
    for title, where, metrics in component_metrics():
        yield f"## {title}"
        yield ""
        yield where
        yield ""
        yield from table(
            ["name", "type", "labels", ""],
            (
                [
                    f"`{each.name}`",
                    each.type,
                    ", ".join(map("`{}`".format, each.labels)),
                    each.help_text,
                ]
                for each in metrics
            ),
        )


# --- Faults ---------------------------------------------------------------------------------------------------------


def faults_page() -> Iterator[str]:
    names = {object_type: kind.plural for object_type, kind in relevant_kinds()}
    yield "# Checks of doctor"
    yield "What `dralloc doctor` looks for. Without the kinds that it needs, a check cannot look, and says so; without the others, it looks at less."
    yield "[Find faults](../doctor.md) says what counts and what mends it."
    yield ""
    yield from table(
        ["check", "finds", "why it matters", "needs", "reads"],
        (
            [
                f"`{each.id}`",
                each.title,
                each.why,
                ", ".join(f"`{names[kind]}`" for kind in each.needs),
                ", ".join(f"`{names[kind]}`" for kind in each.uses),
            ]
            for each in FAULTS.values()
        ),
    )


# --- Feature gates --------------------------------------------------------------------------------------------------

GATE_TEXTS: Final[Mapping[str, str]] = {
    "DynamicResourceAllocation": "Dynamic resource allocation as a whole.",
    "DRAAdminAccess": "`adminAccess` in requests: access to devices in use, for monitoring, in labelled namespaces.",
    "DRAPrioritizedList": "`firstAvailable` in requests: alternatives in order of preference (KEP-4816).",
    "DRAResourceClaimDeviceStatus": "`status.devices` of claims: the drivers' status of allocated devices.",
    "DRAResourceClaimGranularStatusAuthorization": "Writing an allocation or a driver's device status requires separate permissions.",
    "DRAConsumableCapacity": "Devices shared by capacity: `allowMultipleAllocations`, `requestPolicy`, `capacity.requests`, `distinctAttribute` (KEP-5075).",
    "DRAFractionalCapacityRange": "Fractional steps in request policies.",
    "DRAPartitionableDevices": "Devices that consume shared counters: `sharedCounters`, `consumesCounters`, per-device node selection.",
    "DRAResourcePoolStatus": "The kind `ResourcePoolStatusRequest` (`resource.k8s.io/v1alpha3`): what is free in the pools of a driver, without rights on claims (KEP-5677).",
    "DRAPartitionableDevicesType": "The type of a partition, in slices and in requests for the status of pools.",
    "DRADeviceCompatibilityGroups": "Devices of one counter set are allocated together only within a compatibility group.",
    "DRADeviceTaints": "Taints in slices, tolerations in requests, eviction.",
    "DRADeviceTaintRules": "Taints by an administrator's rule (`DeviceTaintRule`).",
    "DRADeviceBindingConditions": "Devices that must be ready before a pod is bound.",
    "DRAExtendedResource": "`extendedResourceName` of classes: pods that request it in `resources` get devices of the class, through a claim that the scheduler makes.",
    "DRAListTypeAttributes": "Attributes with lists of values.",
    "DRANodeAllocatableResources": "Devices that represent resources of the node itself.",
    "DRAOptionalNodeOperations": "Devices whose driver need not be called on the node.",
    "DRADerivedAttributes": "Attributes that a request computes from a device, for `matchAttribute` and `distinctAttribute`. While the gate is off, a stored claim that has them is not allocated, with a message.",
    "DRASchedulerFilterTimeout": "A limit on the search for devices on one node. Here the limit is a number of steps.",
    "ResourceHealthStatus": "Health of devices in the status of pods.",
    "GenericWorkload": "The kinds `Workload` and `PodGroup` (`scheduling.k8s.io/v1beta1`), and `schedulingGroup` of pods (KEP-4671).",
    "DRAWorkloadResourceClaims": "`resourceClaims` of PodGroups: one claim for all pods of a group (KEP-5729).",
    "TopologyAwareWorkloadScheduling": "`schedulingConstraints` of PodGroups: all pods on nodes with the same value of a label.",
    "WorkloadWithJob": "`scheduling` of Jobs: the Job controller creates a Workload and a PodGroup for the pods of a Job.",
    "PodGroupPreemptionPolicy": "`preemptionPolicy` of PodGroups.",
    "DRAReservedForWorkloads": "`spec.reservedFor` of claims: one claim for all pods of a workload (KEP-5194). No released Kubernetes has it.",
    "DRACapacityLimits": "`capacity.limits` in requests: how far use may burst; the driver learns it from `capacityLimits` in the result.",
    "DRAAggregatedCapacity": "`allocationMode: AggregatedCapacity`: as many devices as it takes for a total capacity. While the gate is off, the mode is refused.",
    "DRACapacityStrategies": "`requestPolicy.strategy`: whether the first user decides if a capacity is consumed.",
    "DRANamedRequestPolicies": "`requestPolicies` of a device and `requestPolicyName` of its capacities.",
    "DRAZeroConsumption": "`requestPolicy.zeroConsumption`: a capacity that requests compare with and do not consume.",
    "DRACapacityRemainder": "`remainder` of a device: what is available of its other capacities when one is used up goes to the last share.",
    "DRADevicePreference": "`devicePreference` and `allocations` in requests, `devicePreference` of classes: which device comes first.",
    "DRADistinctAttributes": "`distinctAttributes` of constraints: devices differ in at least one of several attributes.",
    "DRAPreemption": "The scheduler evicts pods of lower priority to free devices, cpu and memory for a pod of higher priority. `dralloc up` has it on.",
}


def gates_page() -> Iterator[str]:
    assert set(GATE_TEXTS) == set(GATES), "every gate is described"
    yield "# Feature gates"
    yield "`--feature-gates NAME=true,NAME=false` of `dralloc up`, `dralloc apiserver`, `dralloc scheduler`, `dralloc controllers` and of every command that"
    yield "validates manifests or allocates devices. A gate that does not exist, is locked, or lacks a gate that it requires is an error at start-up."
    yield "`AllAlpha=true` turns on every alpha gate that the same setting does not name, except those that require a beta gate that is off."
    yield "[Operations](../operations.md#feature-gates) describes what happens to objects when a gate is turned off and on again."
    yield ""
    rows = (
        [
            f"`{gate.name}`",
            ("on" if gate.default else "off" if gate.beta else "off, alpha") + (", locked" if gate.locked else ""),
            ", ".join(f"`{name}`" for name in gate.requires if name != "DynamicResourceAllocation"),
            GATE_TEXTS[gate.name],
        ]
        for gate in GATES.values()
    )
    yield from table(["gate", "default", "requires", "purpose"], rows)


# --- Reasons --------------------------------------------------------------------------------------------------------


def sample(cause: ReasonCause, **values: Any) -> Reason:
    return Reason(cause=cause, **values)


REASONS: Final[Sequence[tuple[Reason, str]]] = (
    (sample(ReasonCause.NO_DEVICES), "The node has no devices at all. Is the driver running there? `dralloc top devices`"),
    (sample(ReasonCause.POOL, subject="is incomplete"), "Slices of the pool are missing, or two devices have one name. This is temporary while a driver publishes; if it persists, check the driver."),
    (sample(ReasonCause.BINDING_CONDITIONS), "Turn `DRADeviceBindingConditions` on in the scheduler, or publish the devices without conditions."),
    (sample(ReasonCause.CLASS_SELECTOR, subject="gpu"), "No device on the node matches the selectors of the class. `dralloc cel` evaluates a selector on devices."),
    (sample(ReasonCause.CLAIM_SELECTOR, subject='device.attributes["gpu.example.com"].model == "a100"'), "No device matches the selectors of the request. A name that no device has is often a typo."),
    (sample(ReasonCause.FAULT, subject="no such key: model"), "A selector fails on a device. Guard it: `has(…)`, or `device.attributes[…].?name.orValue(…)`."),
    (sample(ReasonCause.NO_CAPACITY, subject="bandwidth"), "The devices do not have the requested capacity. Check its name."),
    (sample(ReasonCause.SIZE, subject="bandwidth", asked="30G", most=Quantity.parse("25G")), "No device is large enough, even if it is free. Request less."),
    (sample(ReasonCause.CAPACITY_LIMIT, subject="bandwidth", asked="30G", most=Quantity.parse("25G")), "No device is as large as the limit in `capacity.limits`. Lower the limit."),
    (sample(ReasonCause.NOT_CONSUMABLE, subject="bandwidth", asked="5G"), "The first user of the device took it without an amount (strategy `ConsumedOrNever`), so no amount can be requested until it is released."),
    (sample(ReasonCause.DIVIDED, subject="bandwidth"), "Some shares of the device consume this capacity and some do not, because its policy changed. No more shares until either kind is released."),
    (sample(ReasonCause.POLICY, subject="memory", asked="20Gi", most=Quantity.parse("16Gi")), "The capacity's request policy does not allow this amount. Request less, or several devices."),
    (sample(ReasonCause.IN_USE, lost=4, lost_at_all=4), "All devices that are not shareable are in use. Wait, add devices, or add an alternative to the request."),
    (sample(ReasonCause.CAPACITY, subject="bandwidth", asked="5G", most=Quantity.parse("2G")), "The shareable devices have too little capacity available. Request less, or wait until capacity is released."),
    (sample(ReasonCause.ALLOCATIONS, subject="at most 0"), "Devices are allocated more or less often than `allocations` of the request says."),
    (sample(ReasonCause.TOTAL, subject="bandwidth", asked="30G", most=Quantity.parse("25G"), wanted=4), "All devices together have too little available. Request less, or wait until capacity is released."),
    (sample(ReasonCause.COUNTERS, subject="memory", takes="20Gi", most=Quantity.parse("10Gi")), "Other partitions of the same device consume the counters that this one needs."),
    (sample(ReasonCause.OVERDRAWN, subject="memory"), "Devices in use consume more than the pool now has, because a driver reduced a counter. This ends when they are released."),
    (sample(ReasonCause.PARTITIONS_OFF), "Turn `DRAPartitionableDevices` on in the scheduler."),
    (sample(ReasonCause.FEATURE_OFF, subject="DRACapacityStrategies"), "The devices use a feature that the scheduler does not. Turn its gate on in the scheduler, or publish the devices without it."),
    (sample(ReasonCause.TAINT, subject="gpu.example.com/broken:NoExecute"), "Tolerate the taint in the request, or fix its cause."),
    (sample(ReasonCause.NODE_OPERATIONS), "The node agent is too old for the devices."),
    (sample(ReasonCause.NO_ATTRIBUTE, subject="gpu.example.com/numa"), "A constraint compares an attribute that no device has. Check its name."),
    (sample(ReasonCause.CONSTRAINT, subject="gpu.example.com/numa", wanted=2, asked="agree"), "No set of free devices satisfies the constraint. Request fewer devices, or remove it."),
    (sample(ReasonCause.LIMIT, asked="40"), "A claim can have at most 32 devices. Use several claims."),
    (sample(ReasonCause.TOGETHER, subject="requests gpu and nic"), "Each request fits alone, but they need the same devices."),
    (sample(ReasonCause.ERROR, subject="claim default/x: the class gpu does not exist"), "The claim cannot be allocated on any node until this is fixed."),
    (sample(ReasonCause.UNDECIDED, subject="not decided within 100000 steps"), "The search reached its step limit without an answer. The node is skipped; the pod is tried elsewhere, and again later."),
    (sample(ReasonCause.NODE, subject="insufficient cpu"), "The cause is not a device: labels, taints, cpu, memory, number of pods, or an unschedulable node."),
)  # fmt: skip


def reasons_page() -> Iterator[str]:
    assert {reason.cause for reason, _ in REASONS} == set(ReasonCause), "every cause is explained"
    yield "# Why a pod or a claim gets no devices"
    yield "The same reasons appear in the condition `PodScheduled` of a pod, in its event, in `dralloc explain`, `dralloc allocate` and on the web page: one for"
    yield "each group of nodes (`0/500 nodes are available: 480 nodes: …; 20 nodes: …`). `dralloc explain` also lists changes that would help."
    yield "With `-o json` a reason has its `cause`:"
    yield ""
    yield from table(
        ["cause", "example", "what helps"],
        ([f"`{reason.cause.value}`", str(reason), advice] for reason, advice in REASONS),
    )


# --- Checks of the driver kit -----------------------------------------------------------------------------------------

REPORT_FIELDS: Final = (
    ("version", "1; it changes when a field changes its meaning or is removed"),
    ("driver", "the driver's name; empty if it is not known"),
    ("verdict", "the worst verdict of the features that the driver has"),
    ("features[].feature", "one of the features below"),
    ("features[].verdict", "`passed`; `incomplete`: nothing failed, some checks were not tested; `failed`; `not tested`; `not applicable`"),
    ("features[].passed, .failed, .notTested, .notApplicable", "numbers of checks"),
    ("features[].reasons", "why checks have no result"),
    ("checks[].id, .feature, .title, .why, .fix, .knownFault, .injects", "the check, as on this page"),
    ("checks[].outcome", "`passed`, `passed with remarks`, `failed`, `not tested` or `not applicable`"),
    ("checks[].findings", "what was observed"),
    ("checks[].reason", "why there is no result, and which option helps; null if there is one"),
    ("checks[].asked", "false if the driver cannot have passed, because something is missing that all checks need"),
    ("checks[].seconds", "how long the check took"),
)  # fmt: skip


def driver_checks_page() -> Iterator[str]:
    yield "# Checks of the driver kit"
    yield "`dralloc driver-test` runs these checks on a driver in any language; [Writing a driver](../writing-a-driver.md#check-it) shows how."
    yield "`dralloc driver-test --list` prints this page in a terminal, `--only BEGINNING` selects checks. A check is *not applicable* if the driver"
    yield "does not have the feature, and *not tested* if an option is missing; the report says which."
    yield ""
    yield "## Known faults of real drivers"
    yield ""
    faults = [check for check in CHECKS if check.known_fault]
    yield from table(["fault", "check"], ([check.known_fault, check_link(check)] for check in faults))
    yield "## Injected faults"
    yield ""
    yield from table(["fault", "check"], ([check.injects, check_link(check)] for check in CHECKS if check.injects))
    for feature in Feature:
        yield f"## Feature: {feature.value}"
        yield ""
        for check in CHECKS:
            if check.feature is feature:
                yield from (f"### {check.id}", "", f"{check.title[0].upper()}{check.title[1:]}.", "")
                yield from (f"- **Why it matters:** {check.why}.", f"- **How to fix it:** {check.fix}.", "")
    yield "## The JSON report"
    yield ""
    yield "`--report DIRECTORY` writes it as `report.json`, `-o json` prints it. Fields are only added within a version."
    yield ""
    yield from table(["field", ""], ([f"`{name}`", text] for name, text in REPORT_FIELDS))


def check_link(check: Check) -> str:
    return f"[`{check.id}`](#{anchor(check.id)})"


# --- Python ---------------------------------------------------------------------------------------------------------


def sdk_page() -> Iterator[str]:
    introduction = (
        "Everything that a driver imports: `from dralloc.driver import …`. [Writing a driver](../writing-a-driver.md) shows how the parts",
        "fit together. An argument that a function does not have is an error with the names of those that it has.",
    )
    yield from python_page("Driver SDK", introduction, ["dralloc.driver"])


# What programs import, by purpose, with the page that shows how the parts fit together.
LIBRARY: Final = (
    ("a client for any server", "../python.md", ("dralloc", "dralloc.client.blocking_client", "dralloc.client.async_client", "dralloc.primitives.errors")),
    ("a cluster in your program", "../python.md#a-cluster-in-your-program", ("dralloc.assembly.cluster",)),
    ("the pytest fixture `dra_cluster`", "../testing-with-pytest.md", ("dralloc.pytest_plugin.cluster", "dralloc.pytest_plugin.driver_node")),
    ("tests: builders of objects, a bench for drivers", "../writing-a-driver.md", ("dralloc.testing.builders", "dralloc.testing.driver_bench")),
    ("what-if answers", "../python.md#what-if-answers", ("dralloc.whatif.cluster_objects", "dralloc.whatif.engine", "dralloc.whatif.pod_explanation", "dralloc.whatif.fit", "dralloc.whatif.planner")),
    ("the allocator alone", "../python.md#the-allocator-alone", ("dralloc.snapshot.cluster", "dralloc.allocator.requests", "dralloc.allocator.allocate", "dralloc.allocator.outcome", "dralloc.allocator.stamp")),
    ("simulation of traces", "../simulation.md#in-a-notebook", ("dralloc.placement_study",)),
)  # fmt: skip


def library_page() -> Iterator[str]:
    rows = (
        [f"[{purpose}]({guide})", ", ".join(f"`{name}`" for name in modules)] for purpose, guide, modules in LIBRARY
    )
    introduction = (
        "What programs import, apart from the [driver SDK](sdk.md). These names change only with a line in the changelog; other modules are internal.",
        "",
        *table(["for", "modules"], rows),
    )
    yield from python_page("Python library", introduction, [name for _, _, modules in LIBRARY for name in modules])


def main() -> None:
    PLACE.mkdir(parents=True, exist_ok=True)
    for name, text in pages():
        (PLACE / name).write_text(text)
        sys.stdout.write(f"docs/reference/{name}\n")


if __name__ == "__main__":
    main()
