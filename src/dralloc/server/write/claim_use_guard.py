"""The write guard of claims in use: a pod that is bound keeps the devices that it was bound with.

A binding that states the pod's UID, as those of schedulers do, needs claims that are allocated, on the node, and reserved for the pod. Without a UID, it is accepted as
by Kubernetes, and the pod waits on its node. A claim is not deallocated or removed while a bound pod uses it that has not finished,
and such a pod, or its PodGroup, stays in `reservedFor`. Schedulers and controllers check this, too, but from caches, and their requests can be delayed:
only the server can order a binding and a deallocation. Kubernetes' server does not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import lru_cache
from typing import Final, TypeVar

import msgspec

from dralloc.devices.node_selectors import NodeFacts, matches
from dralloc.kube.codec import decode_again
from dralloc.kube.meta_v1 import ApiObject
from dralloc.kube.pod_claims import (
    PodClaims,
    claims_of,
    controller_of,
    entry_without_claim,
    group_name,
    is_group,
    is_made_for_group,
    is_pod,
)
from dralloc.kube.registry import NODE, POD, RESOURCE_CLAIM
from dralloc.kube.resource_v1 import ResourceClaim
from dralloc.primitives.errors import Conflict
from dralloc.server.http.statuses import conflict
from dralloc.server.read.api_resources import key_of, name_of, prefix_of
from dralloc.server.read.stored_form import read_metadata
from dralloc.server.store.interface import Store
from dralloc.server.store.records import Record
from dralloc.server.write.write_guards import GuardedView, GuardLedger, Hold

FENCE: Final = "claim-use"

T = TypeVar("T")


class BoundPod(msgspec.Struct, frozen=True, gc=False):
    uid: str
    name: str
    node: str
    # Its PodGroup, which claims can be made and reserved for.
    group: str


class PodUse(msgspec.Struct, frozen=True, gc=False):
    """The claims that a bound pod uses, by key; true for those that must have been made for it."""

    pod: BoundPod
    claims: tuple[tuple[str, bool], ...]


class _Consumers(msgspec.Struct, frozen=True, gc=False):
    """The pods, by UID, and the PodGroups, by name, that a claim is reserved for. The pods of other workloads are not known here."""

    pods: frozenset[str]
    groups: frozenset[str]

    @classmethod
    def of(cls, claim: ResourceClaim) -> _Consumers:
        listed = claim.status.reserved_for
        return cls(
            frozenset([consumer.uid for consumer in listed if is_pod(consumer)]),
            frozenset([consumer.name for consumer in listed if is_group(consumer)]),
        )

    def include(self, pod: BoundPod) -> bool:
        return pod.uid in self.pods or pod.group in self.groups

    def without(self, others: _Consumers) -> frozenset[str]:
        return (self.pods - others.pods) | (self.groups - others.groups)


class ClaimInUse(Conflict):
    """A bound pod uses the claim."""


class ClaimUseGuard:
    """Guards deallocations as a write guard of claims, and bindings. A view of pods starts with the first of them."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._view = GuardedView[ClaimUsers, PodUse](store, prefix_of(POD), ClaimUsers, fence=FENCE)
        # Writes in progress: claims that are being deallocated, and consumers that are being removed from `reservedFor`.
        self._released: Counter[str] = Counter()
        self._leaving: Counter[tuple[str, str]] = Counter()

    async def hold(self, key: str, new: ApiObject, old: ApiObject | None) -> Hold | None:
        """Hold a deallocation, or the removal of pods and groups from `reservedFor`."""
        assert isinstance(new, ResourceClaim), "the guard of claims"
        if not isinstance(old, ResourceClaim) or old.status.allocation is None:
            return None
        is_deallocated = new.status.allocation is None or _is_removed(new)
        before, after = _Consumers.of(old), _Consumers.of(new)
        if not is_deallocated and before.pods <= after.pods and before.groups <= after.groups:
            return None
        await self._view.ready()
        for user in self._users_of(key, old):
            if is_deallocated or (before.include(user) and not after.include(user)):
                raise _in_use(key, user)
        return self._hold_release(key) if is_deallocated else self._hold_leaving(key, before.without(after))

    async def hold_removal(self, key: str, stored: bytes) -> Hold | None:
        """Hold the removal of a claim; raises `ClaimInUse`."""
        claim = _read_claim(stored)
        if claim.status.allocation is None:
            return None
        await self._view.ready()
        for user in self._users_of(key, claim):
            raise _in_use(key, user)
        return self._hold_release(key)

    async def hold_binding(self, key: str, pod: bytes, *, by_scheduler: bool) -> Hold | None:
        """Hold the binding of the pod, which has its node already; refuse a scheduler's if its claims cannot be used there."""
        use = _use_of_binding(pod, by_scheduler=by_scheduler) if _may_use_claims(pod) else None
        if use is None:
            return None
        await self._view.ready()
        if self._released or self._leaving:
            self._check_kept(use)
        hold = self._view.hold(key, use)
        if not by_scheduler:
            return hold
        # From now on the claims cannot be deallocated, so what they are now they stay.
        try:
            await self._check_all_usable(use)
        except BaseException:
            hold.release()
            raise
        return hold

    async def stop(self) -> None:
        await self._view.stop()

    def _check_kept(self, use: PodUse) -> None:
        """Refuse a pod whose claims are being deallocated, or taken from it."""
        for claim_key, _ in use.claims:
            if claim_key in self._released:
                raise _not_bindable(use.pod, f"claim {name_of(claim_key)} is being deallocated")
            if (claim_key, use.pod.uid) in self._leaving or (claim_key, use.pod.group) in self._leaving:
                raise _not_bindable(use.pod, f"its reservation of claim {name_of(claim_key)} is being removed")

    async def _check_all_usable(self, use: PodUse) -> None:
        for claim_key, is_own in use.claims:
            await self._check_usable(use.pod, claim_key, is_own)

    async def _check_usable(self, pod: BoundPod, claim_key: str, is_own: bool) -> None:
        record = await self._store.get(claim_key)
        if record is None:
            # The pod's status can name a claim that a restored backup does not have.
            raise _not_bindable(pod, f"claim {name_of(claim_key)} does not exist")
        claim = _read_claim(record.value)
        allocation = claim.status.allocation
        if is_own and not _is_owned(claim, pod):
            raise _not_bindable(pod, f"claim {name_of(claim_key)} was not made for it")
        if allocation is None:
            raise _not_bindable(pod, f"claim {name_of(claim_key)} is not allocated")
        if not allocation.reserved_for_any_pod and not _Consumers.of(claim).include(pod):
            raise _not_bindable(pod, f"claim {name_of(claim_key)} is not reserved for it")
        if allocation.node_selector is None or (node := await self._store.get(key_of(NODE, "", pod.node))) is None:
            return
        if not matches(allocation.node_selector, NodeFacts(pod.node, _read_metadata(node.value).labels)):
            raise _not_bindable(pod, f"the devices of claim {name_of(claim_key)} are not available on node {pod.node}")

    def _users_of(self, key: str, claim: ResourceClaim) -> Iterator[BoundPod]:
        """Pods that use the claim: it is their own, or reserved for them or their group, also if its owner references have changed."""
        consumers = _Consumers.of(claim)
        for pod, is_own in self._view.ledger.users.get(key, ()):
            if not is_own or _is_owned(claim, pod) or consumers.include(pod):
                yield pod

    def _hold_release(self, key: str) -> Hold:
        return self._view.hold_fence(_counted(self._released, (key,)))

    def _hold_leaving(self, key: str, consumers: Iterable[str]) -> Hold:
        return self._view.hold_fence(_counted(self._leaving, [(key, consumer) for consumer in consumers]))


class ClaimUsers(GuardLedger[PodUse]):
    """The pods that use claims, by the keys of the claims."""

    def __init__(self) -> None:
        super().__init__(_use_of_record, self._add_users)
        # With how often they are counted.
        self.users: dict[str, dict[tuple[BoundPod, bool], int]] = {}

    def _add_users(self, use: PodUse, sign: int) -> None:
        # Plain dictionaries, because a pod can have tens of thousands of claims.
        for key, is_own in use.claims:
            users = self.users.get(key)
            if users is None:
                users = self.users[key] = {}
            user = use.pod, is_own
            if count := users.get(user, 0) + sign:
                users[user] = count
            else:
                del users[user]
                if not users:
                    del self.users[key]


def _counted(counts: Counter[T], added: Collection[T]) -> Callable[[], None]:
    """Count them; what is returned ends that."""
    counts.update(added)

    def end() -> None:
        for each in added:
            counts[each] -= 1
            if not counts[each]:
                del counts[each]

    return end


@lru_cache(maxsize=128)
def _read_claim(stored: bytes) -> ResourceClaim:
    """Cached for claims with many pods."""
    return decode_again(stored, ResourceClaim)


# Nodes rarely change.
_read_metadata: Final = lru_cache(maxsize=1024)(read_metadata)


def _use_of_record(record: Record) -> PodUse | None:
    return _use_of(decode_again(record.value, PodClaims)) if _may_use_claims(record.value) else None


def _may_use_claims(stored: bytes) -> bool:
    """True if the pod can have a node and claims. Most have not; decoding them is not needed to know that."""
    return b'"nodeName":' in stored and (b'"resourceClaims":' in stored or b'"extendedResourceClaimStatus":' in stored)


def _use_of_binding(stored: bytes, *, by_scheduler: bool) -> PodUse | None:
    pod = decode_again(stored, PodClaims)
    if by_scheduler:
        _check_claims_made(pod)
    return _use_of(pod)


def _use_of(pod: PodClaims) -> PodUse | None:
    if pod.is_finished or not pod.spec.node_name:
        return None
    namespace = pod.metadata.namespace
    claims = {key_of(RESOURCE_CLAIM, namespace, use.claim): use.is_own for use in claims_of(pod)}
    if not claims:
        return None
    bound = BoundPod(pod.metadata.uid, pod.metadata.name, pod.spec.node_name, group_name(pod))
    return PodUse(bound, tuple(claims.items()))


def _check_claims_made(pod: PodClaims) -> None:
    """A scheduler may know claims that a restored backup does not have."""
    if (entry := entry_without_claim(pod)) is not None:
        why = f"pod {pod.metadata.name} cannot be bound: the claim for its entry {entry} has not been made"
        raise conflict("", "pods/binding", pod.metadata.name, why)


def _is_owned(claim: ResourceClaim, pod: BoundPod) -> bool:
    owner = controller_of(claim.metadata)
    return (owner is not None and owner.uid == pod.uid) or is_made_for_group(claim, pod.group)


def _is_removed(claim: ResourceClaim) -> bool:
    """True if nothing holds the claim, which is being deleted: it is removed with this write."""
    return claim.metadata.deletion_timestamp is not None and not claim.metadata.finalizers


def _in_use(key: str, user: BoundPod) -> ClaimInUse:
    why = f"pod {user.name} ({user.uid}) has a node and uses the claim"
    refused = conflict(RESOURCE_CLAIM.group, RESOURCE_CLAIM.plural, name_of(key), why)
    return ClaimInUse(refused.message, details=refused.details)


def _not_bindable(pod: BoundPod, why: str) -> Exception:
    return conflict("", "pods/binding", pod.name, f"pod {pod.name} cannot be bound: {why}")
