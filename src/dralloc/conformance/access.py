"""Who may do what: decisions of RBAC on recorded policies, and recorded requests of many users.

A line with `questions` is decided here, without a server. A line with `requests` is sent to a server.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec

from dralloc.conformance.access_over_http import AccessCase, run_cases
from dralloc.conformance.vector_family import BadVectors, VectorOptions, VectorVerdict


class AccessFamily:
    def run(self, lines: Iterable[bytes], options: VectorOptions) -> Iterator[VectorVerdict]:
        cases: list[AccessCase] = []
        for number, text in enumerate(lines, start=1):
            try:
                line: dict[str, Any] = msgspec.json.decode(text, type=dict[str, Any])
                cases.append(msgspec.convert(line, AccessCase))
            except msgspec.MsgspecError as error:
                raise BadVectors(f"line {number}: {error}") from None
        if cases:
            yield from run_cases(cases, options)


FAMILY: Final = AccessFamily()
