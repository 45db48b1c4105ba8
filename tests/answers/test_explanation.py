"""Explanations: the line that people read first, and the change that would help, for small worlds."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dralloc.answers.explanation.report import Explanation, FitVerdict, explain
from dralloc.answers.explanation.text import headline, lines
from dralloc.scheduler.decide.node_fit import NodeMisfit
from dralloc.scheduler.decide.node_verdicts import Unfit
from dralloc.testing import builders as build
from dralloc.testing.builders import (
    device,
    resource_slice,
)
from tests.answers.waiting_pods import CASES, MODEL, Case, gpus, wants
from tests.support.questions import follow


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_the_first_line_says_why(case: Case) -> None:
    told, want = headline(explain(case.question), "it"), f"it {case.want}"
    assert told.startswith(want[:-1]) if want.endswith("…") else told == want


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_the_likeliest_remedy_is_told_and_every_one_helps(case: Case) -> None:
    question = case.question
    remedies = explain(question).remedies
    assert [remedy.change.text for remedy in remedies[:1]] == ([case.remedy] if case.remedy else [])
    for remedy in remedies:
        assert follow(question, remedy) == remedy.placement, remedy.change.text


def explained(case_id: str) -> Explanation:
    return explain(next(case for case in CASES if case.id == case_id).question)


def test_a_funnel_shows_where_devices_are_lost_and_who_has_them() -> None:
    told = "\n".join(lines(explained("most are in use, one is tainted"), "it"))
    assert (
        """\
On node-a
  request request: 1 device of class gpu
     3  devices on the node
    -2  in use, held by default/one
    -1  untolerated taint broken:NoSchedule
     0  available, 1 requested"""
        in told
    )


def test_a_pod_with_several_claims_hears_which_of_them_blocks() -> None:
    explanation = explained("a pod one claim of which fits nowhere")
    assert [str(claim_id) for claim_id in explanation.blocking] == ["default/second"]
    told = list(lines(explanation, "it"))
    assert "  default/first: fits alone on 1 of 1 node" in told
    assert f"  default/second: does not fit on any node, even alone: no device matches {MODEL}" in told


def test_nothing_is_proposed_that_does_not_help() -> None:
    told = list(lines(explained("a pool that contradicts itself"), "it"))
    assert "No single change was found that makes it fit." in told


def test_an_error_on_one_node_is_an_error_for_all_as_in_kubernetes() -> None:
    case = Case(
        "one node is fine",
        (
            resource_slice("a", device("gpu-0"), pool="a"),
            resource_slice("b", device("gpu-0", attributes={"model": "h100"}), pool="b", node_name="node-b"),
        ),
        wants(where=MODEL),
        "",
        nodes=(build.node("node-a"), build.node("node-b")),
    )
    explanation = explain(case.question)
    assert explanation.verdict is FitVerdict.ERROR
    assert explanation.available == ("node-b",)
    assert "  1  would fit without the error  [node-b]" in list(lines(explanation, "it"))


def test_nodes_out_of_the_question_keep_their_own_reason() -> None:
    case = next(case for case in CASES if case.id == "nodes with different stories")
    unfit = Unfit(NodeMisfit("NodeUnschedulable", "unschedulable"))
    question = case.question
    explanation = explain(replace(question, verdicts={**question.verdicts, "node-b": unfit}))
    assert [str(group) for group in explanation.groups] == [
        "1 node: untolerated taint broken:NoSchedule",
        "1 node: the only device is in use",
        "1 node: unschedulable",
    ]


BROKEN = resource_slice("broken", device("x"), pool="net", node_selector=build.node_selector(**{"not a label": "x"}))


def test_a_slice_that_makes_no_sense_is_told_without_details() -> None:
    case = Case("", (gpus("gpu-0"), BROKEN), wants(), "")
    explanation = explain(case.question)
    assert explanation.verdict is FitVerdict.ERROR
    assert (explanation.details, explanation.remedies) == ((), ())


def test_who_asks_for_no_devices_is_not_concerned_by_them() -> None:
    explanation = explain(Case("", (BROKEN,), (), "").question)
    assert explanation.verdict is FitVerdict.FITS
    assert list(lines(explanation, "it")) == ["it fits"]
