"""Table columns for workloads and groups of pods."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Final

from dralloc.kube.scheduling_v1 import GROUP
from dralloc.kube.scheduling_v1beta1 import DISRUPTION_TARGET, INITIALLY_SCHEDULED
from dralloc.server.describe.table_columns import AGE, NAME, Cell, Column, at, field
from dralloc.server.documents.json_documents import Document


def _policy(group: Document, _: datetime) -> Cell:
    return "Basic" if at(group, "spec", "schedulingPolicy", "gang") is None else "Gang"


def _status(group: Document, _: datetime) -> Cell:
    conditions = {condition.get("type"): condition for condition in at(group, "status", "conditions") or []}
    if DISRUPTION_TARGET in conditions:
        return str(conditions[DISRUPTION_TARGET].get("reason", ""))
    if INITIALLY_SCHEDULED not in conditions:
        return "Pending"
    return "Scheduled" if conditions[INITIALLY_SCHEDULED].get("status") == "True" else "Unschedulable"


SCHEDULING_COLUMNS: Final[Mapping[tuple[str, str], tuple[Column, ...]]] = {
    (GROUP, "Workload"): (NAME, AGE),
    (GROUP, "PodGroup"): (
        NAME,
        Column("Policy", _policy, "How the pods are scheduled: one by one, or as a gang."),
        Column("Workload", field("spec", "workloadRef", "workloadName"), "The Workload that the group was made for."),
        Column("Status", _status, "Whether the pods were scheduled."),
        AGE,
    ),
}
