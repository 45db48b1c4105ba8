"""The snippets in the guide for driver authors; `tests/docs` runs the page."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from dralloc.driver.settings import CDI_DIR, PLUGINS_DIR, REGISTRY_DIR

GUIDE = (Path(__file__).parents[2] / "docs" / "writing-a-driver.md").read_text()
SNIPPETS = dict(re.findall(r"```python file=(\S+)\n(.*?)```", GUIDE, re.S))


@pytest.fixture
def written(tmp_path: Path) -> Path:
    for name, text in SNIPPETS.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def test_every_snippet_is_a_file_that_can_be_run() -> None:
    assert len(re.findall(r"```python", GUIDE)) == len(SNIPPETS)


def test_the_first_driver_has_at_most_thirty_lines() -> None:
    assert len(SNIPPETS["driver.py"].strip().splitlines()) <= 30


@pytest.mark.slow
def test_every_snippet_runs(written: Path) -> None:
    modules = [name.removesuffix(".py") for name in SNIPPETS]
    program = "; ".join(f"import {module}" for module in modules)
    program += "; from dralloc.driver.slices import check_pools; check_pools([devices.pool], 'gpu.example.com', 'n')"
    program += "; health.WatchedDriver(); test_driver.test_a_share_of_memory()"
    subprocess.run([sys.executable, "-W", "error", "-c", program], cwd=written, check=True)


def test_the_table_of_settings_says_the_defaults() -> None:
    settings = {name: default.strip() for name, default in re.findall(r"^\| `([A-Z_]+)` \| ([^|]*)\|", GUIDE, re.M)}
    assert settings["DRA_PLUGINS_DIR"] == f"`{PLUGINS_DIR}`"
    assert settings["DRA_REGISTRY_DIR"] == f"`{REGISTRY_DIR}`"
    assert settings["DRA_CDI_DIR"] == f"`{CDI_DIR}`"
    source = (Path(__file__).parents[2] / "src" / "dralloc" / "driver" / "settings.py").read_text()
    assert set(re.findall(r'"([A-Z]+(?:_[A-Z]+)*)"', source)) == set(settings)
