"""The dependencies of a controller: transport, informers, clock, feature gates, metrics."""

from __future__ import annotations

from dataclasses import dataclass, field

from dralloc.client.api_calls import ApiCalls
from dralloc.client.event_recorder import EventRecorder, PacedReports
from dralloc.client.known_resources import resource_for
from dralloc.client.transport import Transport
from dralloc.controllers.metrics import ControllerMetrics
from dralloc.controllers.node_lifecycle.plan import DEFAULT_SETTINGS, NodeLifecycleSettings
from dralloc.controllers.shared_informers import ControllerInformers
from dralloc.kube.core_v1 import Event
from dralloc.primitives.clock import Clock
from dralloc.primitives.features import FeatureGates


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerContext:
    """Of one controller, for one term of leadership. Only the metrics outlive the term."""

    transport: Transport
    informers: ControllerInformers
    clock: Clock
    gates: FeatureGates
    metrics: ControllerMetrics
    nodes: NodeLifecycleSettings = DEFAULT_SETTINGS
    recorders: list[EventRecorder | PacedReports] = field(default_factory=list)

    def calls(self, field_manager: str) -> ApiCalls:
        """API calls that write under this field manager, or under none."""
        return ApiCalls(self.transport, field_manager=field_manager, field_validation="Ignore")

    def recorder(self, component: str) -> EventRecorder:
        recorder = EventRecorder(self.calls(component), resource_for(Event), component=component, clock=self.clock)
        self.recorders.append(recorder)
        return recorder

    def paced(self, recorder: EventRecorder, *, per_s: float) -> PacedReports:
        """Reports that can wait, for the recorder."""
        reports = PacedReports(recorder, self.clock, per_s=per_s)
        self.recorders.append(reports)
        return reports
