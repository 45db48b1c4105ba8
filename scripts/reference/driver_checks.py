"""docs/reference/driver-checks.md: the checks of the driver kit, and its JSON report."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from dralloc.driver_kit.check import Check, Feature
from dralloc.driver_kit.checks import ALL as CHECKS
from scripts.reference.markdown import anchor, table

REPORT_FIELDS: Final = (
    ("version", "1; it changes when a field changes its meaning or is removed"),
    ("driver", "the driver's name; empty if it is not known"),
    ("verdict", "the worst verdict of the features that the driver has"),
    ("features[].feature", "one of the features below"),
    ("features[].verdict", "`passed`; `incomplete`: nothing failed, some checks were not tested; `failed`; `not tested`; `not applicable`"),
    ("features[].passed, .failed, .notTested, .notApplicable", "numbers of checks"),
    ("features[].reasons", "why checks have no result"),
    ("checks[].id, .feature, .title, .why, .fix, .knownFault, .injects", "the check, as on this page"),
    ("checks[].outcome", "`passed`, `passed with remarks`, `failed`, `not tested` or `not applicable`"),
    ("checks[].findings", "what was observed"),
    ("checks[].reason", "why there is no result, and which option helps; null if there is one"),
    ("checks[].asked", "false if the driver cannot have passed, because something is missing that all checks need"),
    ("checks[].seconds", "how long the check took"),
)  # fmt: skip


def driver_checks_page() -> Iterator[str]:
    yield "# Checks of the driver kit"
    yield "`dralloc driver-test` runs these checks on a driver in any language; [Writing a driver](../writing-a-driver.md#check-it) shows how."
    yield "`dralloc driver-test --list` prints this page in a terminal, `--only BEGINNING` selects checks. A check is *not applicable* if the driver"
    yield "does not have the feature, and *not tested* if an option is missing; the report says which."
    yield ""
    yield "## Known faults of real drivers"
    yield ""
    faults = [check for check in CHECKS if check.known_fault]
    yield from table(["fault", "check"], ([check.known_fault, check_link(check)] for check in faults))
    yield "## Injected faults"
    yield ""
    yield from table(["fault", "check"], ([check.injects, check_link(check)] for check in CHECKS if check.injects))
    for feature in Feature:
        yield f"## Feature: {feature.value}"
        yield ""
        for check in CHECKS:
            if check.feature is feature:
                yield from (f"### {check.id}", "", f"{check.title[0].upper()}{check.title[1:]}.", "")
                yield from (f"- **Why it matters:** {check.why}.", f"- **How to fix it:** {check.fix}.", "")
    yield "## The JSON report"
    yield ""
    yield "`--report DIRECTORY` writes it as `report.json`, `-o json` prints it. Fields are only added within a version."
    yield ""
    yield from table(["field", ""], ([f"`{name}`", text] for name, text in REPORT_FIELDS))


def check_link(check: Check) -> str:
    return f"[`{check.id}`](#{anchor(check.id)})"
