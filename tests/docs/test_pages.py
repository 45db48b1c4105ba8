"""Every page is run from top to bottom: its commands print what the page shows."""

from __future__ import annotations

import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.markdown import Block, blocks_of, pages_of
from tests.support.page_runner import PageRunner, going_on
from tests.support.warm_command import warm_command

ROOT = Path(__file__).parents[2]
PAGES = pages_of(ROOT)
# Copied because pages may change them; the rest of the project is read only.
COPIED = ("examples", "deploy")
# Programs of the system.
SYSTEM_PROGRAMS = ("kubectl",)
# Free ports, because other tests run at the same time.
FREE_PORT = {"dralloc up": "--port 0", "dralloc apiserver": "--port 0"}


def is_run(block: Block) -> bool:
    runs = block.language in ("console", "python", "yaml") or block.file is not None or block.has("output")
    return runs and block.not_run is None


def runs_something(page: Path) -> bool:
    return any(map(is_run, blocks_of(page.read_text())))


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """The project as after a clone."""
    directory = tmp_path / "dralloc"
    directory.mkdir()
    for entry in ROOT.iterdir():
        if entry.name in COPIED:
            shutil.copytree(entry, directory / entry.name)
        elif not entry.name.startswith("."):
            (directory / entry.name).symlink_to(entry)
    (directory / ".venv").symlink_to(sys.prefix)
    return directory


@pytest.fixture(scope="module")
def running_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The kubeconfig of a cluster of `dralloc up`, which the examples need."""
    directory = tmp_path_factory.mktemp("cluster")
    kubeconfig = directory / "kubeconfig"
    script = f"exec {sys.executable} -m dralloc up --ephemeral --port 0 --no-nodes --feature-gates GenericWorkload=true --kubeconfig {kubeconfig}"
    with going_on(script, directory, {"HOME": str(directory), "PYTHONUNBUFFERED": "1"}) as output:
        assert output.wait_for("dralloc is up…\n…"), output.text
        yield kubeconfig


@pytest.fixture(scope="module")
def programs() -> Iterator[Path]:
    with (
        tempfile.TemporaryDirectory(prefix="warm-") as directory,
        warm_command("dralloc", "dralloc.cli.main:main", "dralloc", Path(directory)) as found,
    ):
        yield found


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("page", [page for page in PAGES if runs_something(page)], ids=name_of)
def test_a_page_runs(page: Path, clone: Path, programs: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    for program in SYSTEM_PROGRAMS:
        if f"$ {program} " in page.read_text() and shutil.which(program) is None:
            pytest.skip(f"{program} is not installed: `make system`")
    environment = {}
    if page.is_relative_to(ROOT / "examples") and "$ dralloc up" not in page.read_text():
        environment["KUBECONFIG"] = str(request.getfixturevalue("running_cluster"))
    with PageRunner(clone, tmp_path / "home", environment, programs, FREE_PORT) as runner:
        runner.read(page.read_text())


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_what_a_page_shows_is_run_or_says_why_not(page: Path) -> None:
    blocks = list(blocks_of(page.read_text()))
    for block in blocks:
        where = f"{name_of(page)}, line {block.line}"
        assert block.language, f"{where}: a block has a language; `text` is for what is not run"
        assert block.language not in ("sh", "bash", "shell", "shell-session"), f"{where}: commands are `console` blocks"
        assert block.not_run is None or len(block.not_run.split()) > 1, f"{where}: say why it is not run"
        if block.language == "console":
            assert list(block.commands()), f"{where}: a console without a command; they begin with `$ `"
        elif block.language == "text":
            assert not re.search(r"^\$ ", block.text, re.M), f"{where}: commands are `console` blocks"
        if block.file is not None and block.language != "python":
            used = [other for other in blocks if other.language in ("console", "python") and block.file in other.text]
            assert used, f"{where}: nothing uses the file {block.file}"
