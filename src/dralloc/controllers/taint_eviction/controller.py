"""Evicts pods from tainted devices when their tolerations end, and writes the statuses of taint rules."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import ClassVar, Final, assert_never

from msgspec.structs import replace

from dralloc.client.event_recorder import Report, reference_to
from dralloc.client.known_resources import resource_for
from dralloc.client.pod_disruption import disrupt
from dralloc.client.typed_resource import ObjectKey, key_of
from dralloc.controllers.controller_context import ControllerContext
from dralloc.controllers.controller_loop import Controller
from dralloc.controllers.mutation_cache import MutationCache
from dralloc.controllers.planned_actions import PlannedActions
from dralloc.controllers.shared_informers import devices_of
from dralloc.controllers.taint_eviction import plan_eviction
from dralloc.controllers.taint_eviction.plan_eviction import (
    AffectedPods,
    EvictionPreview,
    RuleFacts,
    WriteRuleCondition,
    plan_rule,
)
from dralloc.controllers.taint_eviction.tainted_devices import (
    ActiveTaint,
    TaintedDevices,
    published_devices,
)
from dralloc.devices.identity import DeviceId
from dralloc.devices.taints import selects
from dralloc.kube.pod_claims import ClaimUse, claims_of
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.resource_v1 import NO_EXECUTE, DeviceTaintRule, ResourceClaim, ResourceSlice
from dralloc.primitives.errors import NotFound

NAME: Final = "device_taint_eviction_controller"
PODS: Final = resource_for(Pod)
CLAIMS: Final = resource_for(ResourceClaim)
SLICES: Final = resource_for(ResourceSlice)
RULES: Final = resource_for(DeviceTaintRule)

EVENT_REASON: Final = "DeviceTaintManagerEviction"
DISRUPTION: Final = ("DeletionByDeviceTaintManager", "Device Taint manager: deleting due to NoExecute taint")


@dataclass(frozen=True, slots=True)
class RuleKey:
    name: str


Key = ObjectKey | RuleKey
Action = plan_eviction.PodAction | WriteRuleCondition


class TaintEvictionController(Controller[Key, Action]):
    """Keys are pods, to evict, and rules, whose status shows the progress of evictions."""

    queue_name: ClassVar[str] = NAME

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(context)
        self._calls = context.calls(NAME)
        self._recorder = context.recorder(NAME)
        self._clock = context.clock
        self._metrics = context.metrics
        self._tainted = TaintedDevices()
        self._find_eviction = partial(
            plan_eviction.find_eviction, for_groups="DRAWorkloadResourceClaims" in context.gates
        )
        self._scheduled: dict[ObjectKey, plan_eviction.Eviction] = {}
        # By rule: the pods pending eviction, by namespace, and the pods evicted since the controller started.
        self._pending: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._evicted: Counter[str] = Counter()
        # The UIDs of pods that were evicted and still exist: the informer may not show their deletion yet.
        self._leaving: dict[ObjectKey, str] = {}
        self._pods = context.informers.informer_for(PODS)
        self._claims = context.informers.informer_for(CLAIMS)
        self._slices = context.informers.informer_for(SLICES)
        self._rules: MutationCache[DeviceTaintRule] | None = None
        self._slices.subscribe(self._on_slice)
        self._claims.subscribe(self._on_claim)
        self._pods.subscribe(self._on_pod)
        if "DRADeviceTaintRules" in context.gates:
            rules = context.informers.informer_for(RULES)
            self._rules = MutationCache(rules)
            rules.subscribe(self._on_rule)

    # --- Events ---------------------------------------------------------------------------------------------------

    def _on_slice(self, before: ResourceSlice | None, after: ResourceSlice | None) -> None:
        for device in self._tainted.change_slice(before, after):
            self._queue_users(self._claims.by("device", device))

    def _on_rule(self, before: DeviceTaintRule | None, after: DeviceTaintRule | None) -> None:
        spec_changed = before is None or after is None or before.spec != after.spec
        for rule in (before, after) if spec_changed else ():
            if rule is not None and rule.spec.taint.effect == NO_EXECUTE:
                self._queue_users(self._claims_selected_by(rule))
        if after is not None:
            self._tainted.put_rule(after)
            # Queued after its pods, so that its status counts them.
            self.queue.add(RuleKey(after.metadata.name))
        elif before is not None:
            # Its pods are queued; the cancellation of their evictions updates its count.
            self._tainted.remove_rule(before.metadata.name)
            del self._evicted[before.metadata.name]

    def _on_claim(self, before: ResourceClaim | None, after: ResourceClaim | None) -> None:
        if self._tainted:
            for claim in (before, after):
                if claim is not None and any(map(self._tainted.is_tainted, devices_of(claim))):
                    self._queue_users((claim,))

    def _on_pod(self, before: Pod | None, after: Pod | None) -> None:
        if after is None:
            assert before is not None, "a change has an object"
            self._leaving.pop(key_of(before), None)
            self._forget(key_of(before))
        elif self._tainted or key_of(after) in self._scheduled:
            self.queue.add(key_of(after))

    def _claims_selected_by(self, rule: DeviceTaintRule) -> Iterator[ResourceClaim]:
        selector = rule.spec.device_selector
        return (claim for claim in self._claims.all() if any(selects(selector, device) for device in devices_of(claim)))

    def _queue_users(self, claims: Iterable[ResourceClaim]) -> None:
        for claim in claims:
            for pod in self._pods.by("claim", (claim.metadata.namespace, claim.metadata.name)):
                self.queue.add(key_of(pod))

    # --- Plan -----------------------------------------------------------------------------------------------------

    async def plan(self, key: Key) -> PlannedActions[Action]:
        return self._plan_rule(key.name) if isinstance(key, RuleKey) else self._plan_pod(key)

    def _plan_pod(self, key: ObjectKey) -> PlannedActions[Action]:
        pod = self._pods.get(key.name, key.namespace)
        if pod is None or pod.is_terminating or pod.is_finished:
            self._forget(key)
            return PlannedActions()
        if self._leaving.get(key) == pod.metadata.uid:
            return PlannedActions()
        now = self._clock.now()
        eviction = self._find_eviction(pod, self._claims_of(pod), self._tainted.taints_of, now)
        actions = plan_eviction.plan_pod(pod, eviction, self._scheduled.get(key), now)
        is_later = eviction is not None and eviction.at > now
        return PlannedActions(
            actions, (eviction.at - now).total_seconds() if is_later and eviction is not None else None
        )

    def _claims_of(self, pod: Pod) -> Iterator[tuple[ClaimUse, ResourceClaim]]:
        for use in claims_of(pod):
            claim = self._claims.get(use.claim, pod.metadata.namespace)
            if claim is not None:
                yield use, claim

    def _plan_rule(self, name: str) -> PlannedActions[Action]:
        rule = self._rules.get(name) if self._rules is not None else None
        if rule is None:
            return PlannedActions()
        pending = self._pending.get(name, Counter())
        facts = RuleFacts(
            pending=AffectedPods(pending.total(), len(pending)),
            evicted=self._evicted[name],
            preview=partial(self._preview, rule),
        )
        planned = plan_rule(rule, facts, self._clock.now())
        if isinstance(planned, timedelta):
            return PlannedActions((), planned.total_seconds())
        return PlannedActions((planned,) if planned is not None else ())

    def _preview(self, rule: DeviceTaintRule) -> EvictionPreview:
        """What the rule would evict with the effect NoExecute."""
        selector, now = rule.spec.device_selector, self._clock.now()
        taint = replace(rule.spec.taint, effect=NO_EXECUTE)

        def taints_of(device: DeviceId) -> Iterator[ActiveTaint]:
            if selects(selector, device):
                yield ActiveTaint(taint, rule.metadata.name)

        claims = list(self._claims_selected_by(rule))
        allocated = {device for claim in claims for device in devices_of(claim) if selects(selector, device)}
        users = {
            key_of(pod): pod
            for claim in claims
            for pod in self._pods.by("claim", (claim.metadata.namespace, claim.metadata.name))
        }
        affected = [
            key
            for key, pod in users.items()
            if self._find_eviction(pod, self._claims_of(pod), taints_of, now) is not None
        ]
        published = sum(selects(selector, device) for device in published_devices(self._slices.all()))
        return EvictionPreview(
            published, len(allocated), AffectedPods(len(affected), len({key.namespace for key in affected}))
        )

    # --- Apply ----------------------------------------------------------------------------------------------------

    async def apply(self, action: Action) -> None:
        match action:
            case plan_eviction.ScheduleEviction(pod, eviction):
                self._forget(key_of(pod))
                self._scheduled[key_of(pod)] = eviction
                for rule in eviction.rules:
                    self._pending[rule][pod.metadata.namespace] += 1
                    self.queue.add(RuleKey(rule))
            case plan_eviction.CancelEviction(pod):
                self._forget(key_of(pod))
                self._report(pod, "Cancelling deletion")
            case plan_eviction.EvictPod(pod, eviction):
                await self._evict(pod, eviction)
            case WriteRuleCondition():
                await self._write(action)
            case _:
                assert_never(action)

    async def _evict(self, pod: Pod, eviction: plan_eviction.Eviction) -> None:
        """Read the pod first: the informer may be stale."""
        try:
            live = await self._calls.get(PODS, key_of(pod))
            if live.metadata.uid == pod.metadata.uid and not live.is_terminating:
                self._report(live, "Marking for deletion")
                await disrupt(self._calls, live, *DISRUPTION, self._clock.now())
                now = self._clock.now()
                self._metrics.evictions.add()
                self._metrics.eviction_delays.observe(value=max((now - eviction.at).total_seconds(), 0.0))
                self._evicted.update(eviction.rules)
                self._leaving[key_of(live)] = live.metadata.uid
        except NotFound:
            pass
        self._forget(key_of(pod))

    async def _write(self, action: WriteRuleCondition) -> None:
        metadata = action.rule.metadata
        document = {
            "metadata": {"name": metadata.name, "uid": metadata.uid},
            "status": {"conditions": [action.condition]},
        }
        written = await self._calls.apply(RULES, key_of(action.rule), document, force=True, subresource="status")
        if self._rules is not None:
            self._rules.keep(written)

    def _forget(self, key: ObjectKey) -> None:
        eviction = self._scheduled.pop(key, None)
        for rule in eviction.rules if eviction is not None else ():
            pending = self._pending[rule]
            pending[key.namespace] -= 1
            if not pending[key.namespace]:
                del pending[key.namespace]
            if not pending:
                del self._pending[rule]
            self.queue.add(RuleKey(rule))

    def _report(self, pod: Pod, message: str) -> None:
        self._recorder.report(Report(reference_to(pod, PODS.api_version, PODS.kind), "Normal", EVENT_REASON, message))
