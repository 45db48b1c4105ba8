"""What must hold at every revision: no device is allocated twice, no capacity, counter or quota is exceeded, and no pod runs
without its devices.

The checker gets every change at its commit and reads the stored documents itself: it shares no code with the components.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from decimal import Decimal
from typing import Any, Final

from tests.simulator.change_checker import CLAIMS, PODS, ChangeChecker, put, stored_document
from tests.simulator.documents import Document
from tests.simulator.history import CommittedChange

DeviceKey = tuple[str, str, str]
PoolKey = tuple[str, str]

SLICES: Final = "/registry/resourceslices.resource.k8s.io/"
JOBS: Final = "/registry/jobs.batch/"
QUOTAS: Final = "/registry/resourcequotas/"
CLAIM_COUNT: Final = "count/resourceclaims.resource.k8s.io"
# Of a job that creates no more pods.
OUTCOMES: Final = ("Complete", "Failed", "SuccessCriteriaMet", "FailureTarget")
# How many pods are evicted at most for one pod, all its attempts together. No claim needs so many devices.
VICTIMS_MAX: Final = 10
SUFFIXES: Final = {"k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}


class SafetyChecker(ChangeChecker):
    """The objects that the rules are about, and the sums of what is allocated."""

    def _forget(self) -> None:
        self._claims: dict[str, Document] = {}
        self._pods: dict[str, Document] = {}
        self._jobs: dict[str, Document] = {}
        self._users: defaultdict[str, dict[str, None]] = defaultdict(dict)
        self._slices: defaultdict[PoolKey, dict[str, Document]] = defaultdict(dict)
        self._devices: dict[PoolKey, dict[str, Document]] = {}
        self._counters: dict[PoolKey, dict[tuple[str, str], Decimal]] = {}
        # The results of all claims, by device and claim.
        self._results: defaultdict[DeviceKey, dict[str, list[Document]]] = defaultdict(dict)
        self._used: defaultdict[PoolKey, Counter[str]] = defaultdict(Counter)
        self._claims_in: Counter[str] = Counter()
        self._claims_max: dict[str, int] = {}
        # The priorities of pods that were nominated, by UID, and how many pods were evicted for them.
        self._nominated: dict[str, int] = {}
        self._preempted = 0

    def on_change(self, change: CommittedChange) -> None:
        key = change.key
        if key.startswith(CLAIMS):
            self._report(change.revision, self._on_claim(key, stored_document(change)))
        elif key.startswith(PODS):
            self._report(change.revision, self._on_pod(key, stored_document(change)))
        elif key.startswith(SLICES):
            self._report(change.revision, self._on_slice(key, stored_document(change)))
        elif key.startswith(JOBS):
            put(self._jobs, key, stored_document(change))
        elif key.startswith(QUOTAS):
            self._on_quota(key, stored_document(change))

    def _report(self, revision: int, found: Iterable[str]) -> None:
        self.violations.extend(f"at revision {revision}: {what}" for what in found)

    # --- claims -------------------------------------------------------------------------------------------

    def _on_claim(self, key: str, claim: Document | None) -> Iterator[str]:
        before = self._claims.pop(key, None)
        namespace = key.split("/")[3]
        touched: dict[DeviceKey, None] = {}
        for device in _devices_of(before):
            del self._results[device][key]
            touched[device] = None
            if not self._results[device]:
                del self._results[device]
                del self._used[device[:2]][device[2]]
        self._claims_in[namespace] += (claim is not None) - (before is not None)
        if claim is not None:
            self._claims[key] = claim
            for result in _results_of(claim):
                device = _device_of(result)
                self._results[device].setdefault(key, []).append(result)
                self._used[device[:2]][device[2]] = 1
                touched[device] = None
            yield from self._released_too_early(key, before, claim)
            if not _devices_of(before):
                yield from self._check_new_shares(key, _results_of(claim))
            status = claim.get("status", {})
            if status.get("reservedFor") and "allocation" not in status:
                yield f"{_title(key)} is reserved and not allocated"
            if before is None and self._claims_in[namespace] > self._claims_max.get(namespace, 10**9):
                yield f"namespace {namespace} has {self._claims_in[namespace]} claims, more than its quota"
        for device in touched:
            yield from self._check_device(device)
        for pool in dict.fromkeys(device[:2] for device in touched):
            yield from self._check_counters(pool)
        for pod in self._users.get(key, ()):
            yield from self._check_pod(pod)

    def _released_too_early(self, key: str, before: Document | None, claim: Document) -> Iterator[str]:
        """A job gives up a claim when it has finished or is deleted, and nothing else gives it up for the job."""
        kept = _workloads(claim)
        for workload in _workloads(before):
            job = self._jobs.get(f"{JOBS}{key.split('/')[3]}/{workload[0]}", {})
            if workload not in kept and job.get("metadata", {}).get("uid") == workload[1] and not _is_over(job):
                yield f"{_title(key)} is no longer reserved for job {workload[0]}, which has not finished"

    def _check_device(self, device: DeviceKey) -> Iterator[str]:
        name = "/".join(device)
        results = [result for of_claim in self._results.get(device, {}).values() for result in of_claim]
        whole = [result for result in results if "shareID" not in result]
        if len(whole) > 1:
            yield f"device {name} is allocated as a whole {len(whole)} times: {', '.join(self._results[device])}"
        if whole and len(whole) < len(results):
            yield f"device {name} is allocated as a whole and in shares: {', '.join(self._results[device])}"
        for share, count in Counter(result["shareID"] for result in results if "shareID" in result).items():
            if count > 1:
                yield f"share {share} of device {name} is allocated {count} times"
        published = self._devices.get(device[:2], {}).get(device[2])
        consumed: Counter[str] = Counter()
        for result in results:
            for capacity, amount in result.get("consumedCapacity", {}).items():
                consumed[capacity] += _number(amount)  # type: ignore[assignment]
        for capacity, amount in consumed.items():
            offered = (published or {}).get("capacity", {}).get(capacity)
            if offered is not None and amount > _number(offered["value"]):
                yield f"{capacity} of device {name}: {amount} of {_number(offered['value'])} is allocated"

    def _check_new_shares(self, key: str, new: Iterable[Document]) -> Iterator[str]:
        """With the strategy ConsumedOrNever the first share decides: a new one consumes the capacity if the others do."""
        for result in new:
            device = _device_of(result)
            published = self._devices.get(device[:2], {}).get(device[2], {})
            others = [share for claim, shares in self._results[device].items() if claim != key for share in shares]
            for capacity, stated in published.get("capacity", {}).items():
                if _strategy(published, stated) == "ConsumedOrNever" and "shareID" in result:
                    consumes = {capacity in share.get("consumedCapacity", {}) for share in (*others, result)}
                    if len(consumes) > 1:
                        yield f"{capacity} of device {'/'.join(device)} is consumed by some shares and not by others"
            for capacity, limit in result.get("capacityLimits", {}).items():
                if _number(result.get("consumedCapacity", {}).get(capacity, "0")) > _number(limit):
                    yield f"{_title(key)} consumes more {capacity} of device {'/'.join(device)} than its limit"

    def _check_counters(self, pool: PoolKey) -> Iterator[str]:
        """An allocated device consumes its counters once, no matter how many claims share it."""
        offered = self._counters.get(pool)
        if not offered:
            return
        drawn: defaultdict[tuple[str, str], Decimal] = defaultdict(Decimal)
        for name in self._used[pool]:
            for consumption in self._devices.get(pool, {}).get(name, {}).get("consumesCounters", ()):
                for counter, amount in consumption["counters"].items():
                    drawn[consumption["counterSet"], counter] += _number(amount["value"])
        for counter, amount in drawn.items():
            if amount > offered.get(counter, amount):
                yield f"counter {'/'.join((*pool, *counter))}: {amount} of {offered[counter]} is consumed"

    # --- slices and quotas --------------------------------------------------------------------------------

    def _on_slice(self, key: str, published: Document | None) -> Iterator[str]:
        """Drivers offer the same every time, so what is allocated must fit whenever they publish it."""
        for pool, slices in list(self._slices.items()):
            if slices.pop(key, None) is not None:
                self._collect(pool)
        if published is not None:
            spec = published["spec"]
            pool = (spec["driver"], spec["pool"]["name"])
            self._slices[pool][key] = spec
            self._collect(pool)
            yield from self._check_counters(pool)
            for name in self._used[pool]:
                yield from self._check_device((*pool, name))

    def _collect(self, pool: PoolKey) -> None:
        """The devices and counters of the pool's newest generation."""
        newest = max((spec["pool"].get("generation", 0) for spec in self._slices[pool].values()), default=0)
        current = [spec for spec in self._slices[pool].values() if spec["pool"].get("generation", 0) == newest]
        self._devices[pool] = {device["name"]: device for spec in current for device in spec.get("devices") or ()}
        self._counters[pool] = {
            (counters["name"], name): _number(counter["value"])
            for spec in current
            for counters in spec.get("sharedCounters") or ()
            for name, counter in counters["counters"].items()
        }

    def _on_quota(self, key: str, quota: Document | None) -> None:
        hard = (quota or {}).get("spec", {}).get("hard", {})
        if CLAIM_COUNT in hard:
            self._claims_max[key.split("/")[3]] = int(hard[CLAIM_COUNT])

    # --- pods ---------------------------------------------------------------------------------------------

    def _on_pod(self, key: str, pod: Document | None) -> Iterator[str]:
        before = self._pods.pop(key, None)
        for claim in claims_used(before):
            self._users[claim].pop(key, None)
        if pod is not None:
            self._pods[key] = pod
            for claim in claims_used(pod):
                self._users[claim][key] = None
            yield from self._check_preemption(key, before, pod)
            yield from self._check_pod(key)

    def _check_preemption(self, key: str, before: Document | None, pod: Document) -> Iterator[str]:
        """A pod is evicted only for a nominated pod of higher priority, and there is an end to evictions."""
        if pod.get("status", {}).get("nominatedNodeName"):
            self._nominated[pod["metadata"]["uid"]] = pod["spec"].get("priority", 0)
        if not _is_preempted(pod) or _is_preempted(before):
            return
        self._preempted += 1
        if pod["spec"].get("priority", 0) >= max(self._nominated.values(), default=0):
            yield f"{_title(key)} is preempted, and no pod of higher priority was nominated"
        if self._preempted > VICTIMS_MAX * len(self._nominated):
            yield f"{self._preempted} pods are preempted for {len(self._nominated)} pods"

    def _check_pod(self, key: str) -> Iterator[str]:
        pod = self._pods[key]
        node = pod["spec"].get("nodeName")
        finished = pod.get("status", {}).get("phase") in ("Succeeded", "Failed")
        if not node or finished or "deletionTimestamp" in pod["metadata"]:
            return
        for used in claims_used(pod):
            status = self._claims.get(used, {}).get("status", {})
            allocation = status.get("allocation")
            if allocation is None:
                yield f"{_title(key)} runs on {node} and {_title(used)} is not allocated"
            elif not allocation.get("reservedForAnyPod") and not any(
                _is_for(entry, pod) for entry in status.get("reservedFor", ())
            ):
                yield f"{_title(key)} runs on {node} and {_title(used)} is not reserved for it"


def _results_of(claim: Document | None) -> Iterator[Document]:
    """The results that use a device; admin access uses nothing."""
    allocation = (claim or {}).get("status", {}).get("allocation") or {}
    for result in allocation.get("devices", {}).get("results", ()):
        if not result.get("adminAccess"):
            yield result


def _device_of(result: Document) -> DeviceKey:
    return result["driver"], result["pool"], result["device"]


def _strategy(device: Document, capacity: Document) -> str:
    policy = capacity.get("requestPolicy") or device.get("requestPolicies", {}).get(
        capacity.get("requestPolicyName"), {}
    )
    return str(policy.get("strategy", ""))


def _devices_of(claim: Document | None) -> dict[DeviceKey, None]:
    return dict.fromkeys(map(_device_of, _results_of(claim)))


def claims_used(pod: Document | None) -> Iterator[str]:
    if pod is None:
        return
    made = {
        entry["name"]: entry.get("resourceClaimName")
        for entry in pod.get("status", {}).get("resourceClaimStatuses", ())
    }
    for entry in pod["spec"].get("resourceClaims", ()):
        name = entry.get("resourceClaimName") or made.get(entry["name"])
        if name:
            yield f"{CLAIMS}{pod['metadata']['namespace']}/{name}"


def _is_for(entry: Document, pod: Document) -> bool:
    """True if the entry of `reservedFor` names the pod, or its group."""
    if entry["resource"] == "podgroups":
        return bool(entry["name"] == pod["spec"].get("schedulingGroup", {}).get("podGroupName"))
    return bool(entry["uid"] == pod["metadata"]["uid"])


def _workloads(claim: Document | None) -> list[tuple[str, str]]:
    """The jobs that a claim is reserved for: names and UIDs."""
    reserved = (claim or {}).get("status", {}).get("reservedFor", ())
    return [(entry["name"], entry["uid"]) for entry in reserved if entry["resource"] == "jobs"]


def _is_preempted(pod: Document | None) -> bool:
    conditions = (pod or {}).get("status", {}).get("conditions", ())
    return any(entry.get("reason") == "PreemptionByScheduler" for entry in conditions)


def _is_over(job: Document) -> bool:
    if "deletionTimestamp" in job["metadata"]:
        return True
    conditions = job.get("status", {}).get("conditions", ())
    return any(entry["type"] in OUTCOMES and entry["status"] == "True" for entry in conditions)


def _title(key: str) -> str:
    kind = "claim" if key.startswith(CLAIMS) else "pod"
    return f"{kind} {'/'.join(key.split('/')[3:])}"


def _number(text: Any) -> Decimal:
    """A quantity in the notations that the simulation uses."""
    text = str(text)
    digits = text.rstrip("kMGTi")
    return Decimal(digits) * SUFFIXES.get(text[len(digits) :], 1)
