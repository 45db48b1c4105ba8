"""The configuration of a running scheduler as a ConfigMap, from which clients predict its decisions.

There is one for each `schedulerName` of its own pods, so that a client finds it by name. It contains what `--config` would state, and the
typical pods that were learnt.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from dralloc.client.typed_resource import ObjectKey
from dralloc.kube.codec import encode
from dralloc.kube.pod_v1 import DEFAULT_SCHEDULER
from dralloc.primitives.features import GATES, FeatureGates
from dralloc.scheduler.configuration import SchedulerConfiguration, statement_of
from dralloc.scheduler.decide.typical_pods import typical_manifests
from dralloc.scheduler.settings import NAME

NAMESPACE: Final = "kube-system"
# The keys of the data.
SCHEDULER_NAME: Final = "schedulerName"
CONFIGURATION: Final = "config.json"
TYPICAL_PODS: Final = "typical-pods.json"
# Every gate, as in --feature-gates.
FEATURE_GATES: Final = "featureGates"


def published_names(names: Iterable[str]) -> list[str]:
    """The names under which a scheduler for these schedulerNames is published: pods that name no scheduler are the default's."""
    return sorted(set(names) - {DEFAULT_SCHEDULER, ""}) or [NAME]


def key_of(scheduler_name: str) -> ObjectKey:
    return ObjectKey(NAMESPACE, f"dralloc-scheduler-{scheduler_name}")


def published_data(scheduler_name: str, configuration: SchedulerConfiguration, gates: FeatureGates) -> dict[str, str]:
    strategies = configuration.strategies
    reads_typical = any(each.reads_typical_pods for each in (strategies.default, *strategies.allowed.values()))
    stated = statement_of(configuration, TYPICAL_PODS if reads_typical else None)
    data = {
        SCHEDULER_NAME: scheduler_name,
        CONFIGURATION: msgspec.json.encode(stated).decode(),
        FEATURE_GATES: ",".join(f"{name}={str(name in gates).lower()}" for name in GATES),
    }
    if reads_typical:
        listed = list(typical_manifests(strategies.typical or ()))
        data[TYPICAL_PODS] = encode({"apiVersion": "v1", "kind": "List", "items": listed}).decode()
    return data
