"""The static files of the page: nothing is loaded from other servers, and no text becomes markup."""

from __future__ import annotations

import re
from hashlib import sha256
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
STATIC = ROOT / "src" / "dralloc" / "web" / "static"
VENDORED = STATIC / "vendor" / "htm-preact.mjs"
OURS = sorted(path for path in STATIC.rglob("*.*") if "vendor" not in path.parts)
MAKES_MARKUP = re.compile(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|srcdoc")


@pytest.mark.parametrize("path", OURS, ids=lambda path: path.relative_to(STATIC).as_posix())
def test_a_file_loads_nothing_from_other_servers(path: Path) -> None:
    text = path.read_text()
    addresses = set(re.findall(r"https?://[^\s\"'`)]*", text)) - {"http://www.w3.org/2000/svg"}
    assert not addresses
    assert not MAKES_MARKUP.search(text)
    for imported in re.findall(r"^(?:import|export) .* from \"([^\"]+)\";$", text, re.MULTILINE):
        assert (path.parent / imported).is_file(), imported


def test_the_vendored_library_has_its_checksum() -> None:
    script = (ROOT / "scripts" / "refresh-vendored-js").read_text()
    pinned = re.search(r"^module_sha256=([0-9a-f]{64})$", script, re.MULTILINE)
    assert pinned is not None
    assert sha256(VENDORED.read_bytes()).hexdigest() == pinned[1]
