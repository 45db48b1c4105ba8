"""Writes the configuration of a running scheduler where clients read it, whenever other pods have become typical."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final

from dralloc.client.api_calls import ApiCalls
from dralloc.client.known_resources import resource_for
from dralloc.client.work_queue import Backoff, WorkQueue, work
from dralloc.kube.core_v1 import ConfigMap
from dralloc.scheduler.configuration import SchedulerConfiguration
from dralloc.scheduler.decide.strategy_choice import StrategySettings
from dralloc.scheduler.published_configuration import NAMESPACE, TYPICAL_PODS, key_of, published_data, published_names
from dralloc.scheduler.settings import NAME, SchedulerSettings

CONFIG_MAPS: Final = resource_for(ConfigMap)
# A ConfigMap may have 1 MiB.
_TYPICAL_BYTES_MAX: Final = 900 * 1024

_logger = logging.getLogger(__name__)


class ConfigurationPublisher:
    """`strategies` returns the present ones."""

    def __init__(
        self, calls: ApiCalls, settings: SchedulerSettings, strategies: Callable[[], StrategySettings]
    ) -> None:
        self._calls = calls
        self._settings = settings
        self._strategies = strategies
        self._published: StrategySettings | None = None
        self._queue: WorkQueue[str] = WorkQueue(Backoff(first_s=1.0, most_s=600.0))

    def check(self) -> None:
        """Publishes what has changed since the last time."""
        present = self._strategies()
        if self._published is None or present.typical is not self._published.typical:
            self._published = present
            self._publish()

    async def run(self) -> None:
        """Writes until cancelled."""
        await work(self._queue, self._write, _log_failure)

    def _publish(self) -> None:
        for name in published_names(self._settings.names):
            self._queue.add(name)

    async def _write(self, name: str) -> None:
        configuration = SchedulerConfiguration(self._settings.class_settings, self._strategies())
        data = published_data(name, configuration, self._settings.gates)
        if len(data.get(TYPICAL_PODS, "")) > _TYPICAL_BYTES_MAX:
            _logger.warning("the typical pods of scheduler %s are too large to be published", name)
            return
        item: dict[str, Any] = {"metadata": {"name": key_of(name).name, "namespace": NAMESPACE}, "data": data}
        await self._calls.apply(CONFIG_MAPS, key_of(name), item, force=True, manager=NAME)


def _log_failure(name: str, error: Exception) -> None:
    _logger.warning("cannot publish the configuration of scheduler %s: %s", name, error)
