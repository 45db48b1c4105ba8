"""Selectors that match nothing: what devices look like, condition by condition."""

from __future__ import annotations

from dralloc.answers.explanation.attribute_statistics import (
    SelectorStatistics,
    selector_statistics,
    shapes_on,
)
from dralloc.answers.explanation.report import explain
from dralloc.answers.explanation.selector_parts import conditions, guarded, joined
from dralloc.answers.explanation.text import lines
from dralloc.cel.program import compile_selector
from dralloc.devices.allocator.features import Features
from dralloc.devices.allocator.requests import compile_demand
from dralloc.devices.snapshot import Snapshot
from dralloc.kube.resource_v1 import Device
from dralloc.testing import builders as build
from dralloc.testing.builders import claim, device, request, resource_slice
from tests.support.questions import question_of

GPU = 'device.attributes["gpu.example.com"]'


def statistics(expression: str, *devices: Device) -> SelectorStatistics | None:
    node = build.node()
    snapshot = Snapshot.of(slices=[resource_slice("gpus", *devices)])
    demand = compile_demand([claim("claim", request(where=expression))], {"gpu": build.device_class()}, Features())
    view = snapshot.view(node, Features().visibility)
    return selector_statistics(demand.alternatives[0], shapes_on([view, view]))


def models(*names: str) -> list[Device]:
    return [device(f"gpu-{at}", attributes={"model": name, "uuid": f"u{at}"}) for at, name in enumerate(names)]


def test_the_values_that_there_are() -> None:
    found = statistics(f'{GPU}.?model.orValue("") == "H100"', *models("a100", "h100", "a100"), device("bare"))
    assert found is not None
    assert (found.asked, found.matched, found.failed) == (4, 0, 0)
    [model] = found.attributes
    assert (model.name, model.present, model.total) == ("gpu.example.com/model", 3, 4)
    assert model.values == (("a100", 2), ("h100", 1))


def test_a_name_that_no_device_has_and_the_one_that_was_meant() -> None:
    found = statistics(f'{GPU}.modle == "a100"', *models("a100"))
    assert found is not None
    assert found.failed == 1
    assert [(each.name, each.present, each.suggestion) for each in found.attributes] == [
        ("gpu.example.com/modle", 0, "gpu.example.com/model")
    ]


def test_a_domain_that_was_confused() -> None:
    found = statistics('device.attributes["example.com"].?model.orValue("") == "a100"', *models("a100"))
    assert found is not None
    assert found.attributes[0].suggestion == "gpu.example.com/model"


def test_numbers_and_texts_are_told_apart() -> None:
    found = statistics(f"{GPU}.numa == 1", device("a", attributes={"numa": "1"}), device("b", attributes={"numa": 2}))
    assert found is not None
    assert found.attributes[0].values == (('"1"', 1), ("2", 1))


def test_which_of_several_conditions_fails() -> None:
    expression = f'{GPU}.model == "a100" && {GPU}.uuid == "none" && device.driver == "gpu.example.com"'
    found = statistics(expression, *models("a100", "a100", "b"))
    assert found is not None
    assert [(each.text, each.holds) for each in found.conditions] == [
        (f'{GPU}.model == "a100"', 2),
        (f'{GPU}.uuid == "none"', 0),
        ('device.driver == "gpu.example.com"', 3),
    ]


def test_capacities_count_too() -> None:
    expression = 'device.capacity["gpu.example.com"].memory.compareTo(quantity("80Gi")) >= 0'
    found = statistics(expression, device("a", capacity={"memory": "40Gi"}))
    assert found is not None
    assert [(each.name, each.is_capacity, each.values) for each in found.attributes] == [
        ("gpu.example.com/memory", True, (("40Gi", 1),))
    ]


def test_many_values_are_cut() -> None:
    found = statistics(f'{GPU}.uuid == "x"', *models(*("m" * 20)))
    assert found is not None
    [uuid] = found.attributes
    assert (uuid.present, len(uuid.values), uuid.values_omitted) == (20, 6, 14)


def test_a_selector_that_matches_has_no_statistics() -> None:
    assert statistics(f'{GPU}.model == "a100"', *models("a100")) is None


def test_statistics_are_told_in_words() -> None:
    node = build.node()
    question = question_of(
        claims=(claim("claim", request(where=f'{GPU}.model == "h100"')),),
        classes={"gpu": build.device_class()},
        slices=[resource_slice("gpus", *models("a100", "b200"))],
        nodes=(node,),
    )
    told = list(lines(explain(question), "it"))
    assert "    matches 0 of 2 devices" in told
    assert "    gpu.example.com/model exists on 2 of 2 devices; values: a100, b200" in told


# --- Taking expressions apart ---------------------------------------------------------------------------------------------


def test_conditions_joined_again_are_the_same_expression() -> None:
    for expression in (
        "true",
        f"{GPU}.a == 1 && ({GPU}.b == 2 || {GPU}.c == 3) && !{GPU}.d",
        f"({GPU}.a == 1 && {GPU}.b == 2) && {GPU}.l.exists(x, x == 1 && x > 0)",
        f"{GPU}.a == 1 ? {GPU}.b == 1 : {GPU}.c == 1",
    ):
        again = joined(conditions(expression))
        assert conditions(again) == conditions(expression)
        compile_selector(again)


def test_an_expression_that_does_not_compile_is_one_condition() -> None:
    assert conditions("device.driver ==") == ("device.driver ==",)


def test_a_guarded_expression_asks_first() -> None:
    assert guarded(f"{GPU}.a == 1 || {GPU}.b == 2", [("gpu.example.com", "a")], [("gpu.example.com", "memory")]) == (
        f'"a" in {GPU} && "memory" in device.capacity["gpu.example.com"] && ({GPU}.a == 1 || {GPU}.b == 2)'
    )
