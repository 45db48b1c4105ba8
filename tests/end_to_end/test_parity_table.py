"""docs/parity.md lists every test of this folder, and every other test that it names exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path

HERE = Path(__file__).parent
PARITY = (HERE.parents[1] / "docs" / "parity.md").read_text()


def test_the_table_lists_the_tests_of_this_folder() -> None:
    listed = set(re.findall(r"`(test_\w+\.py::test_\w+)`", PARITY))
    here = {f"{path.name}::{name}" for path in HERE.glob("test_*.py") for name in functions_in(path)}
    assert listed == {test for test in here if not test.startswith(Path(__file__).name)}


def test_tests_of_other_folders_exist() -> None:
    elsewhere = re.findall(r"`((?:\w+/)+test_\w+\.py)::(test_\w+)`", PARITY)
    assert elsewhere
    for path, name in elsewhere:
        assert name in functions_in(HERE.parent / path), f"{path} has no {name}"


def functions_in(path: Path) -> list[str]:
    functions = (
        node for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )
    return [function.name for function in functions if function.name.startswith("test_")]
