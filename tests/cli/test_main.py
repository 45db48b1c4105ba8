"""The command itself: version, help, completion, colours, progress, and refusals that say what to do."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.main import get_command
from typer.testing import CliRunner, Result

from dralloc import __version__
from dralloc.cli.command_table import COMMANDS
from dralloc.cli.main import app, is_example
from dralloc.cli.progress import progress
from dralloc.server.identity.kubeconfig import write_kubeconfig
from tests.support.child_process import child_process

CASES = Path(__file__).parents[1] / "cases" / "explain"
VECTORS = Path(__file__).parents[1] / "vectors"


def run(*arguments: str, **options: Any) -> Result:
    return CliRunner().invoke(app, list(arguments), **options)


def test_version() -> None:
    result = run("--version")
    assert result.exit_code == 0
    assert re.fullmatch(rf"dralloc {re.escape(__version__)} \(commit [0-9a-f]{{12}}(-dirty)?\)\n", result.stdout)


@pytest.mark.parametrize(
    "arguments", [["nonsense"], ["validate"], ["convert", "-f", "x", "--to", "v2"], ["validate", "--nonsense", "x"]]
)
def test_wrong_use_ends_with_two(arguments: list[str]) -> None:
    assert run(*arguments).exit_code == 2


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["apply", "my claim.yaml", "--dry-run"], "Did you mean: dralloc apply -f 'my claim.yaml' --dry-run"),
        (["convert", "old.yaml", "--to", "v1"], "Did you mean: dralloc convert -f old.yaml --to v1"),
        (["describe", "pod", "train-0"], "kubectl describe works with the same kubeconfig"),
        (["aply"], "Did you mean 'apply'?"),
        (["new", "fpga.acme.test"], "Did you mean: dralloc new driver fpga.acme.test"),
        (["version"], "Did you mean: dralloc --version"),
        (["explain", "pod/train-0"], "Did you mean: dralloc explain pod train-0"),
        (["explain", "resourceclaim/c", "-n", "ml"], "Did you mean: dralloc explain claim c"),
    ],
    ids=["apply", "convert", "kubectl", "typing error", "new", "version", "pod/name", "claim/name"],
)
def test_wrong_use_is_told_what_was_meant(arguments: list[str], says: str) -> None:
    result = run(*arguments, env={"COLUMNS": "250"})
    assert result.exit_code == 2
    assert says in result.stderr


def leaves(name: str, command: Any) -> dict[str, Any]:
    inner = getattr(command, "commands", None)
    if inner is None:
        return {name: command}
    return {path: leaf for each in inner for path, leaf in leaves(f"{name} {each}", inner[each]).items()}


ALL = {path: leaf for name in COMMANDS for path, leaf in leaves(name, get_command(app).commands[name]).items()}  # type: ignore[attr-defined]


# The output of `record` and `dump` is a file.
WITH_OUTPUT = [
    path for path in ALL if path not in ("record", "dump") and "output" in {each.name for each in ALL[path].params}
]


@pytest.mark.parametrize("path", ["top", "bench", *ALL])
def test_every_help_teaches_by_example(path: str) -> None:
    command = ALL.get(path) or get_command(app).commands[path]  # type: ignore[attr-defined]
    assert any(map(is_example, command.help.split("\n\n")))
    told = run(*path.split(), "--help", env={"COLUMNS": "250"}).stdout
    assert f"dralloc {path}" in told
    for parameter in command.params:
        assert getattr(parameter, "help", None), f"{path} {parameter.name} is not explained"


@pytest.mark.parametrize("path", ["allocate", "defrag", "drain", "dump", "explain", "fit", "plan", "top devices"])
def test_what_if_commands_answer_from_files(path: str) -> None:
    assert "-f" in {option for each in ALL[path].params for option in each.opts}


@pytest.mark.parametrize("path", WITH_OUTPUT)
def test_answers_come_in_the_same_forms_everywhere(path: str) -> None:
    told = run(*path.split(), "--help", env={"COLUMNS": "250"}).stdout
    # What is converted is there to be stored.
    assert ("<yaml|json>" if path == "convert" else "table, wide, json") in told


@pytest.mark.parametrize("path", ["", "top", "bench", *ALL])
def test_a_help_can_be_read_and_copied_from_on_a_narrow_terminal(path: str) -> None:
    told = run(*path.split(), "--help", env={"COLUMNS": "80"}).stdout
    assert "…" not in told
    command = ALL[path] if path in ALL else get_command(app).commands[path] if path else get_command(app)  # type: ignore[attr-defined]
    for paragraph in (command.help or "").split("\n\n"):
        if is_example(paragraph):
            assert {line.strip() for line in paragraph.splitlines()} <= {line.strip() for line in told.splitlines()}


# --- The shell ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("dralloc ex", ["explain"]),
        ("dralloc top devices -o ", ["table", "wide", "json", "yaml"]),
        ("dralloc node --profile ", ["cpu", "gpu", "mig", "nic", "tpu"]),
        ("dralloc conformance quan", ["quantity"]),
        ("dralloc get resourcecl", ["resourceclaims", "resourceclaimtemplates"]),
        ("dralloc get pods,resourceq", ["pods,resourcequotas"]),
        ("dralloc plan --shape m", ["mig"]),
        ("dralloc bench throughput sh", ["shared"]),
        ("dralloc driver-test --only re", ["registration", "restart"]),
        ("dralloc driver-test --list --only unprepare.un", ["unprepare.unknown"]),
        ("dralloc driver-test --only prep", ["prepare"]),
        ("dralloc doctor --check leaked", ["leaked-claim"]),
    ],
)
def test_the_shell_completes(line: str, wanted: list[str]) -> None:
    words = line.split(" ")
    environment = {"_DRALLOC_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
    told = CliRunner().invoke(app, [], env=environment, prog_name="dralloc")
    assert told.stdout.split() == wanted


NAMES_OF_A_CLUSTER = {"--context", "--namespace", "--node", "--without-node"}


def test_options_that_name_something_of_a_cluster_complete_it() -> None:
    """tests/install/test_completion.py asks real shells."""
    silent = [
        f"{path} {parameter.opts[0]}"
        for path, command in ALL.items()
        # The node of a driver under test is an invented one.
        if path != "driver-test" and "kubeconfig" in {each.name for each in command.params}
        for parameter in command.params
        if NAMES_OF_A_CLUSTER & {*parameter.opts} and parameter._custom_shell_complete is None
    ]
    assert silent == []


@pytest.mark.parametrize("option", ["--install-completion", "--show-completion"])
@pytest.mark.parametrize("words", [["tcsh"], ["=tcsh"], ["bash", "zsh"], ["bash", "--help"], ["pwsh"]])
def test_shells_without_completion_are_refused_and_nothing_is_installed(
    option: str, words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    arguments = [option + words[0]] if words[0].startswith("=") else [option, *words]
    result = run(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert all(shell in result.stderr for shell in ("bash", "zsh", "fish"))
    assert list(tmp_path.iterdir()) == []


def test_completion_is_for_the_shell_that_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert "#compdef dralloc" in run("--show-completion", "zsh").stdout
    assert run("--install-completion=fish").exit_code == 0
    assert [file.name for file in tmp_path.rglob("*") if file.is_file()] == ["dralloc.fish"]


# --- Colours and progress -------------------------------------------------------------------------------------------------


def test_colours_are_for_terminals_whose_user_wants_them() -> None:
    arguments = ("explain", "claim", "ml/big", "-f", str(CASES))
    assert "\x1b[" in run(*arguments, color=True).stdout
    assert "\x1b[" not in run(*arguments).stdout
    assert "\x1b[" not in run(*arguments, color=True, env={"NO_COLOR": "1"}).stdout


def test_no_bar_where_nobody_looks(capfd: pytest.CaptureFixture[str]) -> None:
    assert list(progress(range(3), total=3, what="counting")) == [0, 1, 2]
    assert capfd.readouterr() == ("", "")


@pytest.mark.slow
def test_a_bar_is_on_standard_error_where_somebody_does() -> None:
    terminal, inner = pty.openpty()
    command = [sys.executable, "-m", "dralloc", "conformance", "quantity", str(VECTORS / "quantity.jsonl.gz")]
    environment = os.environ | {"TERM": "xterm-256color"}
    with child_process(command, stdout=subprocess.PIPE, stderr=inner, env=environment, text=True) as process:
        os.close(inner)
        drawn = b""
        # Read to the end, or the command blocks on a full terminal. The end of a terminal is reported as an error.
        with suppress(OSError):
            while piece := os.read(terminal, 65536):
                drawn += piece
        told = process.communicate()[0]
    os.close(terminal)
    assert b"quantity.jsonl.gz" in drawn
    assert told.splitlines()[-1].endswith("agree")
    assert "\x1b" not in told


@pytest.mark.slow
def test_who_waits_long_is_told_for_what(tmp_path: Path) -> None:
    terminal, inner = pty.openpty()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        write_kubeconfig(tmp_path / "config", server=address, authority_pem=None, token="t")
        command = [sys.executable, "-m", "dralloc", "top", "devices", "--kubeconfig", str(tmp_path / "config")]
        with child_process(command, stdout=subprocess.PIPE, stderr=inner) as process:
            os.close(inner)
            told = ""
            while f"reading the cluster {address}" not in told:
                told += os.read(terminal, 65536).decode(errors="replace")
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=60) == 130
    os.close(terminal)


# --- Reports for machines -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "key"),
    [
        (("conformance", "quantity", str(VECTORS / "quantity.jsonl.gz")), "agreed"),
        (("validate", str(CASES)), "objects"),
        (("cel", "device.driver == 'x'", "-f", str(CASES)), "counts"),
        (("explain", "claim", "ml/big", "-f", str(CASES)), "verdict"),
        (("top", "devices", "-f", str(CASES)), "pools"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_json_and_yaml_say_the_same(arguments: tuple[str, ...], key: str) -> None:
    as_json = json.loads(run(*arguments, "-o", "json").stdout)
    assert yaml.safe_load(run(*arguments, "-o", "yaml").stdout) == as_json
    assert key in as_json


@pytest.mark.slow
def test_measurements_for_people_and_machines() -> None:
    arguments = ("bench", "throughput", "shared", "--nodes", "3", "--pods", "6", "--in-process")
    assert run(*arguments).stdout.startswith("shared: ")
    told = json.loads(run(*arguments, "-o", "json").stdout)
    assert (told["nodes"], told["pods"], told["workloads"]["shared"]["podsPerSecond"] > 0) == (3, 6, True)


@pytest.mark.slow
def test_nothing_heavy_is_loaded_before_it_is_needed() -> None:
    code = (
        "import sys, dralloc.cli.main; print(sorted({'yaml', 'grpc', 'aiohttp', 'httptools', 'rich.console', 'asyncio',"
        " 'msgspec', 'importlib.metadata', 'dralloc.kube', 'dralloc.cel', 'dralloc.cli.explain'} & set(sys.modules)))"
    )
    finished = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert finished.stdout.strip() == "[]"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "unneeded"),
    [
        (["get", "pods"], {"multiprocessing", "rich.console", "dralloc.kube.registry", "dralloc.cel"}),
        (["explain", "claim", "ml/big", "-f", str(CASES)], {"aiohttp", "asyncio", "multiprocessing", "dralloc.kube.diagnostics"}),
    ],
    ids=["get", "explain"],
)  # fmt: skip
def test_a_short_command_loads_only_what_it_uses(tmp_path: Path, arguments: list[str], unneeded: set[str]) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    write_kubeconfig(kubeconfig, server="http://127.0.0.1:1", authority_pem=None, token="t")
    code = (
        "import contextlib, sys; from dralloc.cli.main import app\n"
        "with contextlib.suppress(SystemExit): app(sys.argv[1:])\n"
        f"print('loaded:', sorted({unneeded} & set(sys.modules)))"
    )
    finished = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "KUBECONFIG": str(kubeconfig)},
    )
    assert finished.stdout.splitlines()[-1] == "loaded: []"


HANGING = ("driver-test", "--", "sh", "-c", 'touch "$TMPDIR/started"; exec sleep 600')
MEASURING = ("bench", "throughput", "shared", "--nodes", "5000", "--pods", "40000")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "started"), [(HANGING, "started"), (MEASURING, "*/kubeconfig")], ids=["driver-test", "bench"]
)
def test_what_a_command_started_ends_with_it_when_it_is_told_to(
    tmp_path: Path, arguments: tuple[str, ...], started: str
) -> None:
    """As `timeout` tells it, and a build that is cancelled."""
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with child_process([sys.executable, "-m", "dralloc", *arguments], env=environment) as process:
        while not list(tmp_path.glob(started)):
            with suppress(subprocess.TimeoutExpired):
                pytest.fail(f"it has ended too early, with {process.wait(0.05)}")
        process.terminate()
        assert process.wait(60) == 143
    (tmp_path / "started").unlink(missing_ok=True)
    assert not list(tmp_path.iterdir())
    # What was ended may take a moment to be gone.
    deadline = time.monotonic() + 60
    while left := [each for each in Path("/proc").glob("[0-9]*/environ") if f"TMPDIR={tmp_path}\0" in readable(each)]:
        assert time.monotonic() < deadline, left


def readable(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
