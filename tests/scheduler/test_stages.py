"""Stages meet only in the contract: each imports the state and `contract`, and no other stage."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import dralloc.scheduler

ROOT = Path(dralloc.scheduler.__file__).parent
# The stages that each folder may import besides itself.
ALLOWED = {
    "state": set[str](),
    "ownership": {"state"},
    "queue": {"state"},
    "decide": {"state", "contract"},
    "bind": {"state", "contract"},
}


@pytest.mark.parametrize("stage", ALLOWED)
def test_a_stage_imports_no_other_stage(stage: str) -> None:
    for path in (ROOT / stage).glob("*.py"):
        imported = {
            node.module.split(".")[2]
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("dralloc.scheduler.")
        }
        assert imported <= ALLOWED[stage] | {stage}, f"{path.name} imports another stage"
