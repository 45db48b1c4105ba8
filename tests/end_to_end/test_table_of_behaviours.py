"""docs/behaviours.md names every behaviour that runs here, and nothing else."""

from __future__ import annotations

import ast
import re
from pathlib import Path

HERE = Path(__file__).parent
TABLE = HERE.parents[1] / "docs" / "behaviours.md"


def test_the_table_of_behaviours_lists_these_tests() -> None:
    listed = set(re.findall(r"`(test_\w+\.py::test_\w+)`", TABLE.read_text()))
    assert listed == {f"{path.name}::{name}" for path in HERE.glob("test_*.py") for name in functions_in(path)} - {
        own_name()
    }


def functions_in(path: Path) -> list[str]:
    functions = (
        node for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )
    return [function.name for function in functions if function.name.startswith("test_")]


def own_name() -> str:
    return f"{Path(__file__).name}::{test_the_table_of_behaviours_lists_these_tests.__name__}"
