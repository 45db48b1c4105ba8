"""All checks, and what they say about a cluster."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from dralloc.answers.doctor.check import Finding, HealthCheck
from dralloc.answers.doctor.checks.broad_taint_rules import BROAD_TAINT_RULES
from dralloc.answers.doctor.checks.certificates import CERTIFICATES
from dralloc.answers.doctor.checks.dead_drivers import DEAD_DRIVERS
from dralloc.answers.doctor.checks.feature_gates import FEATURE_GATES
from dralloc.answers.doctor.checks.incomplete_pools import INCOMPLETE_POOLS
from dralloc.answers.doctor.checks.leaked_claims import LEAKED_CLAIMS
from dralloc.answers.doctor.checks.shared_hardware import DOUBLE_BOOKING
from dralloc.answers.doctor.checks.stale_checkpoints import STALE_CHECKPOINTS
from dralloc.answers.doctor.checks.stuck_deletions import STUCK_DELETIONS
from dralloc.answers.doctor.cluster_facts import ClusterFacts, Unchecked
from dralloc.kube.diagnostics import Severity

CHECKS: Final[Mapping[str, HealthCheck]] = {
    check.id: check
    for check in (
        LEAKED_CLAIMS,
        STUCK_DELETIONS,
        STALE_CHECKPOINTS,
        DEAD_DRIVERS,
        INCOMPLETE_POOLS,
        DOUBLE_BOOKING,
        BROAD_TAINT_RULES,
        CERTIFICATES,
        FEATURE_GATES,
    )
}


@dataclass(frozen=True, slots=True)
class HealthCheckResult:
    check: HealthCheck
    # Errors first.
    findings: tuple[Finding, ...] = ()
    unchecked: tuple[Unchecked, ...] = ()

    @property
    def is_failed(self) -> bool:
        """True if there is an error, or if what should be looked at could not be."""
        return any(each.severity is Severity.ERROR for each in self.findings) or any(
            not each.is_expected for each in self.unchecked
        )


def examine(
    facts: ClusterFacts, checks: Iterable[HealthCheck] = tuple(CHECKS.values())
) -> tuple[HealthCheckResult, ...]:
    """What each of the checks says."""
    return tuple(_result(facts, check) for check in checks)


def _result(facts: ClusterFacts, check: HealthCheck) -> HealthCheckResult:
    unknown = tuple(Unchecked(why) for kind in check.needs if (why := facts.why_unknown(kind)))
    if unknown:
        return HealthCheckResult(check, unchecked=unknown)
    notes = [known.note for kind in (*check.needs, *check.uses) if (known := facts.read.get(kind)) and known.note]
    observed = [*map(Unchecked, notes), *check.look(facts)]
    findings = (each for each in observed if isinstance(each, Finding))
    return HealthCheckResult(
        check,
        tuple(sorted(findings, key=lambda each: each.severity is not Severity.ERROR)),
        tuple(each for each in observed if isinstance(each, Unchecked)),
    )
