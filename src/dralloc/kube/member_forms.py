"""Versions of kinds that we model only in part: the members of an object in a version, and in the stored form.

Both directions keep every member that they do not know.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

Members = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class MemberForms:
    """How the members besides the metadata are converted."""

    to_stored: Callable[[Members], dict[str, Any]]
    from_stored: Callable[[Members], dict[str, Any]]


# --- events: core/v1 is stored, events.k8s.io/v1 has other names ------------------------------------------------

_NEW_NAMES: Final = {
    "involvedObject": "regarding",
    "message": "note",
    "reportingComponent": "reportingController",
    "source": "deprecatedSource",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "count": "deprecatedCount",
}
_CORE_NAMES: Final = {new: core for core, new in _NEW_NAMES.items()}


def _renamed(members: Members, names: Mapping[str, str]) -> dict[str, Any]:
    return {names.get(name, name): value for name, value in members.items()}


EVENT_FORMS: Final = MemberForms(
    to_stored=lambda members: _renamed(members, _CORE_NAMES), from_stored=lambda members: _renamed(members, _NEW_NAMES)
)

# --- autoscalers: autoscaling/v2 is stored, v1 knows the CPU only ----------------------------------------------

_TARGET: Final = "targetCPUUtilizationPercentage"
_CURRENT: Final = "currentCPUUtilizationPercentage"


def _autoscaler_to_v2(members: Members) -> dict[str, Any]:
    stored = dict(members)
    if isinstance(spec := members.get("spec"), dict) and _TARGET in spec:
        target = {"type": "Utilization", "averageUtilization": spec[_TARGET]}
        metric = {"type": "Resource", "resource": {"name": "cpu", "target": target}}
        rest = {name: value for name, value in spec.items() if name != _TARGET}
        stored["spec"] = {**rest, "metrics": [metric, *_other_metrics(spec.get("metrics"))]}
    if isinstance(status := members.get("status"), dict) and _CURRENT in status:
        current = {"name": "cpu", "current": {"averageUtilization": status[_CURRENT]}}
        rest = {name: value for name, value in status.items() if name != _CURRENT}
        stored["status"] = {**rest, "currentMetrics": [{"type": "Resource", "resource": current}]}
    return stored


def _autoscaler_to_v1(members: Members) -> dict[str, Any]:
    shown = dict(members)
    if isinstance(spec := members.get("spec"), dict):
        rest = {name: value for name, value in spec.items() if name != "metrics"}
        # Unknown to v1, and kept as it is for clients that send it back.
        if others := _other_metrics(spec.get("metrics")):
            rest["metrics"] = others
        for metric in _cpu(spec.get("metrics"), "target"):
            rest[_TARGET] = metric
        shown["spec"] = rest
    if isinstance(status := members.get("status"), dict):
        rest = {name: value for name, value in status.items() if name not in ("currentMetrics", "conditions")}
        for metric in _cpu(status.get("currentMetrics"), "current"):
            rest[_CURRENT] = metric
        shown["status"] = rest
    return shown


def _cpu(metrics: Any, part: str) -> list[Any]:
    """The average CPU utilization in the metrics: one value, or none."""
    found = [metric["resource"].get(part) or {} for metric in metrics or () if _is_cpu(metric)]
    return [value["averageUtilization"] for value in found if "averageUtilization" in value][:1]


def _other_metrics(metrics: Any) -> list[Any]:
    cpu = next((metric for metric in metrics or () if _is_cpu(metric)), None)
    return [metric for metric in metrics or () if metric is not cpu]


def _is_cpu(metric: Any) -> bool:
    if not isinstance(metric, dict) or metric.get("type") != "Resource":
        return False
    resource = metric.get("resource")
    return isinstance(resource, dict) and resource.get("name") == "cpu"


AUTOSCALER_FORMS: Final = MemberForms(to_stored=_autoscaler_to_v2, from_stored=_autoscaler_to_v1)
