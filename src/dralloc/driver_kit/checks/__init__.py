"""The checks, one module for each part of the contract; `ALL` lists them in the order in which they run."""

from typing import Final

from dralloc.driver_kit.check import Check
from dralloc.driver_kit.checks import (
    checkpoint,
    faults,
    health,
    partitions,
    prepare,
    registration,
    restart,
    slices,
    unprepare,
)

ALL: Final[tuple[Check, ...]] = (
    *registration.CHECKS,
    *prepare.CHECKS,
    *unprepare.CHECKS,
    *checkpoint.CHECKS,
    *partitions.CHECKS,
    *health.CHECKS,
    *restart.CHECKS,
    *slices.CHECKS,
    *faults.CHECKS,
)
