"""A badge with the result: an SVG picture, and the JSON that badge services read."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any, Final

from dralloc.driver_kit.scores import FeatureScore, Verdict, overall_verdict

LABEL: Final = "DRA driver kit"
# Dark enough for white text.
COLOURS: Final = {
    Verdict.PASSED: ("brightgreen", "#2a6f2a"),
    Verdict.INCOMPLETE: ("yellowgreen", "#5f6b00"),
    Verdict.FAILED: ("red", "#b02a1e"),
    Verdict.NOT_TESTED: ("lightgrey", "#555555"),
    Verdict.NOT_APPLICABLE: ("lightgrey", "#555555"),
}
CHARACTER_WIDTH: Final = 6.6
PADDING: Final = 12


def badge_text(scores: Sequence[FeatureScore]) -> str:
    """Passed checks of those that apply, and the features that passed."""
    passed, applicable = sum(each.passed for each in scores), sum(each.applicable for each in scores)
    features = [each.feature.value for each in scores if each.verdict in (Verdict.PASSED, Verdict.INCOMPLETE)]
    return " · ".join([f"{passed}/{applicable}", *features])


def badge_json(scores: Sequence[FeatureScore]) -> dict[str, Any]:
    """What shields.io and similar services show as a badge."""
    colour = COLOURS[overall_verdict(scores)][0]
    return {"schemaVersion": 1, "label": LABEL, "message": badge_text(scores), "color": colour}


def badge_svg(scores: Sequence[FeatureScore]) -> str:
    text, colour = badge_text(scores), COLOURS[overall_verdict(scores)][1]
    left, right = _width(LABEL), _width(text)
    title = escape(f"{LABEL}: {text}")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + right}" height="20" role="img" aria-label="{title}">'
        f"<title>{title}</title>"
        f'<rect width="{left}" height="20" fill="#444444"/><rect x="{left}" width="{right}" height="20" fill="{colour}"/>'
        '<g fill="#ffffff" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11" text-anchor="middle">'
        f'<text x="{left / 2:g}" y="14">{escape(LABEL)}</text><text x="{left + right / 2:g}" y="14">{escape(text)}</text></g></svg>\n'
    )


def _width(text: str) -> int:
    return round(len(text) * CHARACTER_WIDTH) + PADDING
