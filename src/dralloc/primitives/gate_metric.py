"""The feature gates of a component as a metric, under the name and with the labels that components of Kubernetes use."""

from __future__ import annotations

import re
from typing import Final

from dralloc.primitives.features import GATES, FeatureGates
from dralloc.primitives.metrics import GaugeMetric

NAME: Final = "kubernetes_feature_enabled"
_SAMPLE: Final = re.compile(rf'^{NAME}{{(?:[^}}]*,)?name="(\w+)"[^}}]*}} ([0-9.e+]+)', re.M)


def gate_metric(gates: FeatureGates) -> GaugeMetric:
    """1 for each gate that is on, 0 for the others."""
    return GaugeMetric(
        NAME,
        "Feature gates of this component: 1 if on.",
        ("name", "stage"),
        lambda: [((gate.name, gate.stage), float(gate.name in gates)) for gate in GATES.values()],
    )


def gates_in(exposition: str) -> dict[str, bool]:
    """The gates that the metrics of a component say; empty if they say none."""
    return {name: float(value) != 0 for name, value in _SAMPLE.findall(exposition)}
