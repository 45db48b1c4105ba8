"""The four answers to "which devices do these claims get on this node"."""

from __future__ import annotations

from dataclasses import dataclass

from msgspec import Struct

from dralloc.api.resource_v1 import AllocationResult
from dralloc.devices.identity import ClaimId, DeviceId, PoolId


class Allocated(Struct, frozen=True, gc=False):
    """One result for each claim, in the order of the claims.

    `score` prefers nodes where earlier alternatives fit (KEP-4816): 8 for a first one, down to 1 for an eighth, summed.
    """

    results: tuple[AllocationResult, ...]
    score: int = 0


@dataclass(frozen=True, slots=True)
class Impossible:
    """Proved: this node cannot serve the claims. Pools that make no sense here may be why."""

    invalid_pools: tuple[PoolId, ...] = ()

    @property
    def is_node_fault(self) -> bool:
        return bool(self.invalid_pools)


@dataclass(frozen=True, slots=True)
class Fatal:
    """The claims cannot be served anywhere until what is at fault is changed; `message` says what that is."""

    message: str
    claim: ClaimId | None = None
    # `main`, or `main/sub` for an alternative.
    request: str | None = None
    device_class: str | None = None
    device: DeviceId | None = None

    def __str__(self) -> str:
        where = [
            f"claim {self.claim}" if self.claim else "",
            f"request {self.request}" if self.request else "",
            f"class {self.device_class}" if self.device_class else "",
            f"device {self.device}" if self.device else "",
        ]
        return ": ".join(filter(None, (", ".join(filter(None, where)), self.message)))


@dataclass(frozen=True, slots=True)
class BudgetExhausted:
    """Neither found nor refuted within the steps that were allowed."""

    steps: int


Outcome = Allocated | Impossible | Fatal | BudgetExhausted


class Fault(Exception):
    """Carries a fatal outcome out of a search. Never leaves the package."""

    def __init__(self, fatal: Fatal) -> None:
        super().__init__(str(fatal))
        self.fatal = fatal
