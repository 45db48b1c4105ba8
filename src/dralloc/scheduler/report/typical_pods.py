"""Which pods are typical: the most frequent ones that together make 95 % of all pods with claims."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from msgspec.structs import replace

from dralloc.allocator.features import Features
from dralloc.allocator.requests import compile_demand
from dralloc.api.pod_v1 import Pod
from dralloc.api.resource_v1 import DeviceClass, ResourceClaim
from dralloc.scheduler.decide.claim_checks import demand_obstacle
from dralloc.scheduler.decide.pod_requirements import ClaimSplit, PodRequirements, demand_key, equivalence_key
from dralloc.scheduler.report.stranded_devices import TypicalPod

TYPICAL_SHARE: Final = 0.95
TYPICAL_MAX: Final = 50
# Rare pods are forgotten when there are more kinds.
KINDS_MAX: Final = 5000


class TypicalPods:
    """Counts pods by their requirements."""

    def __init__(self) -> None:
        self._counts: Counter[bytes] = Counter()
        self._known: dict[bytes, TypicalPod] = {}

    def observe(self, key: bytes, requirements: PodRequirements) -> None:
        """Counts a pod; `key` is equal for pods with equal requirements."""
        if key not in self._known:
            pod = TypicalPod.of(requirements)
            if not pod.requests:
                return
            if len(self._known) >= KINDS_MAX:
                self._forget_rare()
            self._known[key] = pod
        self._counts[key] += 1

    def count(
        self, pod: Pod, claims: Iterable[ResourceClaim], classes: Mapping[str, DeviceClass], features: Features
    ) -> None:
        """Counts a pod that may have a node and devices already, as it was when it had none."""
        split = ClaimSplit(unallocated=tuple(claims))
        if not split.unallocated or demand_obstacle(split.unallocated, classes, features) is not None:
            return
        new = replace(pod, spec=replace(pod.spec, node_name=""))
        key = equivalence_key(new, split) + demand_key(split, classes)
        if key in self._known:
            self._counts[key] += 1
            return
        self.observe(key, PodRequirements.of(new, split, compile_demand(split.unallocated, classes, features)))

    def top(self) -> tuple[TypicalPod, ...]:
        """The typical pods; in the same order as long as they are the same, so that a caller can compare."""
        wanted, found = TYPICAL_SHARE * self._counts.total(), list[bytes]()
        for key, count in sorted(self._counts.items(), key=lambda each: (-each[1], each[0]))[:TYPICAL_MAX]:
            if wanted <= 0:
                break
            found.append(key)
            wanted -= count
        return tuple(self._known[key] for key in sorted(found))

    def _forget_rare(self) -> None:
        for key, _ in self._counts.most_common()[KINDS_MAX // 2 :]:
            del self._counts[key], self._known[key]
