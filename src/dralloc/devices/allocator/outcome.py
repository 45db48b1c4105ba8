"""The four answers to "which devices do these claims get on this node".

They are values: claims are identified by their index in the demand, shares have no IDs yet (`stamp`), and failures become
text only where the names of the claims are known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from msgspec import Struct

from dralloc.devices.identity import ClaimId, DeviceId, PoolId
from dralloc.kube.meta_v1 import NodeSelector
from dralloc.kube.request_name import RequestName
from dralloc.kube.resource_v1 import DeviceAllocationConfiguration, DeviceToleration
from dralloc.primitives.quantity import Quantity

__all__ = ["Allocated", "BudgetExhausted", "ClaimAllocation", "DeviceAllocation", "Fatal", "Impossible"]

# The most results that the API lets a claim have.
RESULTS_MAX: Final = 32


class DeviceAllocation(Struct, frozen=True, gc=False):
    """One device for a request, or a share of one. A share gets its ID when the allocation is committed."""

    request: RequestName
    device: DeviceId
    is_share: bool
    consumed_capacity: dict[str, Quantity]
    capacity_limits: dict[str, Quantity]
    admin_access: bool
    tolerations: tuple[DeviceToleration, ...]
    binding_conditions: tuple[str, ...]
    binding_failure_conditions: tuple[str, ...]
    skip_node_operations: tuple[str, ...]


class ClaimAllocation(Struct, frozen=True, gc=False):
    """What one claim gets. `node_selector` selects the nodes that reach all of its devices; None means every node."""

    devices: tuple[DeviceAllocation, ...]
    config: tuple[DeviceAllocationConfiguration, ...]
    node_selector: NodeSelector | None


class Allocated(Struct, frozen=True, gc=False):
    """One allocation for each claim, by the claim's index.

    `score` prefers nodes where earlier alternatives fit (KEP-4816): 8 for a first one, down to 1 for an eighth, summed.
    """

    claims: tuple[ClaimAllocation, ...]
    score: int = 0


@dataclass(frozen=True, slots=True)
class Impossible:
    """Proved: this node cannot serve the claims. `invalid_pools` are pools of the node that are ignored as invalid."""

    invalid_pools: tuple[PoolId, ...] = ()

    @property
    def is_node_fault(self) -> bool:
        """True if an invalid pool of the node is the reason."""
        return bool(self.invalid_pools)


class FatalCause(Enum):
    """Why claims can be served nowhere. The value is the message, with a place for the detail."""

    TOO_MANY_DEVICES = f"requests at least {{}} devices; a claim can have {RESULTS_MAX}"
    UNKNOWN_CONSTRAINT = "constraint #{} is of no known kind"
    DISTINCT_ATTRIBUTES_OFF = "constraint #{} has distinctAttributes, but the feature DRADistinctAttributes is off"
    UNKNOWN_REQUEST = "has neither `exactly` nor `firstAvailable`, and no other kind of request is supported"
    PRIORITIZED_LIST_OFF = "has alternatives, but the feature DRAPrioritizedList is off"
    CONSUMABLE_CAPACITY_OFF = "requests capacity, but the feature DRAConsumableCapacity is off"
    CAPACITY_LIMITS_OFF = "has capacity limits, but the feature DRACapacityLimits is off"
    DERIVED_ATTRIBUTES = "has derived attributes, but the feature DRADerivedAttributes is off"
    UNKNOWN_SELECTOR = "has a selector of no known kind"
    ADMIN_ACCESS_OFF = "requests admin access, but the feature DRAAdminAccess is off"
    NO_CLASS_NAME = "names no device class"
    CLASS_MISSING = "device class {} does not exist"
    UNKNOWN_ALLOCATION_MODE = "has the unknown allocation mode {!r}"
    AGGREGATED_CAPACITY_OFF = "requests aggregated capacity, but the feature DRAAggregatedCapacity is off"
    NO_TOTALS = "requests aggregated capacity and names no capacity"
    UNKNOWN_PREFERENCE = "has the unknown device preference {!r}"
    DEVICE_PREFERENCE_OFF = "has the device preference {}, but the feature DRADevicePreference is off"
    ALLOCATIONS_OFF = "has a condition on allocations, but the feature DRADevicePreference is off"
    POOL_NOT_READY = "requests all devices, but pool {}"
    # A selector, a capacity or a node selector that fails to evaluate.
    EVALUATION_ERROR = "{}"
    CONSTRAINT_ON_ALL = "all devices are requested, and this one does not satisfy a constraint of the claim"
    NODE_SELECTOR_TERMS = "its node selector has more than one term"


@dataclass(frozen=True, slots=True)
class Fatal:
    """The claims cannot be served anywhere until the cause is removed. `claim` is an index in the demand."""

    cause: FatalCause
    detail: object = ""
    claim: int | None = None
    request: RequestName | None = None
    device_class: str | None = None
    device: DeviceId | None = None

    @property
    def message(self) -> str:
        """The cause, without what it concerns."""
        return self.cause.value.format(self.detail)

    def text(self, claims: Sequence[ClaimId]) -> str:
        """The whole sentence, with the names of the demand's claims."""
        concerned = [
            f"claim {claims[self.claim]}" if self.claim is not None else "",
            f"request {self.request}" if self.request else "",
            f"class {self.device_class}" if self.device_class and self.cause is not FatalCause.CLASS_MISSING else "",
            f"device {self.device}" if self.device else "",
        ]
        return ": ".join(filter(None, (", ".join(filter(None, concerned)), self.message)))


@dataclass(frozen=True, slots=True)
class BudgetExhausted:
    """Neither found nor refuted within the steps that were allowed."""

    steps: int


Outcome = Allocated | Impossible | Fatal | BudgetExhausted


class SearchAborted(Exception):
    """Carries a fatal outcome out of a search. Never leaves the package."""

    def __init__(self, fatal: Fatal) -> None:
        super().__init__(fatal)
        self.fatal = fatal
