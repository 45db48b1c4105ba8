"""Traces with given distributions: sizes, cores and memory by device, models, times between arrivals, durations."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from random import Random
from typing import Final, Protocol

from dralloc.study.comparison import BadInput
from dralloc.study.trace import WHOLE_DEVICE, Arrival, PodShape, Trace
from dralloc.study.trace_files import MIB_PER_GIB

# A mix as in shared GPU clusters: mostly single and shared devices, some pods without, a few that take a whole node.
DEFAULTS: Final[Mapping[str, str]] = {
    "pods": "2000",
    "shapes": "100",
    "devices": "0:13 0.1:6 0.25:8 0.5:14 0.75:4 1:45 2:4 4:3 8:3",
    "cores": "uniform(1, 10)",
    "memory": "uniform(2, 8)",
    "models": "",
    "constrained": "0.2",
    "interarrival": "1",
    "duration": "",
}
PODS_MAX: Final = 10_000_000


@dataclass(frozen=True, slots=True)
class SyntheticMix:
    """What pods are drawn from.

    `devices` of a pod (below 1: a share); `cores` for each device, of a pod without devices for the pod; `memory` in GiB for
    each core. `constrained` is the part of the pods that need a certain model. If `shapes` is not 0, pods are drawn from so many
    shapes, of which the first are the most popular. Without `duration`, pods stay.
    """

    pods: int
    shapes: int
    devices: Distribution
    cores: Distribution
    memory: Distribution
    interarrival: Distribution
    duration: Distribution | None = None
    models: tuple[str, ...] = ()
    model_weights: tuple[float, ...] = ()
    constrained: float = 0.0

    @classmethod
    def parse(cls, text: str) -> SyntheticMix:
        """Reads `KEY=VALUE; KEY=VALUE`; keys that are left out have the values of `DEFAULTS`. Raises BadInput."""
        stated = dict(DEFAULTS)
        for part in filter(str.strip, text.split(";")):
            key, equals, value = part.partition("=")
            if not equals or key.strip() not in DEFAULTS:
                raise BadInput(f"synthetic: {part.strip()!r}: expected KEY=VALUE with one of {', '.join(DEFAULTS)}")
            stated[key.strip()] = value.strip()
        models, weights = parse_names(stated["models"], "models")
        constrained = parse_distribution(stated["constrained"], "constrained").draw(Random(0))
        if constrained > 1:
            raise BadInput(f"constrained: expected a part between 0 and 1, got {stated['constrained']!r}")
        return cls(
            pods=_whole(stated, "pods", 1),
            shapes=_whole(stated, "shapes", 0),
            devices=parse_distribution(stated["devices"], "devices"),
            cores=parse_distribution(stated["cores"], "cores"),
            memory=parse_distribution(stated["memory"], "memory"),
            interarrival=parse_distribution(stated["interarrival"], "interarrival"),
            duration=parse_distribution(stated["duration"], "duration") if stated["duration"] else None,
            models=models,
            model_weights=weights,
            constrained=constrained,
        )


def _whole(stated: Mapping[str, str], key: str, minimum: int) -> int:
    text = stated[key]
    if not text.isdecimal() or not minimum <= int(text) <= PODS_MAX:
        raise BadInput(f"{key}: expected a whole number between {minimum} and {PODS_MAX:,}, got {text!r}")
    return int(text)


def synthetic_trace(mix: SyntheticMix | str = "", seed: int = 1) -> Trace:
    """A trace that is drawn from the mix; the same seed gives the same trace. Raises BadInput."""
    if isinstance(mix, str):
        mix = SyntheticMix.parse(mix)
    random = Random(seed)
    shapes = [_shape(mix, random) for _ in range(mix.shapes)]
    popularity = [1 / (rank + 5) for rank in range(mix.shapes)]
    at_s = 0.0
    arrivals: list[Arrival] = []
    for number in range(mix.pods):
        shape = random.choices(shapes, popularity)[0] if shapes else _shape(mix, random)
        duration_s = mix.duration.draw(random) if mix.duration is not None else None
        arrivals.append(Arrival(f"pod-{number:06}", shape, at_s, duration_s))
        at_s += mix.interarrival.draw(random)
    return Trace("synthetic", tuple(arrivals))


@dataclass(frozen=True, slots=True)
class SyntheticTraces:
    """A trace of the mix for every seed."""

    mix: SyntheticMix
    name: str = "synthetic"

    def for_seed(self, seed: int) -> Trace:
        return synthetic_trace(self.mix, seed)

    @property
    def digest(self) -> str:
        return sha256(repr(self.mix).encode()).hexdigest()


def _shape(mix: SyntheticMix, random: Random) -> PodShape:
    size = mix.devices.draw(random)
    devices = round(size) if size >= 1 else int(size > 0)
    milli = WHOLE_DEVICE if size >= 1 else max(1, round(size * WHOLE_DEVICE)) if size else 0
    cpu_milli = round(mix.cores.draw(random) * 1000 * max(devices, 1))
    is_constrained = mix.models and devices and random.random() < mix.constrained
    return PodShape(
        cpu_milli=cpu_milli,
        memory_mib=round(cpu_milli / 1000 * mix.memory.draw(random) * MIB_PER_GIB),
        devices=devices,
        milli=milli,
        models=(random.choices(mix.models, mix.model_weights)[0],) if is_constrained else (),
    )


# --- Distributions --------------------------------------------------------------------------------------------------
# Distributions in words: `4`, `0.5:3 1:5` (values with weights), `uniform(1, 8)`, `exponential(20)`,
# `lognormal(3600, 1.5)`.


_CALL: Final = re.compile(r"(uniform|exponential|lognormal)\s*\(([^()]*)\)")
_ARGUMENTS: Final = {"uniform": 2, "exponential": 1, "lognormal": 2}


class Distribution(Protocol):
    def draw(self, random: Random) -> float: ...


@dataclass(frozen=True, slots=True)
class Choice:
    """Some values, each with a weight."""

    values: tuple[float, ...]
    weights: tuple[float, ...]

    def draw(self, random: Random) -> float:
        return self.values[0] if len(self.values) == 1 else random.choices(self.values, self.weights)[0]


@dataclass(frozen=True, slots=True)
class Uniform:
    low: float
    high: float

    def draw(self, random: Random) -> float:
        return random.uniform(self.low, self.high)


@dataclass(frozen=True, slots=True)
class Exponential:
    mean: float

    def draw(self, random: Random) -> float:
        return random.expovariate(1 / self.mean) if self.mean else 0.0


@dataclass(frozen=True, slots=True)
class Lognormal:
    """By its median and the standard deviation of the logarithm."""

    median: float
    sigma: float

    def draw(self, random: Random) -> float:
        return random.lognormvariate(math.log(self.median), self.sigma)


def parse_distribution(text: str, name: str) -> Distribution:
    """The distribution that a text describes; `name` is for messages. Raises BadInput."""
    text = text.strip()
    if call := _CALL.fullmatch(text):
        return _called(call[1], [_number(each, name) for each in call[2].split(",")], name)
    if "(" in text:
        raise BadInput(f"{name}: {text!r}: known are {', '.join(f'{each}(…)' for each in _ARGUMENTS)}")
    parts = [part.partition(":") for part in text.split()]
    if not parts:
        raise BadInput(f"{name}: a distribution is required, such as 4, 1:3 2:1 or uniform(1, 8)")
    values = tuple(_number(value, name) for value, _, _ in parts)
    weights = tuple(_number(weight, name) if colon else 1.0 for _, colon, weight in parts)
    if not sum(weights):
        raise BadInput(f"{name}: {text!r}: all weights are 0")
    return Choice(values, weights)


def parse_names(text: str, name: str) -> tuple[tuple[str, ...], tuple[float, ...]]:
    """Names with weights, such as `a100:3 t4:1`. Raises BadInput."""
    parts = [part.partition(":") for part in text.split()]
    return tuple(each for each, _, _ in parts), tuple(
        _number(weight, name) if colon else 1.0 for _, colon, weight in parts
    )


def _called(kind: str, arguments: list[float], name: str) -> Distribution:
    if len(arguments) != _ARGUMENTS[kind]:
        raise BadInput(f"{name}: {kind} takes {_ARGUMENTS[kind]} numbers, not {len(arguments)}")
    if kind == "uniform":
        if arguments[0] > arguments[1]:
            raise BadInput(f"{name}: uniform({arguments[0]:g}, {arguments[1]:g}): the first number is the smaller one")
        return Uniform(*arguments)
    if kind == "exponential":
        return Exponential(*arguments)
    if not arguments[0]:
        raise BadInput(f"{name}: the median of a lognormal distribution is more than 0")
    return Lognormal(*arguments)


def _number(text: str, name: str) -> float:
    try:
        found = float(text)
    except ValueError:
        raise BadInput(f"{name}: expected a number, got {text.strip()!r}") from None
    if not math.isfinite(found) or found < 0:
        raise BadInput(f"{name}: expected a number of at least 0, got {text.strip()!r}")
    return found
