"""What axe-core, the engine that browsers' accessibility checkers use, reports about a page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest

from tests.support.browser import Page

AXE: Final = Path(__file__).parents[1] / "real_clients" / "node" / "node_modules" / "axe-core" / "axe.min.js"
# All rules for WCAG 2.0 to 2.2 up to AA, and the best practices.
TAGS: Final = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice")

_LOOK: Final = """axe.run(document, {
    runOnly: { type: 'tag', values: %s }, resultTypes: ['violations'],
}).then(({ violations }) => JSON.stringify(violations.map(({ id, help, nodes }) => ({
    id, help, where: nodes.map(({ html, failureSummary }) => `${html.slice(0, 160)} ${failureSummary}`),
}))))"""


async def accessibility_violations(page: Page) -> list[dict[str, Any]]:
    """Each rule that the page violates as it is now, with the elements."""
    if not AXE.exists():
        pytest.skip("needs axe-core: scripts/install-system-tools installs it")
    if not await page.run("typeof axe === 'object'"):
        await page.run(AXE.read_text())
    found: list[dict[str, Any]] = json.loads(await page.run(_LOOK % json.dumps(TAGS)))
    return found
