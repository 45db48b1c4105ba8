"""All functions that expressions can call, by name."""

from __future__ import annotations

from typing import Final

from dralloc.cel.library import (
    addresses,
    conversions,
    lists,
    maps,
    named_formats,
    optionals,
    quantities,
    regex,
    semvers,
    sets,
    standard,
    strings,
    text_format,
    time,
    urls,
)
from dralloc.cel.library.functions import Function, gather

FUNCTIONS: Final[dict[str, Function]] = gather(
    [
        module.LIBRARY
        for module in (
            standard,
            conversions,
            time,
            regex,
            strings,
            text_format,
            lists,
            maps,
            sets,
            optionals,
            quantities,
            semvers,
            addresses,
            urls,
            named_formats,
        )
    ]
)
