"""Drivers that a selector requires by name and that have published no devices: what to ask first is whether they run."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from dralloc.allocator.requests import Alternative
from dralloc.whatif.explanation.attribute_statistics import selectors_of
from dralloc.whatif.explanation.misspellings import likely_value
from dralloc.whatif.explanation.selector_parts import required_drivers


@dataclass(frozen=True, slots=True)
class AbsentDriver:
    # `class gpu` or `request main`.
    source: str
    driver: str
    # The driver that was probably meant: it has published devices.
    likely: str = ""

    def line(self) -> str:
        meant = f"; did you mean {self.likely}? Otherwise" if self.likely else ":"
        return (
            f"{self.source} requires the driver {self.driver}, which has published no ResourceSlices{meant} "
            "see whether its pods run on the nodes (kubectl get pods -A -o wide) and what their logs say"
        )


def absent_drivers(alternatives: Iterable[Alternative], present: Collection[str]) -> Iterator[AbsentDriver]:
    """The drivers without slices that the requests or their classes require. `present` are the drivers that have slices."""
    told: set[tuple[str, str]] = set()
    for alternative in alternatives:
        for source, expression in selectors_of(alternative):
            for driver in required_drivers(expression):
                if driver not in present and (source, driver) not in told:
                    told.add((source, driver))
                    yield AbsentDriver(source, driver, likely_value(driver, present) or "")
