"""docs/reference/doctor.md: the checks of `dralloc doctor`."""

from __future__ import annotations

from collections.abc import Iterator

from dralloc.answers.cluster_objects import relevant_kinds
from dralloc.answers.doctor.examination import CHECKS as FAULTS
from scripts.reference.markdown import table


def faults_page() -> Iterator[str]:
    names = {object_type: kind.plural for object_type, kind in relevant_kinds()}
    yield "# Checks of doctor"
    yield "What `dralloc doctor` looks for. Without the kinds that it needs, a check cannot look, and says so; without the others, it looks at less."
    yield "[Find faults](../doctor.md) says what counts and what mends it."
    yield ""
    yield from table(
        ["check", "finds", "why it matters", "needs", "reads"],
        (
            [
                f"`{each.id}`",
                each.title,
                each.why,
                ", ".join(f"`{names[kind]}`" for kind in each.needs),
                ", ".join(f"`{names[kind]}`" for kind in each.uses),
            ]
            for each in FAULTS.values()
        ),
    )
