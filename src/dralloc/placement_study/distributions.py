"""Distributions in words: `4`, `0.5:3 1:5` (values with weights), `uniform(1, 8)`, `exponential(20)`, `lognormal(3600, 1.5)`."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from random import Random
from typing import Final, Protocol

from dralloc.placement_study.csv_rows import BadInput

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
