"""Records the commit in wheels and source archives. Hatchling calls this for every build."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CommitHook(BuildHookInterface[Any]):
    """Adds the file that `dralloc --version` reads."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        root = Path(self.root)
        sys.path.insert(0, str(root / "src"))
        from dralloc.cli.product_version import RECORD, commit_of_clone, recorded_commit

        package = Path("src", "dralloc")
        # An unpacked source archive has the record of its own build; an editable installation asks git.
        commit = recorded_commit(root / package) or commit_of_clone(root)
        if commit and version != "editable":
            self.directory_of_record = tempfile.TemporaryDirectory()
            record = Path(self.directory_of_record.name) / RECORD
            record.write_text(f"{commit}\n")
            place = package if self.target_name == "sdist" else package.relative_to("src")
            build_data["force_include"][str(record)] = str(place / RECORD)
