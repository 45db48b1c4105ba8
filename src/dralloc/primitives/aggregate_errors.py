"""Several errors as one text, in the form of Kubernetes' messages."""

from __future__ import annotations

from collections.abc import Iterable


def joined_errors(errors: Iterable[str]) -> str:
    """Each error once: the error itself, or `[one, two]`."""
    texts = list(dict.fromkeys(errors))
    return texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]" if texts else ""
