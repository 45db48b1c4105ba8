"""Exact quantities, as Kubernetes reads, prints, compares and adds them."""

from __future__ import annotations

from typing import ClassVar


class Quantity:
    """An exact amount."""

    ZERO: ClassVar[Quantity]


Quantity.ZERO = Quantity()
