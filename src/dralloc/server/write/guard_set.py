"""The write guards of one server, by the resource that they guard, and the views of the store that they keep."""

from __future__ import annotations

from collections.abc import Iterable

from dralloc.kube.kind import Kind
from dralloc.kube.registry import DEVICE_CLASS, POD, PRIORITY_CLASS, RESOURCE_CLAIM, RESOURCE_QUOTA
from dralloc.primitives.features import FeatureGates
from dralloc.server.read.api_resources import prefix_of
from dralloc.server.read.background_task import Stoppable
from dralloc.server.read.store_view import StoreView
from dralloc.server.store.interface import Store
from dralloc.server.write.claim_use_guard import ClaimUseGuard
from dralloc.server.write.device_guard import DeviceGuard
from dralloc.server.write.pod_priorities import PodPriorities
from dralloc.server.write.quota_guard import ExtendedResourceNames, QuotaGuard, QuotaLimits
from dralloc.server.write.write_guards import WriteGuard
from dralloc.server.write.writer import EditGuard


class GuardSet:
    """`uses` also guards bindings, and `removals` guard those that are no writes by clients."""

    def __init__(self, store: Store, kinds: Iterable[Kind], gates: FeatureGates, *, guards_devices: bool) -> None:
        self.priorities = PodPriorities(store)
        self.uses = ClaimUseGuard(store)
        limits = StoreView(store, (prefix_of(RESOURCE_QUOTA),), QuotaLimits)
        classes = StoreView(store, (prefix_of(DEVICE_CLASS),), ExtendedResourceNames)
        devices = DeviceGuard(store)
        limited = [kind for kind in kinds if kind.namespaced and kind.stored_as is None]
        self.quotas = {kind.resource: QuotaGuard(store, kind, limits, classes, gates) for kind in limited}
        self.quotas[POD.resource].charge_with(self.quotas[RESOURCE_CLAIM.resource])
        self.by_resource: dict[str, tuple[WriteGuard, ...]] = {name: (quota,) for name, quota in self.quotas.items()}
        self.removals: dict[str, EditGuard] = {}
        if guards_devices:
            self.by_resource[RESOURCE_CLAIM.resource] += (devices, self.uses)
            self.removals[RESOURCE_CLAIM.resource] = self.uses.hold_removal
        self.by_resource[PRIORITY_CLASS.resource] = (self.priorities,)
        self._views: tuple[Stoppable, ...] = (
            devices,
            self.uses,
            limits,
            classes,
            self.priorities,
            *self.quotas.values(),
        )

    async def stop(self) -> None:
        for view in self._views:
            await view.stop()
