"""Where the driver that a class or a request requires has no slices, `explain` asks whether it runs."""

from __future__ import annotations

import pytest

from dralloc.answers.explanation.report import AbsentDriver, Explanation, explain
from dralloc.answers.explanation.selector_parts import required_drivers
from dralloc.answers.explanation.text import lines, plain_explanation
from dralloc.testing import builders as build
from dralloc.testing.builders import claim, device, device_class, request, resource_slice
from tests.support.questions import question_of

NIC = 'device.driver == "nic.example.com"'


@pytest.mark.parametrize(
    ("expression", "drivers"),
    [
        (NIC, ("nic.example.com",)),
        (f'device.attributes["a"].b == "c" && ({NIC} && true)', ("nic.example.com",)),
        ('"nic.example.com" == device.driver', ("nic.example.com",)),
        (f"{NIC} || true", ()),
        (f"!({NIC})", ()),
        ('device.driver != "nic.example.com"', ()),
        ('device.driver == device.attributes["a"].b', ()),
        ("device.driver ==", ()),
    ],
)
def test_a_driver_is_required_where_every_device_must_be_of_it(expression: str, drivers: tuple[str, ...]) -> None:
    assert required_drivers(expression) == drivers


def explained(where: str, published: bool = True, requested: str = "") -> Explanation:
    wanted = request(where=requested) if requested else request()
    return explain(
        question_of(
            claims=(claim("claim", wanted),),
            classes={"gpu": device_class("gpu", where)},
            slices=(resource_slice("gpus", device("gpu-0")),) if published else (),
            nodes=(build.node(),),
        )
    )


@pytest.mark.parametrize("published", [True, False])
def test_a_class_of_a_driver_without_slices(published: bool) -> None:
    found = explained(NIC, published)
    assert found.absent_drivers == (AbsentDriver("class gpu", "nic.example.com"),)
    text = list(lines(found, "claim default/claim"))
    assert text[text.index("Drivers") + 1] == (
        "  class gpu requires the driver nic.example.com, which has published no ResourceSlices: "
        "see whether its pods run on the nodes (kubectl get pods -A -o wide) and what their logs say"
    )
    plain = plain_explanation(found, "claim default/claim")
    assert plain["absentDrivers"] == [{"source": "class gpu", "driver": "nic.example.com"}]


def test_a_misspelled_driver() -> None:
    [absent] = explained('device.driver == "gpus.example.com"').absent_drivers
    assert absent.likely == "gpu.example.com"
    assert "no ResourceSlices; did you mean gpu.example.com? Otherwise see whether" in absent.line()


def test_a_driver_that_publishes_is_not_absent() -> None:
    found = explained('device.driver == "gpu.example.com"', requested='device.attributes["x"].y == "z"')
    assert found.absent_drivers == ()
    assert [each.source for each in explained("true", requested=NIC).absent_drivers] == ["request request"]
