"""Explanations as plain values, for JSON and YAML."""

from __future__ import annotations

from typing import Any

import msgspec

from dralloc.answers.explanation.attribute_statistics import SelectorStatistics
from dralloc.answers.explanation.choice import ExplainedChoice
from dralloc.answers.explanation.remedies import Remedy
from dralloc.answers.explanation.report import Explanation, NodeDetail, RequestFunnel
from dralloc.answers.explanation.text import headline
from dralloc.devices.allocator.diagnosis.reasons import Reason, ReasonGroup, availability
from dralloc.kube.resource_v1 import AGGREGATED_CAPACITY, ALL, EXACT_COUNT

Plain = dict[str, Any]


def plain_explanation(explanation: Explanation, subject: str) -> Plain:
    """Names are those of the API where there are such; what is absent or empty is left out."""
    return _without_empty(
        {
            "subject": subject,
            "verdict": explanation.verdict.value,
            "message": headline(explanation, subject),
            "availability": availability(
                explanation.groups, total=explanation.total, available=len(explanation.available)
            ),
            "nodes": explanation.total,
            "availableNodes": list(explanation.available),
            "reasons": [plain_group(group) for group in explanation.groups],
            "nearestMisses": [plain_remedy(remedy) for remedy in explanation.remedies],
            "claims": [
                _without_empty(
                    {
                        "claim": str(standing.claim_id),
                        "availableNodes": standing.available,
                        "reasons": [plain_group(group) for group in standing.groups],
                    }
                )
                for standing in explanation.standings
            ],
            "blockingClaims": [str(claim_id) for claim_id in explanation.blocking],
            "details": [_detail(detail) for detail in explanation.details],
            "absentDrivers": [
                _without_empty({"source": each.source, "driver": each.driver, "likely": each.likely})
                for each in explanation.absent_drivers
            ],
            "selectors": [_selector(found) for found in explanation.statistics],
            "choice": _choice(explanation.choice) if explanation.choice is not None else None,
        }
    )


def plain_group(group: ReasonGroup) -> Plain:
    return {"nodes": list(group.nodes), **plain_reason(group.reason)}


def plain_reason(reason: Reason) -> Plain:
    return _without_empty(
        {
            "cause": reason.cause.value,
            "message": str(reason),
            "claim": str(reason.claim) if reason.claim is not None else "",
            "request": str(reason.request) if reason.request is not None else "",
            "subject": reason.subject,
            "asked": reason.asked,
            "takes": reason.takes,
            "most": None if reason.most is None else str(reason.most),
            "example": reason.example,
        }
    )


def plain_remedy(remedy: Remedy) -> Plain:
    return {
        "node": remedy.node,
        "change": remedy.change.kind,
        "message": remedy.change.text,
        "changes": msgspec.to_builtins(remedy.change.objects),
    }


def _detail(detail: NodeDetail) -> Plain:
    return _without_empty(
        {
            "node": detail.node,
            "message": str(detail.reason),
            "unreadyPools": [{"pool": str(pool.pool_id), "message": pool.fault} for pool in detail.unready],
            "requests": [_funnel(funnel) for funnel in detail.requests],
        }
    )


def _funnel(funnel: RequestFunnel) -> Plain:
    return {
        "claim": str(funnel.claim_id),
        "request": str(funnel.request),
        "deviceClassName": funnel.device_class,
        "wanted": funnel.wanted,
        "allocationMode": _mode(funnel),
        "seen": funnel.seen,
        "lost": [
            _without_empty(
                {
                    "hurdle": step.hurdle.value,
                    "count": step.count,
                    "reason": plain_reason(step.reason),
                    "example": str(step.example),
                    "holders": [str(claim_id) for claim_id in step.holders],
                }
            )
            for step in funnel.steps
        ],
        "left": funnel.left,
    }


def _mode(funnel: RequestFunnel) -> str:
    if funnel.takes_all:
        return ALL
    return EXACT_COUNT if funnel.together is None else AGGREGATED_CAPACITY


def _selector(found: SelectorStatistics) -> Plain:
    return _without_empty(
        {
            "source": found.source,
            "expression": found.expression,
            "devices": found.asked,
            "matched": found.matched,
            "failed": found.failed,
            "conditions": [
                {"expression": condition.text, "holds": condition.holds, "fails": condition.fails}
                for condition in found.conditions
            ],
            "attributes": [
                _without_empty(
                    {
                        "name": attribute.name,
                        "isCapacity": attribute.is_capacity,
                        "present": attribute.present,
                        "values": [{"value": value, "count": count} for value, count in attribute.values],
                        "valuesOmitted": attribute.values_omitted or None,
                        "suggestion": attribute.suggestion,
                    }
                )
                for attribute in found.attributes
            ],
        }
    )


def _choice(choice: ExplainedChoice) -> Plain:
    return _without_empty(
        {
            "node": choice.node,
            "score": choice.score,
            "devices": [
                _without_empty(
                    {
                        "claim": str(chosen.claim_id),
                        "request": str(chosen.request),
                        "device": str(chosen.device_id),
                        "consumedCapacity": None
                        if chosen.consumed is None
                        else {name: str(amount) for name, amount in chosen.consumed.items()},
                        "passedOver": [
                            {"count": passed.count, "why": passed.why, "example": str(passed.example)}
                            for passed in chosen.passed_over
                        ],
                    }
                )
                for chosen in choice.devices
            ],
            "refusedAlternatives": [
                {"claim": str(refused.claim_id), "request": str(refused.request), "why": refused.why}
                for refused in choice.refused
            ],
        }
    )


def _without_empty(value: Plain) -> Plain:
    return {name: member for name, member in value.items() if member is not None and member not in ("", [])}
