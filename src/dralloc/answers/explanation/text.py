"""Explanations as text: the answer first, then what would help, then details."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from dralloc.answers.explanation.attribute_statistics import AttributeStatistics, SelectorStatistics
from dralloc.answers.explanation.choice import ChosenDevice, ExplainedChoice
from dralloc.answers.explanation.report import Explanation, FitVerdict, NodeDetail, RequestFunnel, Standing, Step
from dralloc.devices.allocator.diagnosis.reasons import ReasonGroup, text_of_loss
from dralloc.kube.resource_v1 import FIRST_FIT
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
