"""The shell completes names from the cluster: real bash, zsh and fish with the scripts that users install, and kubectl."""

from __future__ import annotations

import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dralloc.cli.main import app
from dralloc.cli.name_completion import BUDGET_S
from dralloc.server.identity.kubeconfig import write_kubeconfig
from tests.support.installation import environment_of

pytestmark = [pytest.mark.slow, pytest.mark.real]

SHELLS = ("bash", "zsh", "fish")
# Other tests may keep the machine busy.
PATIENT = {"DRALLOC_COMPLETION_TIMEOUT": "30"}


def complete(shell: str, line: str, home: Path, **variables: str) -> list[str]:
    """The candidates for the end of a line, from a shell that has read the script for it."""
    if shutil.which(shell) is None:
        pytest.skip(f"needs {shell}: scripts/install-system-tools installs it as root on Debian")
    directory = home / "work"
    directory.mkdir(exist_ok=True)
    (directory / "a-file").touch()
    script = home / f"completion.{shell}"
    done = subprocess.run(
        # The program finds out which shell has called it.
        [shell, *QUIET[shell], "-c", f"dralloc --show-completion > {script}; {ASK[shell].format(script=script)}"],
        cwd=directory,
        env=environment_of(home, LINE=line, **variables),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.stderr == ""
    return sorted(word for word in done.stdout.split() if word)


QUIET = {"bash": ["--norc", "--noprofile"], "zsh": ["-f"], "fish": ["--no-config"]}
ASK = {
    # What readline does: it splits the line, calls the function, and shows COMPREPLY.
    "bash": """
        source {script}
        COMP_LINE=$LINE COMP_POINT=${{#LINE}}
        IFS=' ' read -r -a COMP_WORDS <<< "$LINE"
        [[ $LINE == *' ' ]] && COMP_WORDS+=('')
        COMP_CWORD=$(( ${{#COMP_WORDS[@]}} - 1 ))
        $(complete -p dralloc | sed 's/.*-F \\([^ ]*\\).*/\\1/') dralloc
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """,
    # A terminal for a second zsh, in which Tab is pressed; the function that adds candidates prints them instead.
    "zsh": """
        zmodload zsh/zpty
        zpty inner zsh -f -i
        say() {{ zpty -w inner "$1"; zpty -r inner seen "*$2*" }}
        zpty -w inner 'PS1= PROMPT= RPROMPT=; unsetopt zle_bracketed_paste; autoload -U compinit; compinit -u -D; source {script}'
        zpty -w inner 'compadd() {{ local -a words; builtin compadd -O words "$@"; print -r -- "<<${{(j: :)words}}>>" }}; bindkey "^I" complete-word; print ready-$((1+1))'
        zpty -r inner seen '*ready-2*'
        zpty -n -w inner "$LINE"$'\\t'
        zpty -r inner seen '*<<*>>*'
        print -r -- "${{${{seen##*<<}}%%>>*}}"
        zpty -d inner
    """,
    "fish": "source {script}; complete -C $LINE | cut -f1",
}

CASES = {
    "dralloc explain pod ": ["web"],
    "dralloc explain pod tr": [],
    "dralloc explain pod ml/": ["ml/train-0"],
    "dralloc explain pod m": ["ml/train-0"],
    "dralloc explain pod -n ml ": ["train-0"],
    "dralloc -n ml explain pod ": ["train-0"],
    "dralloc explain claim -n ml s": ["shared-gpu"],
    "dralloc explain podgroup ": [],
    "dralloc explain pod x --node g": ["gpu-0"],
    "dralloc drain ": ["gpu-0"],
    "dralloc drain --device gpu.example.com/gpu-0/gpu-": [f"gpu.example.com/gpu-0/gpu-{index}" for index in range(8)],
    "dralloc cel x --device gpu-1": ["gpu-1"],
    "dralloc get deviceclasses ": ["gpu.example.com"],
    "dralloc get pods -A ": ["train-0", "web"],
    "dralloc get pod/w": ["pod/web"],
    "dralloc delete pods web ": [],
    "dralloc get pods -n m": ["ml"],
    "dralloc get pods --context ": ["dralloc"],
    "dralloc get nonsense ": [],
    "dralloc --context ": ["dralloc"],
    "dralloc --context dralloc -n m": ["ml"],
    "dralloc --kubeconfig /nonexistent -n ": [],
    "dralloc --kubeconfig /nonex": [],
    "dralloc -n ml ex": ["explain"],
}


@pytest.mark.parametrize("line", CASES)
def test_names_are_those_of_the_cluster(line: str, home: Path) -> None:
    variables = {
        **PATIENT,
        "_DRALLOC_COMPLETE": "complete_bash",
        "COMP_WORDS": line,
        "COMP_CWORD": str(line.count(" ")),
        "KUBECONFIG": str(home / ".kube" / "config"),
    }
    told = CliRunner().invoke(app, [], env=variables, prog_name="dralloc")
    assert sorted(told.stdout.split()) == CASES[line]


@pytest.mark.parametrize("shell", SHELLS)
def test_every_shell_completes_names(shell: str, home: Path) -> None:
    assert complete(shell, "dralloc explain pod ml/", home, **PATIENT) == ["ml/train-0"]
    assert complete(shell, "dralloc get pods -A ", home, **PATIENT) == ["train-0", "web"]


# --- kubectl ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (["explain", "pod", "-n", "ml", ""], "train-0\n:0"),
        (["-n", "ml", "explain", "pod", "tr"], "train-0\n:0"),
        (["top", "dev"], "devices\tShow devices by node and pool"),
        (["validate", ""], ":0"),
    ],
    ids=["pods", "options first", "commands", "files"],
)
def test_kubectl_is_told_candidates(words: list[str], wanted: str, home: Path) -> None:
    """By the program that kubectl calls, and through kubectl where it is new enough to call it."""
    commands = [["kubectl_complete-dra", *words]]
    version = subprocess.run(
        ["kubectl", "version", "--client", "-o", "json"], capture_output=True, text=True, check=True
    )
    if '"minor": "20"' not in version.stdout:
        commands.append(["kubectl", "__complete", "dra", *words])
    for command in commands:
        done = subprocess.run(command, env=environment_of(home, **PATIENT), capture_output=True, text=True, check=True)
        assert wanted in done.stdout


# --- Servers that do not answer -----------------------------------------------------------------------------------


@pytest.fixture
def silent_server() -> Iterator[str]:
    """Takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


@pytest.fixture
def broken_server() -> str:
    """Answers every request with something that is no list."""

    def answer() -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            address.append(f"http://127.0.0.1:{listener.getsockname()[1]}")
            started.set()
            for _ in range(2):
                connection, _ = listener.accept()
                with connection:
                    connection.recv(65536)
                    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\nConnection: close\r\n\r\n[1, null]")

    address: list[str] = []
    started = threading.Event()
    threading.Thread(target=answer, daemon=True).start()
    started.wait()
    return address[0]


@pytest.mark.parametrize("shell", SHELLS)
def test_a_dead_server_does_not_hold_the_shell(shell: str, silent_server: str, tmp_path: Path) -> None:
    write_kubeconfig(tmp_path / "config", server=silent_server, authority_pem=None, token="t")
    began = time.monotonic()
    found = complete(shell, "dralloc explain pod ", tmp_path, KUBECONFIG=str(tmp_path / "config"))
    # zsh goes on with file names by itself.
    assert found == (["a-file"] if shell == "zsh" else [])
    # The shell waits for the start of the program and for the budget; the server would never answer.
    assert BUDGET_S <= 0.5
    assert time.monotonic() - began < 20


CREDENTIAL_PLUGIN = """
apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: u, user: {exec: {apiVersion: client.authentication.k8s.io/v1, command: sh, args: [-c, "echo password: >&2; read -t 60 x"]}}}]
"""


@pytest.mark.parametrize(
    "kubeconfig",
    ["", "[", "contexts: 7", "apiVersion: v1\nkind: Config\ncurrent-context: gone\n", CREDENTIAL_PLUGIN],
    ids=["empty", "no YAML", "no list", "no context", "a credential plugin that asks"],
)
def test_whatever_is_wrong_the_shell_is_told_nothing(kubeconfig: str, tmp_path: Path) -> None:
    (tmp_path / "config").write_text(kubeconfig)
    for line in ("dralloc explain pod ", "dralloc get pods --context "):
        found = complete("bash", line, tmp_path, KUBECONFIG=str(tmp_path / "config"))
        assert found == (["c"] if "--context" in line and "name: c" in kubeconfig else [])


def test_an_answer_that_is_no_list_gives_no_names(broken_server: str, tmp_path: Path) -> None:
    write_kubeconfig(tmp_path / "config", server=broken_server, authority_pem=None, token="t")
    assert complete("bash", "dralloc drain ", tmp_path, KUBECONFIG=str(tmp_path / "config")) == []
