"""The reader of Markdown pages, which all other tests of documents use."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.markdown import Command, blocks_of, prose_of, shows
from tests.support.page_runner import PageRunner

PAGE = """\
# A page

```console fails
$ one \\
    --more
out
…
$ two
```

- a list

  ```python file=a.py
  x = 1
  ```

```console not-run: needs a cluster
$ three
```
"""


def test_blocks_are_found_with_their_words() -> None:
    console, python, cluster = blocks_of(PAGE)
    assert (console.language, console.line, console.has("fails"), console.not_run) == ("console", 3, True, None)
    assert list(console.commands()) == [Command("one \\\n    --more", "out\n…"), Command("two", None)]
    assert (python.file, python.text) == ("a.py", "x = 1\n")
    assert (cluster.not_run, cluster.has("needs")) == ("needs a cluster", False)
    assert "one" not in prose_of(PAGE)
    assert "- a list" in prose_of(PAGE)


@pytest.mark.parametrize(
    ("shown", "printed", "want"),
    [
        pytest.param("a\nb", "a\nb\n", True, id="the same"),
        pytest.param("a\nb", "a\nc\n", False, id="another line"),
        pytest.param("a", "a\nb\n", False, id="more than shown"),
        pytest.param("a\n…", "a\nb\nc\n", True, id="lines left out"),
        pytest.param("a\n...\nc", "a\nc\n", True, id="nothing left out"),
        pytest.param("a … c", "a b c\n", True, id="words left out"),
        pytest.param("a … c", "a b\nc\n", False, id="words are of one line"),
        pytest.param("a.c", "abc\n", False, id="a dot is a dot"),
        pytest.param("a  b", "a  b   \n", True, id="blanks at the end"),
        pytest.param("a…  b", "abcdef   b\n", True, id="a column that is wider"),
        pytest.param("a b", "a  b\n", False, id="a blank is a blank"),
    ],
)
def test_shown_and_printed(shown: str, printed: str, want: bool) -> None:
    assert shows(shown, printed) is want


def test_a_running_program_must_only_begin_as_shown() -> None:
    assert shows("a", "a\nb\n", is_beginning=True)
    assert not shows("a\nc", "a\nb\n", is_beginning=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    "page",
    [
        pytest.param("```console\n$ mkdir x && cd x\n$ export Y=1\n$ echo $(basename $PWD) $Y\nx 1\n```", id="a shell"),
        pytest.param("```console fails\n$ false\n```", id="failure"),
        pytest.param("```console eventually\n$ echo x >> f; cat f\nx\nx\n```", id="eventually"),
        pytest.param("```console background\n$ echo ready; sleep 600\nready\n```", id="background"),
        pytest.param(
            "```console background\n$ sleep 600\n```\n```console\n$ ^C  # the end\n```",
            id="background, ended by the page",
        ),
        pytest.param("```python\nprint(1)\n```\n```text output\n1\n```", id="program"),
        pytest.param(
            "```python file=m.py\nx = 1\n```\n```python\nimport m\nprint(m.x)\n```\n```text output\n1\n```", id="file"
        ),
    ],
)
def test_correct_pages(page: str, tmp_path: Path) -> None:
    with PageRunner(tmp_path, tmp_path / "home") as runner:
        runner.read(page)


@pytest.mark.slow
@pytest.mark.parametrize(
    "page",
    [
        pytest.param("```console\n$ echo a\nb\n```", id="another output"),
        pytest.param("```console\n$ false\n```", id="unexpected failure"),
        pytest.param("```console fails\n$ true\n```", id="unexpected success"),
        pytest.param("```console fails\n$ (exit 2)\n```", id="a fault is not a no"),
        pytest.param("```console background\n$ true\nready\n```", id="ends at once"),
        pytest.param("```python\nraise SystemExit(1)\n```", id="program fails"),
        pytest.param("```python\nprint(1)\n```\n```text output\n2\n```", id="program prints something else"),
        pytest.param("```python file=broken.py\nx = \n```", id="file that is no program"),
        pytest.param("```yaml\nkind: ResourceClaim\n```", id="manifest that is refused"),
    ],
)
def test_wrong_pages(page: str, tmp_path: Path) -> None:
    with (
        pytest.raises(AssertionError, match=r"^(line \d+:|ended by itself)"),
        PageRunner(tmp_path, tmp_path / "home") as runner,
    ):
        runner.read(page)
