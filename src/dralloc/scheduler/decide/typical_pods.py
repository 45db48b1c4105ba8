"""Which pods are typical: the most frequent ones that together make 95 % of all pods with claims."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from dralloc.devices.allocator.candidate_devices import DeviceCriteria
from dralloc.devices.allocator.features import Features
from dralloc.devices.allocator.requests import compile_demand
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.resource_v1 import DeviceClass, ResourceClaim
from dralloc.primitives.whole_numbers import whole_number
from dralloc.scheduler.decide.claim_checks import demand_obstacle
from dralloc.scheduler.decide.node_fit import NodeRequirements
from dralloc.scheduler.decide.pod_requirements import ClaimSplit, PodRequirements, demand_key, equivalence_key
from dralloc.scheduler.state.pod_resources import PODS

TYPICAL_SHARE: Final = 0.95
# How many pods are looked at for a report, and for a score, which costs less.
TYPICAL_MAX: Final = 50
COUNTED_MAX: Final = 256
# Rare pods are forgotten when there are more kinds.
KINDS_MAX: Final = 5000


class TypicalRequest(Struct, frozen=True, gc=False):
    criteria: DeviceCriteria
    count: int


class TypicalPod(Struct, frozen=True, eq=False):
    """What a typical pod asks for: of nodes, and of devices."""

    node: NodeRequirements
    requests: tuple[TypicalRequest, ...]

    @classmethod
    def of(cls, requirements: PodRequirements) -> TypicalPod:
        """Requests for all devices and those with admin access use up nothing in particular, and are left out."""
        demand = requirements.demand
        alternatives = demand.alternatives if demand is not None else ()
        return cls(
            requirements.node,
            tuple(
                TypicalRequest(each.criteria, 1 if each.is_aggregated else each.count)
                for each in alternatives
                if each.fault is None and not each.takes_all and not each.is_admin
            ),
        )


class CountedPod(NamedTuple):
    """The requirements of pods that occurred `number` times, with the claims of one of them."""

    requirements: PodRequirements
    number: int
    claims: tuple[ResourceClaim, ...] = ()


class TypicalPods:
    """Counts pods by their requirements."""

    def __init__(self) -> None:
        self._counts: Counter[bytes] = Counter()
        self._known: dict[bytes, tuple[PodRequirements, TypicalPod, tuple[ResourceClaim, ...]]] = {}

    @property
    def total(self) -> int:
        """The number of pods that were counted."""
        return self._counts.total()

    def observe(
        self, key: bytes, requirements: PodRequirements, claims: tuple[ResourceClaim, ...], number: int = 1
    ) -> None:
        """Counts a pod with these claims; `key` is equal for pods with equal requirements."""
        if key not in self._known:
            pod = TypicalPod.of(requirements)
            if not pod.requests:
                return
            if len(self._known) >= KINDS_MAX:
                self._forget_rare()
            self._known[key] = requirements, pod, claims
        self._counts[key] += number

    def count(
        self,
        pod: Pod,
        claims: Iterable[ResourceClaim],
        classes: Mapping[str, DeviceClass],
        features: Features,
        number: int = 1,
    ) -> None:
        """Counts a pod that may have a node and devices already, as it was when it had none."""
        split = ClaimSplit(unallocated=tuple(claims))
        if not split.unallocated or demand_obstacle(split.unallocated, classes, features) is not None:
            return
        new = replace(pod, spec=replace(pod.spec, node_name=""))
        key = equivalence_key(new, split) + demand_key(split, classes)
        if key in self._known:
            self._counts[key] += number
            return
        requirements = PodRequirements.of(new, split, compile_demand(split.unallocated, classes, features))
        self.observe(key, requirements, split.unallocated, number)

    def top(self) -> tuple[TypicalPod, ...]:
        """The typical pods; in the same order as long as they are the same, so that a caller can compare."""
        return tuple(self._known[key][1] for key in sorted(self._most_frequent(TYPICAL_MAX)))

    def counted(self) -> tuple[CountedPod, ...]:
        """The typical pods with their numbers, the most frequent first."""
        return tuple(map(self._counted, self._most_frequent(COUNTED_MAX)))

    def all(self) -> tuple[CountedPod, ...]:
        """All pods that were counted."""
        return tuple(map(self._counted, self._known))

    def _counted(self, key: bytes) -> CountedPod:
        requirements, _, claims = self._known[key]
        return CountedPod(requirements, self._counts[key], claims)

    def _most_frequent(self, most: int) -> Iterator[bytes]:
        wanted = TYPICAL_SHARE * self._counts.total()
        for key, count in sorted(self._counts.items(), key=lambda each: (-each[1], each[0]))[:most]:
            if wanted <= 0:
                return
            yield key
            wanted -= count

    def _forget_rare(self) -> None:
        for key, _ in self._counts.most_common()[KINDS_MAX // 2 :]:
            del self._counts[key], self._known[key]


# --- Typical manifests ----------------------------------------------------------------------------------------------
# Typical pods as manifests: what scores read of them, and how often each occurs.


# How often a typical pod occurs; once without it.
COUNT_ANNOTATION: Final = "scheduler.dralloc.io/count"
_NAMESPACE: Final = "typical"


def typical_manifests(pods: Iterable[CountedPod]) -> Iterator[dict[str, Any]]:
    """A pod with the sum of its resources, and its claims, for each typical pod."""
    for number, each in enumerate(pods):
        name = f"typical-{number}"
        claims = [f"{name}-{index}" for index in range(len(each.claims))]
        for claim_name, claim in zip(claims, each.claims, strict=True):
            yield {
                "apiVersion": "resource.k8s.io/v1",
                "kind": "ResourceClaim",
                "metadata": {"name": claim_name, "namespace": _NAMESPACE},
                "spec": {"devices": claim.spec.devices},
            }
        amounts = each.requirements.node.resources.amounts
        requests = {name: f"{nanos}n" for name, nanos in amounts.items() if name != PODS}
        yield {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": name,
                "namespace": _NAMESPACE,
                "annotations": {COUNT_ANNOTATION: str(each.number)},
            },
            "spec": {
                "containers": [{"name": "all", "resources": {"requests": requests}}],
                "resourceClaims": [{"name": claim, "resourceClaimName": claim} for claim in claims],
            },
        }


def occurrences(annotations: dict[str, str]) -> int:
    return max(whole_number(annotations.get(COUNT_ANNOTATION, "")) or 1, 1)
