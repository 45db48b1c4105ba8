"""docs/parity.md names every behaviour that runs here, and every test that its table names exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path

HERE = Path(__file__).parent
PARITY = (HERE.parents[1] / "docs" / "parity.md").read_text()


def test_the_table_of_behaviours_lists_these_tests() -> None:
    listed = set(re.findall(r"`(test_\w+\.py::test_\w+)`", PARITY))
    here = {f"{path.name}::{name}" for path in HERE.glob("test_*.py") for name in functions_in(path)}
    assert listed == {test for test in here if not test.startswith(Path(__file__).name)}


def test_what_the_table_names_elsewhere_exists() -> None:
    _, _, table = PARITY.partition("| id | behaviour | tests |")
    elsewhere = re.findall(r"`(\w+/test_\w+\.py)::(test_\w+)`", table)
    assert elsewhere
    for path, name in elsewhere:
        assert name in functions_in(HERE.parent / path), f"{path} has no {name}"


def functions_in(path: Path) -> list[str]:
    functions = (
        node for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )
    return [function.name for function in functions if function.name.startswith("test_")]
