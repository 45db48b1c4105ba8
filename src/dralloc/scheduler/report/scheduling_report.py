"""Reports each step of an attempt to users (pod conditions, events) and dashboards (metrics)."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from dralloc.devices.allocator.diagnosis.reasons import ReasonCause
from dralloc.kube.codec import encode
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.resource_v1 import ResourceClaim
from dralloc.scheduler.bind.binder import BindingOutcome, Bound
from dralloc.scheduler.contract import CommittedPlacement, Decision, DecisionFailure, Placement, Rejection
from dralloc.scheduler.decide.claim_checks import has_prioritized_list
from dralloc.scheduler.decide.strategy_choice import StrategySettings
from dralloc.scheduler.queue.parked_pods import QueuedPod
from dralloc.scheduler.queue.pending_pods import QueueKey, queue_key
from dralloc.scheduler.report import metrics
from dralloc.scheduler.report.metrics import SchedulerMetrics
from dralloc.scheduler.report.pod_conditions import ERROR, UNSCHEDULABLE, PodConditionWriter
from dralloc.scheduler.state.binding_conditions import results_with_conditions

# The status of a scheduler plugin, in Kubernetes' words.
_STATUSES: Final[Mapping[type[Decision], str]] = {
    Placement: "Success",
    Rejection: "Unschedulable",
    DecisionFailure: "Error",
}


class _Wait(NamedTuple):
    """Why a pod waits: the plugins that rejected it, none after a failure."""

    reason: str
    plugins: frozenset[str]
    profile: str


class SchedulingReport:
    """Also the binder's `BindingReporter`."""

    def __init__(
        self,
        conditions: PodConditionWriter,
        counters: SchedulerMetrics,
        strategies: StrategySettings,
        is_pending: Callable[[Pod], bool],
    ) -> None:
        """What is reported of a pod that is not pending any more, by an attempt that outlives it, is not kept."""
        self._is_pending = is_pending
        self._conditions = conditions
        self._counters = counters
        self._strategies = strategies
        # Why pods wait since their last attempt, and how many of them do.
        self._waiting: dict[QueueKey, _Wait] = {}
        self._by_plugin: Counter[tuple[str, str]] = Counter()
        self._by_reason: Counter[tuple[str, str]] = Counter()

    def rejected_counts(self) -> Mapping[tuple[str, str], int]:
        """The number of parked pods by plugin and scheduler name."""
        return +self._by_plugin

    def waiting_counts(self) -> Mapping[tuple[str, str], int]:
        """The number of waiting pods by reason and scheduler name; 0 for reasons that were."""
        return self._by_reason

    def attempt_begins(self, key: QueueKey) -> None:
        self._note(key, None)

    def _note(self, key: QueueKey, wait: _Wait | None) -> None:
        """What is known of the pod from now on; None: it does not wait."""
        before = self._waiting.pop(key, None)
        if wait is not None:
            self._waiting[key] = wait
        for each, sign in ((before, -1), (wait, 1)):
            if each is None:
                continue
            self._by_reason[each.reason, each.profile] += sign
            for plugin in each.plugins:
                self._by_plugin[plugin, each.profile] += sign

    def begun(self, pod: Pod, *, is_over: bool, seconds: float) -> None:
        """What the decision needs is gathered. `is_over`: it rejects the pod before any node is judged."""
        if pod.spec.resource_claims:
            self._counters.devices_took(metrics.PRE_FILTER, "Unschedulable" if is_over else "Success", seconds)

    def searched(self, pod: Pod, decision: Decision, seconds: float) -> None:
        """The nodes are judged."""
        if pod.spec.resource_claims:
            self._counters.devices_took(metrics.FILTER, _STATUSES[type(decision)], seconds)

    def decided(self, pod: Pod, decision: Decision, seconds: float) -> None:
        log_decision(pod, decision)
        self._counters.decision_duration.observe(value=seconds)
        if isinstance(decision, Placement):
            self._conditions.assumed(pod)
        else:
            result = metrics.ERROR if isinstance(decision, DecisionFailure) else metrics.UNSCHEDULABLE
            self._count_attempt(pod, result, seconds)

    def assumed(self, pod: Pod) -> None:
        """A member of a group gets a node."""
        self._conditions.assumed(pod)

    def group_decided(self, seconds: float) -> None:
        self._counters.group_decision_duration.observe(value=seconds)

    def placement_tried(self, profile: str, *, is_feasible: bool, seconds: float) -> None:
        """A group was tried on the nodes with one value of its topology key."""
        result = "feasible" if is_feasible else "infeasible"
        self._counters.placements.add(profile)
        self._counters.placement_evaluations.add(result, profile)
        self._counters.placement_evaluation_duration.observe(result, profile, value=seconds)

    def group_ended(self, result: str, profile: str, seconds: float) -> None:
        """An attempt for a group has ended."""
        self._counters.group_attempts.add(result, profile)
        self._counters.group_attempt_duration.observe(result, profile, value=seconds)

    def parked(self, pod: Pod, decision: Rejection) -> None:
        """The pod is parked; its condition may be written later or not at all."""
        if self._is_pending(pod):
            self._note(queue_key(pod), _Wait(decision.reason, decision.plugins, pod.spec.scheduler_name))

    def rejected(self, pod: Pod, message: str) -> bool:
        """Returns whether the message is new."""
        return self._is_pending(pod) and self._conditions.unscheduled(pod, UNSCHEDULABLE, message)

    def failed(self, pod: Pod, message: str) -> None:
        if self._is_pending(pod):
            self._note(queue_key(pod), _Wait(ReasonCause.ERROR.value, frozenset(), pod.spec.scheduler_name))
            self._conditions.unscheduled(pod, ERROR, message)

    def removed(self, pod: Pod) -> None:
        """The pod is gone or has a node."""
        self._note(queue_key(pod), None)
        self._conditions.forget(pod)

    def claim_created(self, *, is_done: bool) -> None:
        self._counters.claims_created.add("success" if is_done else "failure", "false", "", "Pod", "false")

    def claims_written(self, status: str, seconds: float) -> None:
        self._counters.devices_took(metrics.PRE_BIND, status, seconds)

    def deallocated(self, *, is_done: bool, seconds: float) -> None:
        self._counters.devices_took(metrics.POST_FILTER, "Success" if is_done else "Error", seconds)

    def preemption_attempted(self, victims: int) -> None:
        self._counters.preemption_attempts.add()
        if victims:
            self._counters.preemption_victims.observe(value=victims)

    def group_preemption_attempted(self, victims: int | None) -> None:
        """`victims` is None if no eviction helps."""
        self._counters.group_preemption_attempts.add("Unschedulable" if victims is None else "Success")
        if victims:
            self._counters.group_preemption_victims.observe(value=victims)

    def preempted(self, victim: Pod, by: Pod, node: str, group: str = "") -> None:
        """`group` is the name of the PodGroup that the victim was evicted for, if it was not for the pod alone."""
        self._conditions.preempted(victim, by, node, group)

    def groups_disrupted(self, count: int, preemptor: str) -> None:
        self._counters.disrupted_groups.observe(preemptor, value=count)

    def devices_pending(self, pod: Pod, claim: ResourceClaim) -> None:
        self._conditions.devices_pending(pod, claim)

    def devices_settled(self, pod: Pod, claim: ResourceClaim, status: str, seconds: float) -> None:
        for result in results_with_conditions(claim):
            labels = (pod.spec.scheduler_name, result.driver, status)
            self._counters.binding_conditions.add(*labels)
            self._counters.binding_conditions_wait.observe(*labels, value=seconds)

    def binding_ended(
        self, pod: Pod, outcome: BindingOutcome, allocated: Iterable[ResourceClaim], seconds: float
    ) -> None:
        """`allocated` are the claims that the attempt allocated."""
        is_bound = isinstance(outcome, Bound)
        self._count_attempt(pod, metrics.SCHEDULED if is_bound else metrics.ERROR, seconds)
        for claim in allocated:
            has_alternatives = "true" if has_prioritized_list(claim) else "false"
            self._counters.allocations.add("success" if is_bound else "failure", has_alternatives)

    def scheduled(self, pod: Pod, node: str, queued: QueuedPod, now_s: float) -> None:
        attempts = str(queued.attempts) if queued.attempts < 15 else "15+"
        self._counters.pod_duration.observe(attempts, value=now_s - queued.first_seen_s)
        self._counters.pod_attempts.observe(value=queued.attempts)
        self._conditions.scheduled(pod, node)
        if refusal := self._strategies.refusal(pod):
            self._conditions.strategy_refused(pod, refusal)

    def _count_attempt(self, pod: Pod, result: str, seconds: float) -> None:
        self._counters.attempts.add(result, pod.spec.scheduler_name)
        self._counters.attempt_duration.observe(result, pod.spec.scheduler_name, value=seconds)


# --- Decision log ---------------------------------------------------------------------------------------------------
# Log lines about decisions, for `-v`: each decision as information, each device and each lack of capacity for
# debugging.
#
# The words of the lines about devices are those of KEP-5075's troubleshooting section.


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
