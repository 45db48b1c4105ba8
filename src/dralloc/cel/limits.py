"""Kubernetes' limits on expressions; a module of its own, because validation needs them without the language."""

from __future__ import annotations

from typing import Final

LENGTH_MAX_BYTES: Final = 10 * 1024
COST_MAX: Final = 1_000_000
