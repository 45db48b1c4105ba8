"""Log lines about decisions, for `-v`: each decision as information, each device and each lack of capacity for debugging.

The words of the lines about devices are those of KEP-5075's troubleshooting section.
"""

from __future__ import annotations

import logging

from dralloc.api.codec import encode
from dralloc.api.pod_v1 import Pod
from dralloc.scheduler.contract import CommittedPlacement, Decision, Placement, Rejection

_logger = logging.getLogger(__name__)


def log_decision(pod: Pod, decision: Decision) -> None:
    if not _logger.isEnabledFor(logging.INFO):
        return
    name = f"{pod.metadata.namespace}/{pod.metadata.name}"
    if isinstance(decision, Placement):
        _logger.info('Pod gets a node pod="%s" node="%s"', name, decision.node)
        return
    _logger.info('Pod cannot be scheduled pod="%s" reason="%s"', name, decision.message)
    if isinstance(decision, Rejection) and decision.lacks_capacity:
        _logger.debug('Device capacity not enough pod="%s" reason="%s"', name, decision.message)


def log_allocations(pod: Pod, placement: CommittedPlacement) -> None:
    """One line for each device that the placement allocates."""
    if not _logger.isEnabledFor(logging.DEBUG):
        return
    for claim_id in sorted(placement.new, key=str):
        for result in placement.allocations[claim_id].devices.results:
            _logger.debug(
                'Allocating one device pod="%s" claim="%s" request="%s" device="%s" capacities=%s',
                f"{pod.metadata.namespace}/{pod.metadata.name}",
                claim_id,
                result.request,
                f"{result.driver}/{result.pool}/{result.device}",
                encode(result.consumed_capacity).decode(),
            )
