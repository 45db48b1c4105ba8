"""Selectors: compilation, and evaluation on many devices."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from bench.measurement import Figure, benchmark, best_time_s
from dralloc.cel.compiler import compile_selector_expression as check
from dralloc.cel.device import DeviceView
from dralloc.cel.program import Selector, compile_selector
from dralloc.kube.resource_v1 import DeviceAttribute
from dralloc.primitives.quantity import Quantity

DEVICES = 2_000
TYPICAL = (
    'device.driver == "x" && device.attributes["x"].model == "a100"'
    ' && device.capacity["x"].memory.compareTo(quantity("10Gi")) >= 0'
)
OTHERS = {
    "with a default": 'device.attributes["x"].?model.orValue("none") in ["a100", "h100"]',
    "with a version and a pattern": 'device.attributes["x"].version.isGreaterThan(semver("1.0.0")) && device.attributes["x"].model.matches("^a")',
    "with a loop over the attributes": 'device.attributes["x"].exists(k, k.startsWith("ver"))',
}


def devices(count: int) -> list[DeviceView]:
    """Returns devices with ten attributes each."""
    return [
        DeviceView.build(
            "x",
            {
                "model": DeviceAttribute(string="a100"),
                "version": DeviceAttribute(version=f"1.2.{number % 50}"),
                **{f"attribute{index}": DeviceAttribute(int=number + index) for index in range(8)},
            },
            {"memory": Quantity.parse("40Gi"), "cores": Quantity.parse("108")},
        )
        for number in range(count)
    ]


def time_us(ask: Callable[[DeviceView], object], views: list[DeviceView]) -> float:
    """Returns microseconds per device, with warm caches."""

    def ask_all() -> None:
        for view in views:
            ask(view)

    ask_all()
    return best_time_s(ask_all, 15) / len(views) * 1e6


@benchmark("cel-match")
def match() -> Iterator[Figure]:
    views = devices(DEVICES)
    selector = compile_selector(TYPICAL)
    yield Figure("typical selector, a device", time_us(selector.matches, views), "µs", target=0.5)
    yield Figure("the same, evaluator only", time_us(selector.decide, views), "µs")
    for name, expression in OTHERS.items():
        yield Figure(f"{name}, a device", time_us(compile_selector(expression).matches, views), "µs")


@benchmark("cel-compile")
def compile_() -> Iterator[Figure]:
    yield Figure(
        "compile the typical selector", best_time_s(lambda: Selector(check(TYPICAL)), 200) * 1000, "ms", target=1
    )
    yield Figure("find it in the cache", best_time_s(lambda: compile_selector(TYPICAL), 200) * 1e6, "µs")


@benchmark("cel-device")
def device() -> Iterator[Figure]:
    batches = iter([devices(DEVICES) for _ in range(10)])

    def convert() -> None:
        for view in next(batches):
            _ = view.attributes

    yield Figure("convert a device of ten attributes", best_time_s(convert, 10) / DEVICES * 1e6, "µs")
