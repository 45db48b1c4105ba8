"""A check, and what it finds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from dralloc.api.diagnostics import Severity
from dralloc.api.meta_v1 import ApiObject
from dralloc.doctor.cluster_facts import ClusterFacts, Fact
from dralloc.doctor.unchecked import Unchecked


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A fault. `commands` are for a shell, in their order; `advice` says what to know before they are run.

    Of an error, devices are lost, pods cannot run, or something has stopped. A warning may be meant so, or does no harm yet.
    """

    subject: str
    severity: Severity
    message: str
    evidence: tuple[str, ...]
    advice: str
    commands: tuple[str, ...]


Observation = Finding | Unchecked


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthCheck:
    """A check: `look` yields what it observes. Without the kinds in `needs` it cannot look at all, without those in `uses` at less."""

    id: str
    title: str
    # Why the fault matters.
    why: str
    look: Callable[[ClusterFacts], Iterator[Observation]]
    needs: tuple[type[ApiObject], ...] = ()
    uses: tuple[type[ApiObject], ...] = ()
    # What it reads beside objects.
    facts: tuple[Fact, ...] = ()
