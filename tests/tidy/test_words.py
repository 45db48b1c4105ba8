"""Comments, docstrings and messages use plain technical English: these words have a better one each."""

from __future__ import annotations

import re

from tests.support.source_tree import SOURCE, modules

BETTER = {
    "whoever": "name the client, user or component",
    "somebody": "name the client, user or component",
    "anybody": "name the client, user or component",
    "everybody": "all clients, users or components",
    "nobody": "no client, user or component",
    "time and again": "repeatedly",
    "pretended": "simulated",
    "pretends": "simulates",
    "goes round": "say what happens",
    "come to rest": "idle",
    "as like": "say what has no limit",
    "unless told": "default: …",
    "to be had": "available",
    "a fault of dralloc": "internal error",
}
PATTERN = re.compile(rf"\b({'|'.join(BETTER)})\b", re.IGNORECASE)


def test_words() -> None:
    faults = [
        f"{path.relative_to(SOURCE)}:{number}: instead of {found[0]!r}: {BETTER[found[0].lower()]}"
        for path in modules().values()
        for number, line in enumerate(path.read_text().splitlines(), start=1)
        if (found := PATTERN.search(line))
    ]
    assert not faults
