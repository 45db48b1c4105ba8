"""The metrics of a driver: calls, prepared claims, slice writes, registration and health."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from dralloc.primitives.metrics import CounterMetric, GaugeMetric, HistogramMetric, Metric, exposition


class DriverMetrics:
    def __init__(self, driver: str) -> None:
        self.calls = HistogramMetric(
            "dra_driver_call_duration_seconds",
            "Duration of calls from the kubelet, by method, API version and outcome.",
            ("driver", "method", "version", "outcome"),
        )
        self.claims = CounterMetric(
            "dra_driver_claims_total",
            "Prepared and unprepared claims, by operation and outcome.",
            ("driver", "operation", "outcome"),
        )
        self.slice_writes = CounterMetric(
            "dra_driver_slice_writes_total", "Writes of ResourceSlices, by verb.", ("driver", "verb")
        )
        self.problems = CounterMetric(
            "dra_driver_problems_total", "Problems outside of calls, by kind.", ("driver", "problem")
        )
        self._prepared: Callable[[], int] = lambda: 0
        self._registered: Callable[[], bool] = lambda: False
        self._health: Callable[[], Mapping[str, int]] = dict
        self._driver = driver
        self._gauges = (
            GaugeMetric(
                "dra_driver_prepared_claims",
                "Claims that are prepared on this node.",
                ("driver",),
                read=lambda: [((driver,), float(self._prepared()))],
            ),
            GaugeMetric(
                "dra_driver_registered",
                "1 if the kubelet has registered this driver.",
                ("driver",),
                read=lambda: [((driver,), float(self._registered()))],
            ),
            GaugeMetric(
                "dra_driver_devices",
                "Devices by health, if the driver reports it.",
                ("driver", "health"),
                read=lambda: [((driver, health), float(count)) for health, count in self._health().items()],
            ),
        )

    def read_from(
        self, *, prepared: Callable[[], int], registered: Callable[[], bool], health: Callable[[], Mapping[str, int]]
    ) -> None:
        """Set the sources of the gauges."""
        self._prepared, self._registered, self._health = prepared, registered, health

    def problem(self, problem: Exception) -> None:
        self.problems.add(self._driver, type(problem).__name__)

    def all(self) -> tuple[Metric, ...]:
        return (self.calls, self.claims, self.slice_writes, self.problems, *self._gauges)

    def text(self) -> str:
        """All metrics in the Prometheus text format."""
        return exposition(self.all())
