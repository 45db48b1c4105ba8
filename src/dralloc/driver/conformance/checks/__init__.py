"""The checks, a module for each part of the contract; `ALL` has them in the order in which they run."""

from typing import Final

from dralloc.driver.conformance.checking import Check
from dralloc.driver.conformance.checks import health, preparing, registration, restarting, slices, unpreparing

ALL: Final[tuple[Check, ...]] = (
    *registration.CHECKS,
    *preparing.CHECKS,
    *unpreparing.CHECKS,
    *health.CHECKS,
    *restarting.CHECKS,
    *slices.CHECKS,
)
