"""Links, pictures, and what pages name exist: packages, folders of tests, dependencies."""

from __future__ import annotations

import re
import subprocess
import tomllib
from functools import cache
from pathlib import Path

import pytest

from tests.support.markdown import prose_of

ROOT = Path(__file__).parents[2]
PROMISES = (
    *(f"C{number}" for number in range(1, 17)),
    *(f"P{number}" for number in range(1, 10)),
    *(f"R{number}" for number in range(1, 9)),
    *(f"B{number}" for number in range(1, 7)),
    "W1",
    "W2",
    "W3",
    "W4",
    "W5",
    "W6",
    "W7",
    "D1",
    "D2",
    "N1",
    "N2",
    "K1",
    *(f"F{number}" for number in range(1, 9)),
)
# A promise that is not kept says so in bold.
NOT_KEPT = re.compile(r"\*\*(partly|planned)\*\*")


@cache
def tracked_files() -> tuple[Path, ...]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return tuple(path for line in listed.stdout.splitlines() if (path := ROOT / line).is_file())


def documents() -> list[Path]:
    return [path for path in tracked_files() if path.suffix == ".md"]


def parity_rows() -> dict[str, tuple[str, str, str]]:
    rows: dict[str, tuple[str, str, str]] = {}
    for line in (ROOT / "docs" / "quality" / "parity.md").read_text().splitlines():
        if match := re.match(r"\| ([CPRBWDNKF]\d+) \|(.*)\|(.*)\|(.*)\|$", line):
            assert match[1] not in rows, f"{match[1]} stands twice"
            rows[match[1]] = (match[2].strip(), match[3].strip(), match[4].strip())
    return rows


@cache
def anchors_of(path: Path) -> set[str]:
    """The anchors of the page's headings."""
    headings = re.findall(r"^#+ +(.*)$", prose_of(path.read_text()), re.M)
    return {
        re.sub(r"[^\w\- ]", "", re.sub(r"\[(.*?)\]\(.*?\)", r"\1", text).lower()).replace(" ", "-") for text in headings
    }


def test_links_lead_somewhere() -> None:
    faults = [
        f"{path.relative_to(ROOT)} links to {target}#{anchor}"
        for path in documents()
        for target, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([^)\s]+))?[^)]*\)", prose_of(path.read_text()))
        if "://" not in target and not target.startswith("mailto:")
        if not leads_somewhere(path.parent / target if target else path, anchor)
    ]
    assert not faults


def leads_somewhere(page: Path, anchor: str) -> bool:
    return page.exists() and (not anchor or anchor in anchors_of(page))


def test_pictures_exist() -> None:
    faults = [
        f"{path.relative_to(ROOT)} shows {target}"
        for path in documents()
        for target in re.findall(r'(?:src|srcset)="([^"]+)"', prose_of(path.read_text()))
        if not (path.parent / target).is_file()
    ]
    assert not faults


def test_parity_lists_every_promise_once() -> None:
    assert sorted(parity_rows()) == sorted(PROMISES)


@pytest.mark.parametrize("promise", PROMISES)
def test_parity_names_packages_and_folders_of_tests(promise: str) -> None:
    what, packages, tests = parity_rows()[promise]
    for package in re.findall(r"`([^`]+)`", packages):
        assert (ROOT / "src" / "dralloc" / package).exists(), f"{promise}: no package {package}"
    folders = re.findall(r"`([^`]+)`", tests)
    assert folders or NOT_KEPT.search(what), f"{promise} is called kept and names no tests"
    for folder in folders:
        assert (ROOT / "tests" / folder).exists(), f"{promise}: no tests in {folder}"


def test_every_dependency_has_a_reason() -> None:
    table = (ROOT / "CONTRIBUTING.md").read_text().split("## Dependencies", 1)[1]
    explained = {name.lower() for row in re.findall(r"^\| ([^|]+) \|", table, re.M) for name in row.split(", ")}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    stated = [project["build-system"]["requires"], project["project"]["dependencies"]]
    stated += [*project["project"]["optional-dependencies"].values(), *project["dependency-groups"].values()]
    names = {re.split(r"[^\w.-]", each)[0].lower() for group in stated for each in group if isinstance(each, str)}
    assert names <= explained, "a dependency needs a line in CONTRIBUTING.md"


MACHINE = re.compile("/work/|/root/|pypi.org|pythonhosted|registry.npmjs|deb.debian.org")
UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX|NotImplementedError)\b")


def test_files_name_no_machine_or_registry() -> None:
    faults = [
        f"{path.relative_to(ROOT)} names {found[0]}"
        for path in tracked_files()
        if path != Path(__file__) and path.suffix not in (".gz", ".png")
        if (found := MACHINE.search(path.read_text(errors="replace")))
    ]
    assert not faults


def test_nothing_is_left_unfinished() -> None:
    faults = [
        f"{path.relative_to(ROOT)}: {found[0]}"
        for path in tracked_files()
        if path != Path(__file__) and path.suffix == ".py"
        if (found := UNFINISHED.search(path.read_text()))
    ]
    assert not faults
