"""`dralloc driver-test`: drivers as processes, reports, and settings that make no sense."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner, Result

from dralloc.cli.main import app
from dralloc.kube.core_v1 import Node
from dralloc.kube.resource_v1 import DeviceClass, ResourceClaim
from dralloc.server.identity.kubeconfig import write_kubeconfig
from tests.support.api_thread import ApiThread, api_thread
from tests.support.child_process import child_process

EXAMPLES = Path(__file__).parents[2] / "examples" / "drivers"
GPU = EXAMPLES / "gpu-memory"

# A driver that refuses every claim.
REFUSING = """
from dralloc.driver import DriverFunctions, device
driver = DriverFunctions("bad.example.com")
@driver.devices
def devices(): return [device("d")]
@driver.prepare
def prepare(claim): raise RuntimeError("not today")
driver.run()
"""


def run(*arguments: str | Path, **environment: str) -> Result:
    return CliRunner().invoke(app, ["driver-test", *map(str, arguments)], env=environment)


@pytest.fixture
def directory() -> Iterator[Path]:
    with TemporaryDirectory(prefix="d-") as path:
        yield Path(path)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("example", "environment", "only"),
    [
        ("gpu-memory", {}, ()),
        ("cpu-cores", {}, ("prepare", "unprepare", "restart.prepared", "slices")),
        ("nic-qos", {"NIC_QOS_DRY": "1", "NIC_QOS_INTERFACES": "lo"}, ("prepare", "unprepare", "restart.prepared")),
    ],
    ids=["gpu-memory", "cpu-cores", "nic-qos"],
)
def test_the_example_drivers_conform(
    tmp_path: Path, example: str, environment: dict[str, str], only: tuple[str, ...]
) -> None:
    """Checks against a real process, which is killed on the way; all of them for the driver that has everything."""
    report = tmp_path / "report.xml"
    if example == "cpu-cores":
        node = tmp_path / "node" / "node0"
        node.mkdir(parents=True)
        (node / "cpulist").write_text("0-7\n")
        environment = {"CPU_CORES_SYSFS": str(tmp_path)}
    options = [word for name in only for word in ("--only", name)]
    if example == "gpu-memory":
        cards = tmp_path / "cards.json"
        cards.write_bytes((GPU / "cards.json").read_bytes())
        broken = cards.read_text().replace('"name"', '"is_healthy": false, "name"')
        (tmp_path / "broken.json").write_text(broken)
        options += ["--lose-device", f"cp {tmp_path}/broken.json {cards}"]
        options += ["--restore-device", f"cp {GPU}/cards.json {cards}", "--wait-cleanup", "30"]
        environment = {"GPU_MEMORY_CARDS": str(cards), "DRA_VANISHED_AFTER_S": "1"}
    command = [sys.executable, str(EXAMPLES / example / "driver.py")]
    result = run("--strict", "--junit", report, *options, "--", *command, DRA_REPAIR_DELAY_S="0.2", **environment)
    assert result.exit_code == 0, result.output
    suite = ElementTree.parse(report).getroot()
    assert suite.get("failures") == "0"
    reasons = {found.get("message", "") for found in suite.iter("skipped")}
    assert all(reason.startswith("not applicable: ") for reason in reasons), reasons
    assert int(suite.get("tests") or 0) >= 20


def test_the_checks_are_listed_with_why_and_how() -> None:
    result = run("--list", "--only", "checkpoint")
    assert result.exit_code == 0, result.output
    assert "checkpoint.stale-prepare (base): a preparation that was given up" in result.output
    assert "known fault of real drivers: stale prepare after unprepare" in result.output
    assert "how to fix it: store only those results" in result.output
    listed = json.loads(run("--list", "-o", "json").stdout)["checks"]
    assert {"id", "feature", "title", "why", "fix", "knownFault", "injects"} == set(listed[0])


@pytest.mark.slow
def test_a_report_for_machines(tmp_path: Path) -> None:
    program = tmp_path / "driver.py"
    program.write_text(REFUSING)
    result = run("--only", "prepare.answer", "-o", "json", "--", sys.executable, program)
    report = json.loads(result.stdout)
    assert (result.exit_code, report["driver"]) == (1, "bad.example.com")
    assert "failed" in {check["outcome"] for check in report["checks"]}


@pytest.mark.slow
def test_a_driver_with_faults_ends_in_findings(tmp_path: Path) -> None:
    program, report = tmp_path / "driver.py", tmp_path / "report.xml"
    program.write_text(REFUSING)
    result = run("--only", "prepare.answer", "--junit", report, "--", sys.executable, program)
    assert result.exit_code == 1, result.output
    assert (
        "violation: preparing claim default/driver-test-1 failed: driver.py, line 7: RuntimeError: not today"
        in result.output
    )
    assert "why it matters:" in result.output
    assert (
        "how to fix it: the driver itself answered with this error; find its cause in the code of the driver"
        in result.output
    )
    assert "driver.py, line 7" in report.read_text()
    assert "0 of 1 checks passed (0 with remarks), 1 failed, 0 not tested, 0 not applicable" in result.output
    assert ElementTree.parse(report).getroot().get("failures") == "1"


@pytest.mark.slow
def test_a_driver_of_which_nothing_can_be_allocated_has_not_passed(tmp_path: Path) -> None:
    program = tmp_path / "driver.py"
    program.write_text(REFUSING.replace('device("d")', ""))
    result = run("--only", "registration", "--only", "prepare.answer", "--", sys.executable, program)
    assert result.exit_code == 1, result.output
    assert "this is not a pass: 1 checks did not run because no devices of bad.example.com fit claim" in result.output
    assert "publish a device that fits, or describe another claim with --claim" in result.output


@pytest.mark.slow
def test_a_driver_that_does_not_survive_a_check_is_started_again(tmp_path: Path) -> None:
    program = tmp_path / "driver.py"
    program.write_text(REFUSING.replace('raise RuntimeError("not today")', '__import__("os")._exit(3)'))
    only = ("--only", "prepare.answer", "--only", "unprepare.unknown")
    result = run(*only, "--", sys.executable, program)
    assert result.exit_code == 1, result.output
    assert "the driver did not survive the check: the driver's command exited with code 3" in result.output
    assert "ok         unprepare.unknown" in result.output, result.output
    assert logging.getLogger("dralloc").level == logging.NOTSET, "it was quiet for its own time only"


@pytest.mark.slow
def test_a_claim_of_the_users_own(tmp_path: Path) -> None:
    """Classes and parameters come from a manifest."""
    manifest = tmp_path / "claim.yaml"
    claim = (GPU / "manifests" / "claims.yaml").read_text().split("---")[0]
    manifest.write_text(f"{(GPU / 'manifests' / 'classes.yaml').read_text()}\n---\n{claim}")
    cards = str(GPU / "cards.json")
    command = [sys.executable, str(GPU / "driver.py")]
    result = run("--only", "prepare", "--claim", manifest, "--", *command, GPU_MEMORY_CARDS=cards)
    assert result.exit_code == 0, result.output
    manifest.write_text(manifest.read_text().replace("priority: high", "priority: urgent"))
    result = run("--only", "prepare.answer", "--claim", manifest, "--", *command, GPU_MEMORY_CARDS=cards)
    assert (result.exit_code, "invalid parameters" in result.output) == (1, True)


@pytest.mark.slow
def test_a_driver_that_somebody_else_runs(directory: Path) -> None:
    """The kit serves an API for it, and finds it in its registry."""
    kubeconfig, registry = directory / "kubeconfig", directory / "registry"
    registry.mkdir()
    kit = [sys.executable, "-m", "dralloc", "driver-test", "--serve-kubeconfig", str(kubeconfig)]
    kit += ["--registry", str(registry), "--only", "unprepare", "--cdi-dir", str(directory / "cdi")]
    environment = {
        **os.environ,
        "KUBECONFIG": str(kubeconfig),
        "NODE_NAME": "driver-test",
        "DRA_REGISTRY_DIR": str(registry),
        "DRA_PLUGINS_DIR": str(directory / "plugins"),
        "DRA_CDI_DIR": str(directory / "cdi"),
        "GPU_MEMORY_CARDS": str(GPU / "cards.json"),
    }
    with child_process(kit, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert "kubeconfig:" in process.stdout.readline()
        with child_process([sys.executable, GPU / "driver.py"], env=environment) as driver:
            try:
                output = process.stdout.read()
                assert (process.wait(60), driver.poll()) == (0, None), output
            finally:
                driver.terminate()
    assert "8 of 8 checks passed" in output


@pytest.fixture
def running(directory: Path) -> Iterator[ApiThread]:
    """A driver that runs already, and the server that it uses."""
    environment = {
        **os.environ,
        "KUBECONFIG": str(directory / "kubeconfig"),
        "NODE_NAME": "n7",
        "DRA_REGISTRY_DIR": str(directory),
        "DRA_PLUGINS_DIR": str(directory / "plugins"),
        "DRA_CDI_DIR": str(directory / "cdi"),
        "GPU_MEMORY_CARDS": str(GPU / "cards.json"),
    }
    with api_thread(directory) as api:
        api.client.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n7"}})
        with child_process([sys.executable, GPU / "driver.py"], env=environment) as driver:
            try:
                yield api
            finally:
                driver.terminate()


@pytest.mark.slow
def test_a_driver_that_runs_is_asked_about_claims_of_the_cluster_that_kubectl_uses(
    running: ApiThread, directory: Path
) -> None:
    socket = directory / "gpu.example.com-reg.sock"
    environment = {"KUBECONFIG": str(running.kubeconfig)}
    result = run("--socket", socket, "--node", "n7", "--only", "unprepare", "--only", "slices.published", **environment)
    assert result.exit_code == 0, result.output
    assert f"creating claims on {running.url}\n" in result.output
    assert "9 of 9 checks passed" in result.output
    # What was not there before is not there afterwards.
    assert [item.metadata.name for item in running.client.list(Node)] == ["n7"]
    assert [*running.client.list(DeviceClass), *running.client.list(ResourceClaim)] == []
    wrong = run("--socket", socket, "--only", "slices.published", "--wait", "2", **environment)
    assert wrong.exit_code == 1
    assert "slices exist for node n7: use --node if the driver runs there" in wrong.output


@pytest.mark.slow
def test_a_driver_of_which_little_can_be_asked_has_not_passed(running: ApiThread, directory: Path) -> None:
    registration, calls = directory / "gpu.example.com-reg.sock", directory / "plugins/gpu.example.com"
    nowhere = {"KUBECONFIG": str(directory / "nonexistent")}
    only = ("--only", "registration", "--only", "prepare.answer")
    result = run("--socket", registration, *only, **nowhere)
    assert result.exit_code == 1
    assert "nonexistent, which does not exist (or use --serve-kubeconfig)" in result.output
    assert "this is not a pass: 1 checks did not run because there is no API server for the claims" in result.output
    report = json.loads(run("--socket", registration, *only, "-o", "json", **nowhere).stdout)
    assert {check["id"]: check["asked"] for check in report["checks"]}["prepare.answer"] is False
    # What needs no claims is complete without a server.
    assert run("--socket", registration, *only[:2], **nowhere).exit_code == 0
    nameless = run("--socket", calls / "dra.sock", *only, KUBECONFIG=str(running.kubeconfig))
    assert nameless.exit_code == 1
    assert "because the name of the driver is not known; use --driver" in nameless.output


def test_a_server_that_does_not_answer_is_named(tmp_path: Path) -> None:
    write_kubeconfig(tmp_path / "dead", server="http://127.0.0.1:1", authority_pem=None, token="t")
    result = run("--socket", tmp_path / "driver.sock", KUBECONFIG=str(tmp_path / "dead"))
    assert (result.exit_code, "http://127.0.0.1:1" in result.output) == (2, True), result.output


BAD = [
    ([], "give the driver's command after --"),
    (["--socket", "/a", "--", "x"], "give the driver's command after --"),
    (["--socket", "/a", "--registry", "/b"], "not both"),
    (["--restart-command", "x", "--", "x"], "--restart-command is only for drivers"),
    (["--kubeconfig", "a", "--serve-kubeconfig", "b", "--", "x"], "exclude each other"),
    (["--only", "nonsense", "--list"], "no check begins with nonsense"),
    (["--kill-command", "x", "--socket", "/a"], "--kill-command is only for drivers"),
    (["--restore-device", "x", "--", "x"], "--restore-device needs --lose-device"),
    (["--", "x", "--config={kubecfg}"], "{kubecfg} is not filled in; did you mean {kubeconfig}?"),
    (["--lose-device", "rm {devices}", "--", "x"], "did you mean {device}?"),
    (["--report", __file__, "--", "x"], "is not a directory; choose another one with --report"),
    (["--report", f"{__file__}/new", "--", "x"], "is not a directory; choose another one with --report"),
    (["--junit", "/proc", "--", "x"], "/proc is a directory; choose a file with --junit"),
    (["--junit", "/nonexistent/a.xml", "--", "x"], "/nonexistent is not a directory; choose another one with --junit"),
    (["--wait-cleanup", "soon", "--", "x"], "'soon' is not a valid float"),
    (["--only", "nonsense", "--", "x"], "no check begins with nonsense; the groups are registration, prepare"),
    (["--claim", "/proc/nonexistent", "--", "x"], "No such file"),
    (["--claim", "/proc", "--", "x"], "/proc: Is a directory"),
    (["--kubeconfig", "/proc/nonexistent", "--", "x"], "/proc/nonexistent"),
    (["--", "/proc/nonexistent"], "cannot run /proc/nonexistent"),
    (["--socket", "/proc/nonexistent", "--wait", "0.1"], "there is no socket at /proc/nonexistent"),
]


@pytest.mark.parametrize(("arguments", "want"), BAD, ids=[" ".join(arguments) or "nothing" for arguments, _ in BAD])
def test_settings_that_make_no_sense_are_refused_in_a_line(arguments: list[str], want: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2, result.output
    assert want in result.output
    assert "Traceback" not in result.output


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("echo no hardware found >&2; exit 3", "the driver's command exited with code 3"),
        ("echo no hardware found; exit", "the driver's command exited with code 0"),
        ("echo no hardware found; kill -9 $$", "the driver's command was killed by SIGKILL"),
    ],
)
def test_a_driver_that_has_ended_is_not_waited_for(program: str, said: str) -> None:
    result = run("--wait", "3600", "--", "sh", "-c", program)
    assert result.exit_code == 2
    assert said in result.output
    assert "output of the driver:\n  no hardware found\n" in result.output


@pytest.mark.slow
def test_a_driver_that_does_not_come_is_quoted() -> None:
    """What it has started may still come, even if it has ended itself."""
    result = run("--wait", "5", "--", "sh", "-c", "echo looking for hardware; sleep 60 &")
    assert result.exit_code == 2
    assert "no driver registered within 5 s" in result.output
    assert "output of the driver:\n  looking for hardware\n" in result.output


@pytest.mark.slow
def test_of_a_driver_that_fills_its_output_the_end_is_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its whole output could fill a disk."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    sizes = tmp_path / "sizes"
    flood = f"head -c 30000000 /dev/zero | tr '\\0' x; find {tmp_path} -name driver.log -size +1M >{sizes}; echo; echo the end; exit 3"
    result = run("--wait", "3600", "--", "sh", "-c", flood)
    assert result.exit_code == 2
    assert result.output.endswith("x…\n  the end\n")
    assert len(result.output) < 2_000
    assert sizes.read_text() == ""


# Runs the driver outside of the process group of its command, as containers do.
APART = """
setsid python {program} &
echo $! > {directory}/pid
wait
"""


@pytest.mark.slow
def test_a_driver_that_runs_apart_from_its_command_is_killed_by_another(tmp_path: Path) -> None:
    script, pid = tmp_path / "run", tmp_path / "pid"
    script.write_text(APART.format(program=GPU / "driver.py", directory=tmp_path))
    only = ("--only", "restart.prepared", "--only", "unprepare.answer")
    kill = ("--kill-command", f"kill -9 $(cat {pid})")
    environment = {
        "GPU_MEMORY_CARDS": str(GPU / "cards.json"),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    result = run(*only, *kill, "--", "sh", script, **environment)
    assert result.exit_code == 0, result.output
    state = Path(f"/proc/{pid.read_text().strip()}/stat")
    assert not state.exists() or ") Z " in state.read_text()
    result = run(*only, "--kill-command", "echo no such container; exit 3", "--", "sh", script, **environment)
    assert "'echo no such container; exit 3' exited with code 3: no such container" in result.output
    os.kill(int(pid.read_text()), signal.SIGKILL)


MANIFESTS = [
    ("{", "claim.yaml"),
    ("kind: Pod\napiVersion: v1", "neither a DeviceClass nor a ResourceClaim"),
    ("kind: Gadget\napiVersion: x/v1", "x/v1 Gadget is neither a DeviceClass nor a ResourceClaim"),
    ("kind: DeviceClass\napiVersion: resource.k8s.io/v1\nmetadata: {name: c}", "exactly one ResourceClaim"),
    ("kind: ResourceClaim\napiVersion: resource.k8s.io/v1\nspec: 7", "claim.yaml"),
]


@pytest.mark.parametrize(("text", "want"), MANIFESTS)
def test_a_manifest_that_is_no_claim_is_refused(tmp_path: Path, text: str, want: str) -> None:
    manifest = tmp_path / "claim.yaml"
    manifest.write_text(text)
    result = run("--claim", manifest, "--", "x")
    assert (result.exit_code, want in result.output) == (2, True), result.output
