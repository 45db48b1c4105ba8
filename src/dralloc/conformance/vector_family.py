"""Runs recorded answers against our code: reads the lines, has a family compare each, and counts the verdicts.

A family covers the lines of one file (quantities, expressions, …). It is the `FAMILY` of a module that `FAMILIES`
lists. Where Kubernetes' answer is an accident that we do not reproduce, the line and the reason stand in
`known_differences.json`: it is reported as a known difference every time.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module, resources
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec

from dralloc.primitives.decoders import UNREADABLE
from dralloc.primitives.features import FeatureGates


@dataclass(frozen=True, slots=True)
class VectorOptions:
    gates: FeatureGates = field(default_factory=FeatureGates.defaults)
    # For families that connect to a server.
    server: str | None = None
    token: str | None = None
    kubeconfig: Path | None = None
    # The server's token file, for families that send requests of many users.
    token_file: Path | None = None


@dataclass(frozen=True, slots=True)
class VectorVerdict:
    """A line, and the differences between our answer and the recorded one; none if they agree."""

    line: str
    differences: tuple[str, ...] = ()


class Family(Protocol):
    """One kind of recorded answers."""

    def run(self, lines: Iterable[bytes], options: VectorOptions) -> Iterator[VectorVerdict]:
        """Yields one verdict for each line."""


class BadVectors(ValueError):
    """A file that does not hold recorded answers of the family."""


@dataclass(frozen=True, slots=True)
class LineFamily:
    """A family whose lines are independent of each other."""

    identify: Callable[[Mapping[str, Any]], str]
    compare: Callable[[Mapping[str, Any], VectorOptions], Iterable[str]]

    def run(self, lines: Iterable[bytes], options: VectorOptions) -> Iterator[VectorVerdict]:
        decoder = msgspec.json.Decoder(dict[str, Any])
        for number, text in enumerate(lines, start=1):
            try:
                line = decoder.decode(text)
                yield VectorVerdict(self.identify(line), tuple(self.compare(line, options)))
            except (*UNREADABLE, KeyError) as error:
                raise BadVectors(f"line {number}: {error}") from None


def read_lines(path: Path) -> list[bytes]:
    """Returns the lines of a file, which may be gzip-compressed."""
    content = path.read_bytes()
    if content[:2] == b"\x1f\x8b":
        try:
            content = gzip.decompress(content)
        except (OSError, EOFError, zlib.error) as error:
            raise BadVectors(f"not a gzip file: {error}") from None
    return [line for line in content.splitlines() if line.strip()]


@dataclass(slots=True)
class VectorTally:
    """Counts of the lines that agree, and the verdicts of the others."""

    known: Mapping[str, str]
    total: int = 0
    disagreements: list[VectorVerdict] = field(default_factory=list)
    known_differences: list[VectorVerdict] = field(default_factory=list)

    def count(self, verdict: VectorVerdict) -> None:
        self.total += 1
        if verdict.differences:
            (self.known_differences if verdict.line in self.known else self.disagreements).append(verdict)

    @property
    def agreed(self) -> int:
        return self.total - len(self.disagreements) - len(self.known_differences)


def known_differences(family: str) -> Mapping[str, str]:
    """Returns the lines of the family with an intended difference, with the reason."""
    text = resources.files("dralloc.conformance").joinpath("known_differences.json").read_bytes()
    return msgspec.json.decode(text, type=dict[str, dict[str, str]]).get(family, {})


# --- Family index ---------------------------------------------------------------------------------------------------
# The vector families by name. Each module has a `FAMILY` and is imported on first use.


FAMILIES: Final[Mapping[str, str]] = {
    "quantity": "dralloc.conformance.quantity",
    "cel": "dralloc.conformance.cel",
    "allocation": "dralloc.conformance.allocation",
    "api": "dralloc.conformance.api",
    "http": "dralloc.conformance.conversation",
    "access": "dralloc.conformance.access",
}


def load_family(name: str) -> Family:
    family: Family = import_module(FAMILIES[name]).FAMILY
    return family
