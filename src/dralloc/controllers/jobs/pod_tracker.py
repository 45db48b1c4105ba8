"""Counts the pods of a job by outcome, updated by each change: a job may have ten thousand pods.

Successes and failures stay counted after their pods are deleted. Pods that were created but are not in the informer yet
count as active (client-go's expectations); otherwise the job would create too many.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Set
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import Enum
from typing import Final, NamedTuple

from dralloc.client.pod_disruption import is_target
from dralloc.kube.batch_v1 import JobStatus
from dralloc.kube.pod_v1 import SUCCEEDED, Pod
from dralloc.primitives.whole_numbers import whole_number

COMPLETION_INDEX: Final = "batch.kubernetes.io/job-completion-index"
# Why a job deletes a pod, as the pod's condition says: a controller that starts later knows by it that the pod has not failed.
DISMISSAL: Final = "DeletionByJobController"

# A created pod that the informer does not show for so long was deleted unseen.
EXPECTED_MAX: Final = timedelta(seconds=60)
BACKOFF_FIRST: Final = timedelta(seconds=10)
BACKOFF_MOST: Final = timedelta(seconds=360)


class PodOutcome(Enum):
    """What a pod counts as for its job."""

    ACTIVE = "active"
    # Deleted by others before it succeeded; counts as failed.
    TERMINATING = "terminating"
    # Deleted by the job itself; counts as neither success nor failure.
    DISMISSED = "dismissed"
    SUCCEEDED = "succeeded"
    FAILED = "failed"


class PodCounts(NamedTuple):
    """Numbers of pods. `active` includes expected pods."""

    active: int = 0
    terminating: int = 0
    succeeded: int = 0
    failed: int = 0


@dataclass(slots=True)
class PodTracker:
    # By UID.
    outcomes: dict[str, PodOutcome] = field(default_factory=dict)
    live: Counter[PodOutcome] = field(default_factory=Counter)
    # Outcomes of deleted pods.
    deleted: Counter[PodOutcome] = field(default_factory=Counter)
    # The UIDs of pods that the job deletes. The informer may miss the condition that says so, if a list follows the deletion.
    dismissed: set[str] = field(default_factory=set)
    # The names of created pods that the informer does not show yet, and until when they are expected.
    expected: dict[str, datetime] = field(default_factory=dict)
    failures_in_a_row: int = 0
    last_failure: datetime | None = None
    slots: IndexSlots = field(default_factory=lambda: IndexSlots())
    is_adopted: bool = False

    def adopt(self, status: JobStatus) -> None:
        """Start from the counts in the status: pods that it counts and that do not exist were deleted."""
        if not self.is_adopted:
            self.is_adopted = True
            self._adopt(PodOutcome.SUCCEEDED, status.succeeded - self.live[PodOutcome.SUCCEEDED])
            existing = self.live[PodOutcome.FAILED] + self.live[PodOutcome.TERMINATING]
            self._adopt(PodOutcome.FAILED, status.failed - existing)
            self.slots.succeed(parse_indexes(status.completed_indexes))

    def _adopt(self, outcome: PodOutcome, deleted: int) -> None:
        self.deleted[outcome] = max(self.deleted[outcome], deleted)

    def count(self, now: datetime) -> PodCounts:
        for name in [name for name, until in self.expected.items() if until <= now]:
            self.forget(name)
        return PodCounts(
            active=self.live[PodOutcome.ACTIVE] + len(self.expected),
            terminating=self.live[PodOutcome.TERMINATING] + self.live[PodOutcome.DISMISSED],
            succeeded=self.live[PodOutcome.SUCCEEDED] + self.deleted[PodOutcome.SUCCEEDED],
            failed=self.live[PodOutcome.FAILED] + self.live[PodOutcome.TERMINATING] + self.deleted[PodOutcome.FAILED],
        )

    def resume_at(self) -> datetime | None:
        """When failed pods may be replaced: after an exponential backoff, which a success resets."""
        if self.last_failure is None or not self.failures_in_a_row:
            return None
        # The exponent is bounded, so that long series of failures do not make huge numbers.
        return self.last_failure + min(BACKOFF_FIRST * (1 << min(self.failures_in_a_row - 1, 16)), BACKOFF_MOST)

    # --- Changes --------------------------------------------------------------------------------------------------

    def expect(self, name: str, index: int | None, now: datetime) -> None:
        """A pod of this name is being created."""
        self.expected[name] = now + EXPECTED_MAX
        self.slots.take(name, index)

    def forget(self, name: str) -> None:
        """The pod was not created."""
        if self.expected.pop(name, None) is not None:
            self.slots.give_back(name)

    def put(self, pod: Pod, now: datetime) -> None:
        """The pod was added or changed."""
        metadata = pod.metadata
        if is_target(pod, DISMISSAL):
            self.dismissed.add(metadata.uid)
        was = self.outcomes.get(metadata.uid)
        outcome = self._outcome(pod, was)
        if was is None:
            self.expected.pop(metadata.name, None)
            self.slots.take(metadata.name, index_of(pod))
        else:
            self.live[was] -= 1
        self.outcomes[metadata.uid] = outcome
        self.live[outcome] += 1
        if outcome is PodOutcome.SUCCEEDED and was is not PodOutcome.SUCCEEDED:
            self.failures_in_a_row = 0
            self.slots.finish(metadata.name, index_of(pod))
        elif was in (None, PodOutcome.ACTIVE) and outcome is not PodOutcome.ACTIVE:
            self._lose(metadata.name, outcome, now)

    def remove(self, pod: Pod, now: datetime) -> None:
        """The pod was deleted. If it was active, its deletion was not seen before."""
        uid = pod.metadata.uid
        was = self.outcomes.pop(uid, None)
        if was is None:
            return
        self.live[was] -= 1
        last = was
        if was is PodOutcome.ACTIVE:
            last = PodOutcome.DISMISSED if uid in self.dismissed else PodOutcome.TERMINATING
            self._lose(pod.metadata.name, last, now)
        if last is not PodOutcome.DISMISSED:
            self.deleted[PodOutcome.SUCCEEDED if last is PodOutcome.SUCCEEDED else PodOutcome.FAILED] += 1
        self.dismissed.discard(uid)

    def _outcome(self, pod: Pod, was: PodOutcome | None) -> PodOutcome:
        if (
            pod.is_terminating
            and pod.metadata.uid in self.dismissed
            and was not in (PodOutcome.SUCCEEDED, PodOutcome.FAILED)
        ):
            return PodOutcome.DISMISSED
        if pod.is_finished:
            return PodOutcome.SUCCEEDED if pod.status.phase == SUCCEEDED else PodOutcome.FAILED
        return PodOutcome.TERMINATING if pod.is_terminating else PodOutcome.ACTIVE

    def _lose(self, name: str, outcome: PodOutcome, now: datetime) -> None:
        """The pod is no longer active and did not succeed."""
        self.slots.give_back(name)
        if outcome is not PodOutcome.DISMISSED:
            self.failures_in_a_row += 1
            self.last_failure = now


class IndexSlots:
    """Which completion indexes of an Indexed job are in use or done."""

    def __init__(self) -> None:
        self.succeeded: set[int] = set()
        self._highest_succeeded = -1
        self._index_of: dict[str, int] = {}
        self._taken: Counter[int] = Counter()
        # Indexes below `_next` that may be vacant. Indexes from `_next` on were never used.
        self._returned: list[int] = []
        self._next = 0

    def vacant(self, most: int, completions: int) -> list[int]:
        """The lowest indexes that no pod works on and that have not succeeded. They stay vacant until taken."""
        found: list[int] = []
        while self._returned and len(found) < most:
            index = heapq.heappop(self._returned)
            if self._is_vacant(index) and index not in found[-1:] and index < completions:
                found.append(index)
        while self._next < completions and len(found) < most:
            if self._is_vacant(self._next):
                found.append(self._next)
            self._next += 1
        for index in found:
            heapq.heappush(self._returned, index)
        return found

    def count_succeeded(self, completions: int) -> int:
        """How many indexes below `completions` have succeeded; there are others if it was reduced."""
        if self._highest_succeeded < completions:
            return len(self.succeeded)
        return sum(index < completions for index in self.succeeded)

    def succeed(self, indexes: Set[int]) -> None:
        self.succeeded |= indexes
        self._highest_succeeded = max(self._highest_succeeded, *indexes, -1)

    def take(self, name: str, index: int | None) -> None:
        if index is not None and name not in self._index_of:
            self._index_of[name] = index
            self._taken[index] += 1

    def give_back(self, name: str) -> None:
        index = self._index_of.pop(name, None)
        if index is not None:
            self._taken[index] -= 1
            if not self._taken[index]:
                del self._taken[index]
                if index < self._next:
                    heapq.heappush(self._returned, index)

    def finish(self, name: str, index: int | None) -> None:
        if index is not None:
            self.succeed({index})
            self.give_back(name)

    def _is_vacant(self, index: int) -> bool:
        return index not in self._taken and index not in self.succeeded


def index_of(pod: Pod) -> int | None:
    """The completion index of a pod of an indexed job."""
    return whole_number(pod.metadata.annotations.get(COMPLETION_INDEX, ""))


# --- Completion indexes ---------------------------------------------------------------------------------------------
# Sets of completion indexes as the status of a job writes them: `0-2,5,7-9`.


# A bound for texts from the API: a range of a few characters may mean billions of indexes.
INDEX_MAX: Final = 1_000_000


def print_indexes(indexes: Iterable[int]) -> str:
    ranges: list[list[int]] = []
    for index in sorted(indexes):
        if ranges and index == ranges[-1][1] + 1:
            ranges[-1][1] = index
        else:
            ranges.append([index, index])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)


def parse_indexes(text: str) -> set[int]:
    """The indexes in the text; parts that cannot be parsed, or do not ascend, are ignored."""
    indexes: set[int] = set()
    highest = -1
    for part in filter(None, text.split(",")):
        head, _, tail = part.partition("-")
        first, last = whole_number(head), whole_number(tail or head)
        if first is not None and last is not None and highest < first:
            highest = min(last, INDEX_MAX)
            indexes |= set(range(first, highest + 1))
    return indexes
