"""Claims on nodes without drivers: they pass the checks of every node, and count as prepared then."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from dralloc.api.pod_v1 import Pod
from dralloc.api.resource_v1 import ResourceClaim
from dralloc.client.informer import Informer
from dralloc.client.typed_resource import ObjectKey, key_of
from dralloc.node.claim_records import ClaimRecord
from dralloc.node.claims import ClaimsFailed
from dralloc.node.prepare_plan import CannotPrepare, check_claim, resolve_claims
from dralloc.primitives.features import FeatureGates


class CheckedClaims:
    """Reads claims from an informer, so that thousands of pods cost no requests. A change of a claim wakes pods that failed on it."""

    def __init__(self, claims: Informer[ResourceClaim], gates: FeatureGates) -> None:
        self._claims = claims
        self._for_workloads = "DRAReservedForWorkloads" in gates
        self._for_groups = "DRAWorkloadResourceClaims" in gates
        self._refused: dict[ObjectKey, set[str]] = {}

    def wake_on_change(self, look_at: Callable[[str], None]) -> None:
        """Call `look_at` with the UIDs of pods whose preparation may succeed now."""

        def changed(before: ResourceClaim | None, after: ResourceClaim | None) -> None:
            item = after or before
            assert item is not None
            for pod_uid in self._refused.pop(key_of(item), ()):
                look_at(pod_uid)

        self._claims.subscribe(changed)

    async def prepare(self, pod: Pod) -> None:
        uses = resolve_claims(pod)
        if isinstance(uses, CannotPrepare):
            raise ClaimsFailed(uses.text)
        for use in uses:
            key = ObjectKey(pod.metadata.namespace, use.claim)
            claim = self._claims.get(use.claim, pod.metadata.namespace)
            refused: CannotPrepare | None = CannotPrepare(f"fetch ResourceClaim {use.claim}: not found")
            if claim is not None:
                gates = {"for_workloads": self._for_workloads, "for_groups": self._for_groups}
                refused = check_claim(use, claim, pod, lambda _: True, **gates)
            if refused is not None:
                self._refused.setdefault(key, set()).add(pod.metadata.uid)
                raise ClaimsFailed(refused.text)

    def is_prepared(self, pod: Pod) -> bool:  # noqa: ARG002 - nothing is prepared
        return True

    async def is_current(self, pod: Pod) -> bool:  # noqa: ARG002 - nothing is prepared
        return True

    async def unprepare(self, pod_uid: str) -> None:
        """A no-op: nothing is prepared."""

    def of_pod(self, pod_uid: str) -> Mapping[str, ClaimRecord]:  # noqa: ARG002 - nothing is prepared
        return {}
