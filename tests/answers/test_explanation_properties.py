"""Explanations of random problems: they never fail, never contradict the allocator, and what they propose helps."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from dralloc.answers.explanation.report import FitVerdict, Question, explain
from dralloc.answers.explanation.text import lines, plain_explanation
from dralloc.devices.allocator.diagnosis.claim_edits import Claims, Slot, requests_of, slots, with_request
from dralloc.devices.allocator.diagnosis.device_funnel import spots
from dralloc.devices.allocator.diagnosis.device_survey import Survey
from dralloc.devices.allocator.outcome import Allocated, BudgetExhausted, Fatal, Impossible, Outcome
from dralloc.devices.allocator.supply import Supply
from dralloc.kube.resource_v1 import EXACT_COUNT
from tests.support.questions import follow, question_of
from tests.support.random_worlds import random_world

seeds = st.integers(0, 2**32)


def random_question(seed: int) -> Question:
    world = random_world(seed)
    return question_of(
        claims=world.claims,
        classes=world.classes,
        features=world.features,
        slices=world.slices,
        allocated=world.allocated,
        rules=world.rules,
        nodes=(world.node,),
    )


def verdict_of(outcome: Outcome) -> FitVerdict:
    match outcome:
        case Allocated():
            return FitVerdict.FITS
        case Impossible():
            return FitVerdict.DOES_NOT_FIT
        case Fatal():
            return FitVerdict.ERROR
        case BudgetExhausted():
            return FitVerdict.UNDECIDED


@pytest.mark.slow
@pytest.mark.fuzz
@given(seed=seeds)
def test_an_explanation_says_what_the_allocator_says(seed: int) -> None:
    question = random_question(seed)
    situation = question.on(question.nodes[0])
    outcome = situation.outcome()
    explanation = explain(question)
    assert explanation.verdict is verdict_of(outcome)
    assert (explanation.choice is not None) == isinstance(outcome, Allocated)
    assert all(follow(question, remedy) == remedy.placement for remedy in explanation.remedies)
    told = list(lines(explanation, "it"))
    assert told[0].strip()
    assert "\n" not in told[0]
    assert msgspec.json.encode(plain_explanation(explanation, "it"))


@pytest.mark.slow
@pytest.mark.fuzz
@given(seed=seeds)
def test_the_numbers_of_a_funnel_add_up(seed: int) -> None:
    """Every device that is for the node is lost once or left, and those that are left are the ones that can be taken."""
    question = random_question(seed)
    node, demand = question.nodes[0], question.demand(question.claims)
    survey = Survey(demand, question.snapshot)
    view = survey.view(node)
    supply = Supply(question.snapshot, view, demand)
    for _, alternative in slots(demand):
        if alternative.fault is not None:
            continue
        funnel = survey.funnel(node, alternative)
        lost = [spot.device_id for drop in funnel.drops for spot in spots(drop.devices)]
        left = [spot.device_id for spot in spots(funnel.left)]
        assert len({*lost, *left}) == len(lost) + len(left) == funnel.seen_count
        usable = {
            strip.slice.device_id(bit)
            for strip in view.strips
            for bit in range(len(strip.slice.devices))
            if supply.stock(alternative, strip).usable >> bit & 1
        }
        # The allocator finds out about capacity, counters and constraints only when it takes a device.
        assert usable >= set(left)


@pytest.mark.slow
@pytest.mark.fuzz
@given(seed=seeds)
def test_what_is_left_of_a_funnel_can_be_taken_alone(seed: int) -> None:
    """Each device that is left serves the request, if that asks for one device and is alone."""
    from dataclasses import replace

    from dralloc.devices.allocator.diagnosis.claim_edits import with_alternative_only, with_requests_only

    question = random_question(seed)
    situation = question.on(question.nodes[0])
    survey = Survey(question.demand(question.claims), question.snapshot)
    for slot, alternative in list(slots(question.demand(question.claims)))[:3]:
        if alternative.fault is not None:
            continue
        claims = with_one_device(situation.claims, slot)
        if slot.alternative is not None:
            claims = with_alternative_only(claims, slot)
        alone = with_requests_only((claims[slot.claim],), 0, {slot.request})
        outcome = replace(situation, claims=alone).outcome()
        left = [spot.device_id for spot in spots(survey.funnel(situation.node, alternative).left)]
        if isinstance(outcome, Impossible):
            assert not left
        elif isinstance(outcome, Allocated):
            [allocated] = outcome.claims[0].devices
            assert allocated.device == left[0]


def with_one_device(claims: Claims, slot: Slot) -> Claims:
    """The claims, one request or alternative of which is for a single device."""
    request = requests_of(claims[slot.claim])[slot.request]
    one = structs.replace(slot.read(claims), count=1, allocation_mode=EXACT_COUNT)
    if slot.alternative is None:
        request = structs.replace(request, exactly=one)
    else:
        listed = list(request.first_available)
        listed[slot.alternative] = one  # type: ignore[assignment]  # an alternative replaces an alternative
        request = structs.replace(request, first_available=tuple(listed))
    return with_request(claims, slot.claim, slot.request, request)
