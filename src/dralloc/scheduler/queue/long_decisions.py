"""Namespaces whose decisions take long: each gets a part of the scheduler's time, so that the pods of others go on.

A decision that does more work than is allowed is interrupted (`work_allowance`). The pods of its namespace then wait for several times as
long as it took, and take turns. What decisions have found out is kept, so that they end after some turns, if at all.
"""

from __future__ import annotations

from typing import Final

# What a decision may do at once, about 0.2 s of processor time; how long its namespace waits after that if other pods are ready, and
# if none is: what arrives, and what is being written, goes on meanwhile.
DECISION_WORK: Final = 1_500_000
WAIT_S: Final = 1.0
ALONE_WAIT_S: Final = 0.1
# A pod is told about it after so many interruptions in a row.
INTERRUPTIONS_REPORTED: Final = 20
TOLD: Final = "deciding on the pod takes long: its selectors, terms or requests are too many for the devices, pods and nodes that there are"


class LongDecisions:
    def __init__(self) -> None:
        # When the next decision for a namespace may begin.
        self._until_s: dict[str, float] = {}

    def interrupted(self, namespace: str, now_s: float, *, is_alone: bool = False, times: int = 1) -> float:
        """When the decision goes on; it did so many times as much as is allowed for a pod. `is_alone`: no other pod is ready."""
        self._until_s = {other: until_s for other, until_s in self._until_s.items() if until_s > now_s}
        until_s = self._until_s[namespace] = now_s + times * (ALONE_WAIT_S if is_alone else WAIT_S)
        return until_s

    def wait_until_s(self, namespace: str, now_s: float) -> float | None:
        """When a decision for the namespace may begin; None if it may now."""
        until_s = self._until_s.get(namespace)
        return until_s if until_s is not None and until_s > now_s else None
