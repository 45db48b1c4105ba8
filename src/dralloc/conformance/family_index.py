"""The vector families by name. Each module has a `FAMILY` and is imported on first use."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Final

from dralloc.conformance.vector_family import Family

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
