"""Explanations as text: the answer first, then what would help, then details."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec

from dralloc.answers.explanation.attribute_statistics import AttributeStatistics, SelectorStatistics
from dralloc.answers.explanation.choice import ChosenDevice, ExplainedChoice
from dralloc.answers.explanation.remedies import Remedy
from dralloc.answers.explanation.report import Explanation, FitVerdict, NodeDetail, RequestFunnel, Standing, Step
from dralloc.devices.allocator.diagnosis.reasons import Reason, ReasonGroup, availability, text_of_loss
from dralloc.kube.resource_v1 import AGGREGATED_CAPACITY, ALL, EXACT_COUNT, FIRST_FIT
from dralloc.primitives.phrases import counted, first_few

GROUPS_SHOWN_MAX: Final = 20
_REMEDIES: Final = "It would fit if you"


def headline(explanation: Explanation, subject: str) -> str:
    """The answer in one line. `subject` is what was asked about: `claim default/training`."""
    match explanation.verdict:
        case FitVerdict.FITS:
            return f"{subject} fits{_on_how_many(explanation)}{_given(explanation.choice)}"
        case FitVerdict.ERROR:
            return f"{subject} cannot be allocated: {_main_group(explanation).reason.line}"
        case FitVerdict.UNDECIDED:
            return f"cannot tell whether {subject} fits: {_main_group(explanation).reason.line}"
        case FitVerdict.DOES_NOT_FIT:
            return _refusal(explanation, subject)


def lines(explanation: Explanation, subject: str) -> Iterator[str]:
    """Everything, the headline first."""
    yield headline(explanation, subject)
    sections = [
        ("Nodes", _node_lines(explanation)),
        ("Claims", _claim_lines(explanation)),
        ("Drivers", (each.line() for each in explanation.absent_drivers)),
        (_REMEDIES, _remedy_lines(explanation)),
        *((_detail_title(explanation, detail), _detail_lines(detail)) for detail in explanation.details),
        ("Selectors", _selector_lines(explanation.statistics)),
        *(_choice_sections(explanation.choice) if explanation.choice is not None else ()),
    ]
    for title, section in sections:
        told = list(section)
        if told:
            yield ""
            yield title
            yield from (f"  {line}" for line in told)
        elif title is _REMEDIES and explanation.details:
            yield ""
            yield "No single change was found that makes it fit."


# --- The answer -----------------------------------------------------------------------------------------------------------


def _on_how_many(explanation: Explanation) -> str:
    if explanation.total == 1:
        return ""
    return f" on {len(explanation.available)} of {counted(explanation.total, 'node')}"


def _given(choice: ExplainedChoice | None) -> str:
    if choice is None or not choice.devices:
        return ""
    devices = first_few((str(chosen.device_id) for chosen in choice.devices), "device")
    return f"; on {choice.node} it gets {devices}"


def _main_group(explanation: Explanation) -> ReasonGroup:
    """The group with an error, else the one that is nearest to a fit."""
    return explanation.groups[0]


def _refusal(explanation: Explanation, subject: str) -> str:
    if not explanation.groups:
        return f"{subject} does not fit: there are no nodes"
    main = _main_group(explanation)
    if explanation.total == 1:
        return f"{subject} does not fit on {main.nodes[0]}: {main.reason.line}"
    told = main.reason.line if len(explanation.groups) == 1 else "; ".join(map(str, explanation.groups[:2]))
    more = "; …" if len(explanation.groups) > 2 else ""
    return f"{subject} does not fit on any of {explanation.total} nodes: {told}{more}"


# --- Nodes and claims -----------------------------------------------------------------------------------------------------


def _node_lines(explanation: Explanation) -> Iterator[str]:
    if explanation.total <= 1:
        return
    rows = [(len(group.nodes), str(group.reason), group.nodes) for group in explanation.groups]
    if explanation.available:
        told = "fits" if explanation.verdict is FitVerdict.FITS else "would fit without the error"
        rows.insert(0, (len(explanation.available), told, explanation.available))
    width = len(str(max((count for count, _, _ in rows), default=0)))
    for count, told, nodes in rows[:GROUPS_SHOWN_MAX]:
        yield f"{count:>{width}}  {told}  [{first_few(nodes, 'node')}]"
    if len(rows) > GROUPS_SHOWN_MAX:
        yield f"{sum(count for count, _, _ in rows[GROUPS_SHOWN_MAX:]):>{width}}  other reasons"


def _claim_lines(explanation: Explanation) -> Iterator[str]:
    for standing in explanation.standings:
        yield f"{standing.claim_id}: {_standing(standing, explanation.total)}"


def _standing(standing: Standing, total: int) -> str:
    if standing.available:
        return f"fits alone on {standing.available} of {counted(total, 'node')}"
    reason = f": {standing.groups[0].reason}" if standing.groups else ""
    return f"does not fit on any node, even alone{reason}"


def _remedy_lines(explanation: Explanation) -> Iterator[str]:
    for remedy in explanation.remedies:
        yield f"- {remedy.change.text}" + (f"  [{remedy.node}]" if explanation.total > 1 else "")


# --- Funnels --------------------------------------------------------------------------------------------------------------


def _detail_title(explanation: Explanation, detail: NodeDetail) -> str:
    others = next((len(group.nodes) - 1 for group in explanation.groups if detail.node in group.nodes), 0)
    return f"On {detail.node}" + (f", as on {counted(others, 'other node')}" if others else "")


def _detail_lines(detail: NodeDetail) -> Iterator[str]:
    for pool in detail.unready:
        yield f"pool {pool.pool_id} {pool.fault}"
    several_claims = len({funnel.claim_id for funnel in detail.requests}) > 1
    for funnel in detail.requests:
        where = f"claim {funnel.claim_id}, request" if several_claims else "request"
        asked = "all devices" if funnel.takes_all else counted(funnel.wanted, "device")
        if funnel.together is not None:
            asked = f"at most {counted(funnel.together, 'device')}, together,"
        yield f"{where} {funnel.request}: {asked} of class {funnel.device_class}"
        yield from (f"  {line}" for line in _funnel_lines(funnel))


def _funnel_lines(funnel: RequestFunnel) -> Iterator[str]:
    width = len(str(funnel.seen)) + 1
    yield f"{funnel.seen:>{width}}  {'device' if funnel.seen == 1 else 'devices'} on the node"
    for step in funnel.steps:
        yield f"{-step.count:>{width}}  {_step(step)}"
    wanted = "" if funnel.left >= funnel.wanted else f", {funnel.wanted} requested"
    yield f"{funnel.left:>{width}}  available{wanted}"


def _step(step: Step) -> str:
    text = text_of_loss(step.reason)
    held = f", held by {first_few(map(str, step.holders), 'claim')}" if step.holders else ""
    return text + held


# --- Selectors ------------------------------------------------------------------------------------------------------------


def _selector_lines(statistics: Iterable[SelectorStatistics]) -> Iterator[str]:
    for found in statistics:
        yield f"{found.source}: {' '.join(found.expression.split())}"
        failed = f", fails on {found.failed}" if found.failed else ""
        yield f"  matches {found.matched} of {counted(found.asked, 'device')}{failed}"
        for condition in found.conditions:
            failing = f", fails on {condition.fails}" if condition.fails else ""
            yield f"  {condition.holds} of {found.asked}: {condition.text}{failing}"
        yield from (f"  {_attribute(attribute)}" for attribute in found.attributes)


def _attribute(found: AttributeStatistics) -> str:
    kind = "capacity " if found.is_capacity else ""
    text = f"{kind}{found.name} exists on {found.present} of {counted(found.total, 'device')}"
    if found.suggestion:
        return f"{text}; did you mean {found.suggestion}?"
    if not found.values:
        return text
    more = f", {found.values_omitted} more" if found.values_omitted else ""
    return f"{text}; values: {', '.join(value for value, _ in found.values)}{more}"


# --- Why these devices ----------------------------------------------------------------------------------------------------


def _choice_sections(choice: ExplainedChoice) -> Iterator[tuple[str, Iterator[str]]]:
    yield f"Why these devices, on {choice.node}", (line for chosen in choice.devices for line in _chosen_lines(chosen))
    yield (
        "Preferred alternatives that do not fit",
        (f"{refused.request}: {refused.why}" for refused in choice.refused),
    )


def _order(chosen: ChosenDevice) -> str:
    if chosen.is_together:
        return "one of as few devices as have enough together"
    return "the first free device" if chosen.preference == FIRST_FIT else f"chosen by {chosen.preference}"


def _chosen_lines(chosen: ChosenDevice) -> Iterator[str]:
    amounts = ", ".join(f"{name}={amount}" for name, amount in (chosen.consumed or {}).items())
    share = "" if chosen.consumed is None else f" (a share{f': {amounts}' if amounts else ''})"
    order = "" if chosen.passed_over else f", {_order(chosen)}"
    yield f"request {chosen.request}: {chosen.device_id}{share}{order}"
    for passed in chosen.passed_over:
        example = f"for example {passed.example}" if passed.count > 1 else str(passed.example)
        yield f"  skipped {passed.count}: {passed.why} [{example}]"


# --- Json form ------------------------------------------------------------------------------------------------------
# Explanations as plain values, for JSON and YAML.


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
