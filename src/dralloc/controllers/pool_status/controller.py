"""Answers each request once, from what the informers show, and deletes it when it expires."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import ClassVar, Final

from dralloc.api.resource_v1 import DeviceTaintRule, ResourceClaim, ResourceSlice
from dralloc.api.resource_v1alpha3 import ResourcePoolStatusRequest, ResourcePoolStatusRequestStatus
from dralloc.client.known_resources import resource_for
from dralloc.client.typed_resource import ObjectKey, key_of
from dralloc.controllers.controller_context import ControllerContext
from dralloc.controllers.controller_loop import Controller
from dralloc.controllers.planned_actions import PlannedActions
from dralloc.controllers.pool_status.plan import answer, expiry, is_premature
from dralloc.controllers.pool_status.pool_counts import results_by_pool
from dralloc.devices.taint_rules import TaintRules
from dralloc.primitives.errors import NotFound

NAME: Final = "resourcepoolstatusrequest-controller"
REQUESTS: Final = resource_for(ResourcePoolStatusRequest)
SLICES: Final = resource_for(ResourceSlice)
CLAIMS: Final = resource_for(ResourceClaim)
RULES: Final = resource_for(DeviceTaintRule)
LOOK_AGAIN_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class WriteAnswer:
    request: ResourcePoolStatusRequest
    status: ResourcePoolStatusRequestStatus


@dataclass(frozen=True, slots=True)
class DeleteRequest:
    request: ResourcePoolStatusRequest


class PoolStatusController(Controller[ObjectKey, WriteAnswer | DeleteRequest]):
    """Keys are requests. Changes of slices and claims change no answer."""

    queue_name: ClassVar[str] = "resourcepoolstatusrequest"
    workers: ClassVar[int] = 1

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(context)
        self._calls = context.calls(NAME)
        self._clock = context.clock
        self._metrics = context.metrics
        informers = context.informers
        self._requests = informers.informer_for(REQUESTS)
        self._slices, self._claims = informers.informer_for(SLICES), informers.informer_for(CLAIMS)
        self._rules = informers.informer_for(RULES) if "DRADeviceTaintRules" in context.gates else None
        self._requests.subscribe(self._on_request)

    def _on_request(
        self,
        before: ResourcePoolStatusRequest | None,  # noqa: ARG002
        after: ResourcePoolStatusRequest | None,
    ) -> None:
        if after is not None:
            self.queue.add(key_of(after))

    async def plan(self, key: ObjectKey) -> PlannedActions[WriteAnswer | DeleteRequest]:
        request = self._requests.get(key.name, "")
        if request is None or request.metadata.deletion_timestamp is not None:
            return PlannedActions()
        now, expires = self._clock.now(), expiry(request)
        if expires is not None and expires <= now:
            return PlannedActions((DeleteRequest(request),))
        if request.status is None:
            started_s = time.perf_counter()
            status = self._answer(request)
            if is_premature(request, status, now):
                return PlannedActions(look_again_s=LOOK_AGAIN_S)
            self._metrics.pool_status_duration.observe(request.spec.driver, value=time.perf_counter() - started_s)
            return PlannedActions((WriteAnswer(request, status),))
        return PlannedActions(look_again_s=(expires - now).total_seconds() if expires is not None else None)

    def _answer(self, request: ResourcePoolStatusRequest) -> ResourcePoolStatusRequestStatus:
        slices = [each for each in self._slices.all() if each.spec.driver == request.spec.driver]
        rules = TaintRules()
        for rule in self._rules.all() if self._rules is not None else ():
            rules = rules.with_rule(rule)
        slices.sort(key=lambda each: each.metadata.name)
        return answer(request, slices, results_by_pool(self._claims.all()), rules, self._clock.now())

    async def apply(self, action: WriteAnswer | DeleteRequest) -> None:
        request, key = action.request, key_of(action.request)
        if isinstance(action, DeleteRequest):
            await self._calls.delete_unchanged(REQUESTS, request)
            return
        driver = request.spec.driver
        self._metrics.pool_status_processed.add(driver)
        patch = {"metadata": {"uid": request.metadata.uid}, "status": action.status}
        try:
            await self._calls.patch(REQUESTS, key, patch, subresource="status")
        except NotFound:
            return
        except Exception:
            self._metrics.pool_status_errors.add(driver)
            raise
