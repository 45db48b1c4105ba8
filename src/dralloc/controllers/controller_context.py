"""What every controller is given: how to call the server, what is watched, the time, the gates, the counters."""

from __future__ import annotations

from dataclasses import dataclass, field

from dralloc.api.core_v1 import Event
from dralloc.client.api_calls import ApiCalls
from dralloc.client.event_recorder import EventRecorder
from dralloc.client.known_resources import resource_for
from dralloc.client.transport import Transport
from dralloc.controllers.metrics import ControllerMetrics
from dralloc.controllers.shared_informers import Copies
from dralloc.primitives.clock import Clock
from dralloc.primitives.features import FeatureGates


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """Of one controller, for one term of being in charge: nothing in it outlives the term but the metrics."""

    transport: Transport
    watched: Copies
    clock: Clock
    gates: FeatureGates
    metrics: ControllerMetrics
    recorders: list[EventRecorder] = field(default_factory=list)

    def calls(self, field_manager: str) -> ApiCalls:
        """Calls whose writes are recorded under this name."""
        return ApiCalls(self.transport, field_manager=field_manager)

    def recorder(self, component: str) -> EventRecorder:
        recorder = EventRecorder(self.calls(component), resource_for(Event), component=component, clock=self.clock)
        self.recorders.append(recorder)
        return recorder
