"""The board and the alert rules of deploy/monitoring ask for what components really export, and alerts fire when they should."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import promql_parser as promql
import pytest
import yaml

from dralloc.client.blocking_client import connect
from dralloc.client.http_transport import HttpTransport
from dralloc.client.kubeconfig import read_kubeconfig
from dralloc.client.transport import ClientRequest
from dralloc.devices.allocator.diagnosis.reasons import ReasonCause
from dralloc.driver.health import Health
from dralloc.driver.metrics import DriverMetrics
from dralloc.node.metrics import NodeMetrics
from dralloc.primitives.metrics import Metric, exposition
from dralloc.scheduler.contract import WaitReason
from dralloc.scheduler.report import metrics as scheduler_metrics
from tests.support.cluster_process import cluster_process

ROOT = Path(__file__).parents[2]
MONITORING = ROOT / "deploy" / "monitoring"
PROMTOOL = ROOT / ".tools" / "promtool"
BOARD = json.loads((MONITORING / "grafana-dashboard.json").read_text())
RULES = yaml.safe_load((MONITORING / "alerts.yaml").read_text())
ALERTS = [rule for group in RULES["groups"] for rule in group["rules"]]

# The values that code gives to labels which expressions compare.
VALUES: Mapping[str, frozenset[str]] = {
    "reason": frozenset(each.value for each in (*ReasonCause, *WaitReason)),
    "result": frozenset(
        {scheduler_metrics.SCHEDULED, scheduler_metrics.UNSCHEDULABLE, scheduler_metrics.ERROR, "failure"}
    ),
    "is_error": frozenset({"true", "false"}),
    "grpc_status_code": frozenset({"OK"}),
    "health": frozenset(each.name.lower() for each in Health),
    "driver_name": frozenset({"<any>"}),
    "verb": frozenset({"CONNECT"}),
}


@dataclass(frozen=True, slots=True)
class Question:
    """An expression, and the texts that show labels of its result."""

    place: str
    expression: str
    texts: tuple[str, ...]


def questions() -> Iterator[Question]:
    for panel in BOARD["panels"]:
        for target in panel.get("targets", ()):
            # Grafana puts a time in its place.
            expression = target["expr"].replace("$__rate_interval", "5m")
            yield Question(f"panel {panel['title']}", expression, (target["legendFormat"],))
    for rule in ALERTS:
        yield Question(f"alert {rule['alert']}", rule["expr"], tuple(rule["annotations"].values()))


QUESTIONS = list(questions())

# --- What is exported ------------------------------------------------------------------------------------------------


def labels_in(text: str) -> dict[str, frozenset[str]]:
    """The metrics of an exposition with the labels of their series; none for those without any."""
    found = {name: frozenset[str]() for name in re.findall(r"^# TYPE (\S+)", text, re.M)}
    for name, listed in re.findall(r"^(\w+)(?:{(.*)})? \S+$", text, re.M):
        base = name if name in found else re.sub(r"_(bucket|sum|count)$", "", name)
        assert base in found, f"{name} has a type"
        found[base] |= frozenset(re.findall(r'(\w+)="(?:[^"\\]|\\.)*"', listed)) - {"le"}
    return found


def declared() -> dict[str, frozenset[str]]:
    """The labels that each metric of every component may have; series without values show none."""
    from scripts.reference.metrics import component_metrics

    listed: list[Metric] = [each for _, _, metrics in component_metrics() for each in metrics]
    found: dict[str, frozenset[str]] = {}
    for each in listed:
        known = found.setdefault(each.name, frozenset(each.labels))
        assert known == frozenset(each.labels), f"{each.name} has the same labels everywhere"
    return found


@pytest.fixture(scope="module")
def exported() -> dict[str, frozenset[str]]:
    """What a running cluster exports, and what nodes and drivers do; with their labels."""
    with cluster_process("--ephemeral", "--nodes", "gpu=2") as cluster:
        with connect(cluster.kubeconfig) as client:
            for document in yaml.safe_load_all((ROOT / "examples" / "demo" / "5-too-much.yaml").read_text()):
                client.create(document)
        text = _scraped(cluster.kubeconfig, until='dralloc_waiting_pods{reason="')
    text += exposition(NodeMetrics(tuple).all()) + exposition(DriverMetrics("d").all())
    shown, known = labels_in(text), declared()
    assert shown.keys() <= known.keys()
    for name, labels in shown.items():
        assert labels <= known[name], f"{name} is in the reference with its labels"
    return {name: known[name] for name in shown}


def _scraped(kubeconfig: Path, until: str) -> str:
    """The metrics once a pod waits."""
    import asyncio

    async def scrape() -> str:
        transport = HttpTransport(read_kubeconfig(kubeconfig))
        try:
            async with asyncio.timeout(60):
                while True:
                    response = await transport.send(ClientRequest(method="GET", path="/metrics"))
                    assert response.status == 200
                    if until in (text := response.body.decode()):
                        return text
                    await asyncio.sleep(0.1)
        finally:
            await transport.close()

    return asyncio.run(scrape())


# --- What is asked for -----------------------------------------------------------------------------------------------


class Checker:
    """Checks the metrics, labels and values of an expression; tells the labels of its result."""

    def __init__(self, exported: Mapping[str, frozenset[str]]) -> None:
        self._exported = exported

    def labels(self, node: Any) -> frozenset[str]:
        match node:
            case promql.VectorSelector():
                return self._selected(node)
            case promql.MatrixSelector():
                return self._selected(node.vector_selector)
            case promql.Call():
                parts = [self.labels(each) for each in node.args]
                found = frozenset[str]().union(*parts)
                if node.func.name == "histogram_quantile":
                    assert "le" in found, "quantiles need the buckets"
                return self._of_call(node.func.name, found)
            case promql.AggregateExpr():
                inner = self.labels(node.expr)
                if node.modifier is None:
                    return frozenset()
                assert node.modifier.type == promql.AggModifierType.By
                by = frozenset(node.modifier.labels)
                assert by <= inner, f"{by - inner} are not labels of {node.expr.prettify()}"
                return by
            case promql.BinaryExpr():
                sides = [
                    self.labels(each) for each in (node.lhs, node.rhs) if not isinstance(each, promql.NumberLiteral)
                ]
                assert len(set(sides)) <= 1, f"both sides of {node.op} have the same labels: {node.prettify()}"
                return sides[0]
            case promql.ParenExpr():
                return self.labels(node.expr)
            case promql.NumberLiteral():
                return frozenset()
        raise AssertionError(f"unknown: {type(node)}")

    def _of_call(self, function: str, found: frozenset[str]) -> frozenset[str]:
        match function:
            case "absent":
                return frozenset()
            case "histogram_quantile":
                return found - {"le"}
            case _:
                return found

    def _selected(self, selector: Any) -> frozenset[str]:
        base = re.sub(r"_(bucket|sum|count)$", "", selector.name)
        name = selector.name if selector.name in self._exported else base
        assert name in self._exported, f"{selector.name} is exported"
        labels = self._exported[name] | ({"le"} if selector.name == f"{name}_bucket" else frozenset())
        for matcher in selector.matchers.matchers:
            assert matcher.name in labels, f"{selector.name} has a label {matcher.name}"
            if matcher.op in (promql.MatchOp.Equal, promql.MatchOp.NotEqual):
                assert matcher.value in VALUES[matcher.name], f"{matcher.name} can be {matcher.value}"
        return labels


@pytest.mark.slow
@pytest.mark.real
def test_expressions_ask_for_what_is_exported(exported: Mapping[str, frozenset[str]]) -> None:
    checker = Checker(exported)
    for question in QUESTIONS:
        try:
            labels = checker.labels(promql.parse(question.expression))
        except (AssertionError, ValueError) as error:
            raise AssertionError(f"{question.place}: {error}") from error
        for text in question.texts:
            shown = set(re.findall(r"{{\s*(?:\$labels\.)?([a-z_]\w*)\s*}}", text))
            assert shown <= labels, f"{question.place} shows {shown - labels}, which its result does not have"


def test_wrong_expressions_are_noticed() -> None:
    checker = Checker({"a_total": frozenset({"x"}), "b": frozenset({"y"}), "h": frozenset()})
    for wrong in (
        "missing_total",
        'a_total{y="OK"}',
        "sum by (y) (a_total)",
        "a_total / b",
        'a_total{x="OK"}',
        "histogram_quantile(0.9, sum(rate(h_bucket[5m])))",
    ):
        with pytest.raises((AssertionError, KeyError)):
            checker.labels(promql.parse(wrong))


def test_the_board_can_be_imported() -> None:
    panels = BOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    names = {f"${each['name']}" for each in BOARD["templating"]["list"]} | {"$__rate_interval"}
    used = set(re.findall(r"\$\w+", json.dumps([panel.get("targets") for panel in panels])))
    assert used <= names
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert taken.isdisjoint(cells), f"{panel['title']} covers another panel"
        assert place["x"] + place["w"] <= 24
        taken |= cells


def test_both_forms_of_the_rules_are_the_same() -> None:
    operator = yaml.safe_load((MONITORING / "prometheus-rule.yaml").read_text())
    assert (operator["apiVersion"], operator["kind"]) == ("monitoring.coreos.com/v1", "PrometheusRule")
    assert operator["spec"] == RULES


# --- Alerts fire -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Fault:
    """Series of a fault, and the labels and the value with which an alert tells of it; `ended`: the series without the fault."""

    alert: str
    series: Mapping[str, str]
    ended: Mapping[str, str]
    labels: Mapping[str, str]
    value: str = ""


def histogram(name: str, labels: str, growth: int) -> dict[str, str]:
    """A histogram in which every value is above 30."""
    return {
        f'{name}_bucket{{{labels},le="{bound}"}}': f"0+{count}x200"
        for bound, count in (("1", 0), ("30", 0), ("60", growth), ("+Inf", growth))
    }


FAULTS = [
    Fault(
        "PodsWaitForDevices",
        {'dralloc_waiting_pods{reason="CapacityShort",profile="dralloc"}': "3x200"},
        {
            'dralloc_waiting_pods{reason="CapacityShort",profile="dralloc"}': "0x200",
            'dralloc_waiting_pods{reason="Node",profile="dralloc"}': "3x200",
        },
        {"reason": "CapacityShort"},
        "3",
    ),
    Fault(
        "NoRequestFits",
        {
            'dralloc_largest_fit{driver="d",capacity="memory"}': "0x200",
            'dralloc_capacity{driver="d",capacity="memory"}': "9x200",
        },
        {
            'dralloc_largest_fit{driver="d",capacity="memory"}': "1x200",
            'dralloc_capacity{driver="d",capacity="memory"}': "9x200",
        },
        {"driver": "d", "capacity": "memory"},
    ),
    Fault(
        "DevicesStranded",
        {'dralloc_stranded_devices{driver="d",cause="taint"}': "3x200", 'dralloc_idle_devices{driver="d"}': "4x200"},
        {'dralloc_stranded_devices{driver="d",cause="taint"}': "1x200", 'dralloc_idle_devices{driver="d"}': "4x200"},
        {"driver": "d"},
    ),
    Fault(
        "DeviceTaintEvictions",
        {"device_taint_eviction_controller_pod_deletions_total": "0+1x200"},
        {"device_taint_eviction_controller_pod_deletions_total": "7x200"},
        {},
        "15",
    ),
    Fault("SchedulerMissing", {}, {'scheduler_pending_pods{queue="active"}': "0x200"}, {}),
    Fault(
        "SchedulingFails",
        {'scheduler_schedule_attempts_total{result="error",profile="p"}': "0+1x200"},
        {'scheduler_schedule_attempts_total{result="scheduled",profile="p"}': "0+1x200"},
        {"profile": "p"},
    ),
    Fault(
        "ClaimAllocationsFail",
        {'scheduler_dra_claim_allocations_total{result="failure",prioritized_list="false"}': "0+60x200"},
        {'scheduler_dra_claim_allocations_total{result="success",prioritized_list="false"}': "0+60x200"},
        {},
    ),
    Fault(
        "ControllersLag",
        {'workqueue_depth{name="q"}': "2000x200"},
        {'workqueue_depth{name="q"}': "20x200"},
        {"name": "q"},
        "2000",
    ),
    Fault(
        "ControllerHangs",
        {'workqueue_longest_running_processor_seconds{name="q"}': "400x200"},
        {'workqueue_longest_running_processor_seconds{name="q"}': "4x200"},
        {"name": "q"},
        "400",
    ),
    Fault(
        "ClaimsNotCreated",
        {'resourceclaim_controller_create_failures_total{prioritized_list="false"}': "0+1x200"},
        {'resourceclaim_controller_create_failures_total{prioritized_list="false"}': "5x200"},
        {},
    ),
    Fault(
        "PreparingDevicesFails",
        {'dra_operations_duration_seconds_count{operation_name="PrepareResources",is_error="true"}': "0+1x200"},
        {'dra_operations_duration_seconds_count{operation_name="PrepareResources",is_error="false"}': "0+1x200"},
        {"operation_name": "PrepareResources"},
    ),
    Fault(
        "DriverCallsFail",
        {
            'dra_grpc_operations_duration_seconds_count{driver_name="d",method_name="m",grpc_status_code="Internal"}': "0+1x200"
        },
        {
            'dra_grpc_operations_duration_seconds_count{driver_name="d",method_name="m",grpc_status_code="OK"}': "0+1x200"
        },
        {"driver_name": "d", "method_name": "m"},
    ),
    Fault(
        "DriverNotRegistered",
        {'dra_driver_registered{driver="d"}': "0x200"},
        {'dra_driver_registered{driver="d"}': "1x200"},
        {"driver": "d"},
    ),
    Fault(
        "DevicesUnhealthy",
        {'dra_driver_devices{driver="d",health="unhealthy"}': "2x200"},
        {'dra_driver_devices{driver="d",health="healthy"}': "2x200"},
        {"driver": "d"},
        "2",
    ),
    Fault(
        "ServerSlow",
        histogram("apiserver_request_duration_seconds", 'verb="LIST"', 60),
        histogram("apiserver_request_duration_seconds", 'verb="CONNECT"', 60),
        {"verb": "LIST"},
        "59.7",
    ),
    Fault(
        "ServerErrors",
        {'apiserver_request_total{code="500"}': "0+6x200", 'apiserver_request_total{code="200"}': "0+60x200"},
        {'apiserver_request_total{code="500"}': "0+1x200", 'apiserver_request_total{code="200"}': "0+60x200"},
        {},
    ),
    Fault(
        "FeatureGatesDiffer",
        {
            'kubernetes_feature_enabled{name="G",stage="BETA",job="a"}': "1x200",
            'kubernetes_feature_enabled{name="G",stage="BETA",job="b"}': "0x200",
        },
        {
            'kubernetes_feature_enabled{name="G",stage="BETA",job="a"}': "1x200",
            'kubernetes_feature_enabled{name="G",stage="BETA",job="b"}': "1x200",
        },
        {"name": "G"},
    ),
]


def rendered(text: str, fault: Fault) -> str:
    """The text of an annotation, as Prometheus fills it in."""
    text = re.sub(r"{{ \$labels\.(\w+) }}", lambda found: fault.labels[found[1]], text)
    return text.replace("{{ $value }}", fault.value)


@pytest.mark.slow
@pytest.mark.real
def test_alerts_fire_when_they_should_and_not_otherwise(tmp_path: Path) -> None:
    if not PROMTOOL.exists():
        pytest.skip("needs promtool: scripts/install-system-tools installs it as root on Debian")
    rules = {rule["alert"]: rule for rule in ALERTS}
    assert [fault.alert for fault in FAULTS] == list(rules), "each rule has a fault"
    tests = []
    for fault in FAULTS:
        rule = rules[fault.alert]
        fired = {
            "exp_labels": {**fault.labels, **rule["labels"]},
            "exp_annotations": {name: rendered(text, fault) for name, text in rule["annotations"].items()},
        }
        for series, expected in ((fault.series, [fired]), (fault.ended, [])):
            tests.append(
                {
                    "interval": "1m",
                    "input_series": [{"series": name, "values": values} for name, values in series.items()],
                    "alert_rule_test": [{"eval_time": "2h", "alertname": fault.alert, "exp_alerts": expected}],
                }
            )
    file = tmp_path / "alerts.test.yaml"
    file.write_text(
        yaml.safe_dump({"rule_files": [str(MONITORING / "alerts.yaml")], "evaluation_interval": "5m", "tests": tests})
    )
    for command in (["check", "rules", str(MONITORING / "alerts.yaml")], ["test", "rules", str(file)]):
        ended = subprocess.run([PROMTOOL, *command], capture_output=True, text=True, timeout=60, check=False)
        assert ended.returncode == 0, ended.stdout + ended.stderr
