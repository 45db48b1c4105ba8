"""`dralloc doctor` on a cluster with every fault that it finds: it finds them, live and from a dump, and its commands mend them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from dralloc.answers.doctor.examination import CHECKS
from dralloc.cli.main import app
from dralloc.client.blocking_client import connect
from dralloc.primitives.features import FeatureGates
from dralloc.scheduler.configuration import SchedulerConfiguration
from dralloc.scheduler.decide.strategy_choice import SPREADING
from dralloc.scheduler.published_configuration import key_of, published_data
from dralloc.scheduler.settings import NAME
from dralloc.server.identity.certificates import AUTHORITY_LIFETIME, ensure_certificates
from tests.support.child_process import child_process
from tests.support.client_certificates import user_kubeconfig
from tests.support.faulty_cluster import checkpoints, fill
from tests.support.kubectl_program import kubectl_directory
from tests.support.server_process import server_process

pytestmark = [pytest.mark.slow, pytest.mark.real]

ROOT = Path(__file__).parents[2]
GATE = "DRAConsumableCapacity"
ROUNDS_MAX = 4
Key = tuple[str, str, str]
BROAD_RULE = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "DeviceTaintRule",
    "metadata": {"name": "everything"},
    "spec": {"deviceSelector": {}, "taint": {"key": "maintenance", "effect": "NoExecute"}},
}
OPERATORS = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRoleBinding",
    "metadata": {"name": "operators"},
    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
    "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "operators"}],
}


@dataclass(frozen=True, slots=True)
class Patient:
    """A cluster with every fault, and what an operator of it has."""

    directory: Path
    kubeconfig: Path
    # With a client certificate that expires in an hour, of a group that may do everything.
    other_kubeconfig: Path
    options: tuple[str, ...]
    environment: dict[str, str]

    def doctor(self, *arguments: str, code: int | None = None) -> Any:
        """What it says as values."""
        said = CliRunner().invoke(
            app, ["doctor", "--older-than", "0s", "-o", "json", *arguments], catch_exceptions=False
        )
        assert code is None or said.exit_code == code, said.output
        return json.loads(said.stdout)

    def live(self, *arguments: str, code: int | None = None) -> Any:
        return self.doctor("--kubeconfig", str(self.other_kubeconfig), *self.options, *arguments, code=code)

    def run(self, command: str) -> None:
        """As an operator does who copies the command."""
        ended = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", command],
            env=self.environment,
            cwd=self.directory,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert ended.returncode == 0, f"{command}\n{ended.stdout}{ended.stderr}"


@pytest.fixture
def patient(tmp_path: Path) -> Iterator[Patient]:
    directory = tmp_path
    data = directory / "data"
    node, claims = checkpoints(directory)
    with server_process(data) as server:
        with connect(server.kubeconfig) as client:
            fill(client)
            client.create(_published(GATE))
            client.create(OPERATORS)
        other = user_kubeconfig(server.kubeconfig, data, "jane", "operators", file="jane")
        programs = kubectl_directory(directory)
        path = f"{programs}:{Path(sys.executable).parent}:{os.environ['PATH']}"
        yield Patient(
            directory,
            server.kubeconfig,
            other,
            ("--checkpoint", str(node), "--checkpoint", str(claims)),
            {
                **os.environ,
                "PATH": path,
                "KUBECONFIG": str(other),
                "DATA_DIR": str(data),
                "PYTHONPATH": str(ROOT),
                "HOME": str(directory),
            },
        )


def _published(off: str) -> dict[str, Any]:
    """What a scheduler with a gate that is off has published."""
    gates = FeatureGates(FeatureGates.defaults().enabled - {off, "DRAFractionalCapacityRange"})
    key = key_of(NAME)
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": key.name, "namespace": key.namespace},
        "data": published_data(NAME, SchedulerConfiguration({}, SPREADING), gates),
    }


def keys_of(answer: Any) -> set[Key]:
    return {
        (check["id"], each["subject"], each["severity"]) for check in answer["checks"] for each in check["findings"]
    }


def test_every_fault_is_found_and_mended(patient: Patient) -> None:
    """One test: the cluster is expensive, and mending changes it."""
    _finds_every_fault(patient)
    _does_not_report_what_has_just_begun(patient)
    for check in CHECKS:
        _mends(patient, check)
    # A rule for every device withdraws them, and would have hidden other faults.
    patient.run(f"kubectl apply -f - <<'END'\n{json.dumps(BROAD_RULE)}\nEND")
    broad = patient.live("--check", "broad-taint-rule", code=1)
    assert keys_of(broad) == {("broad-taint-rule", "devicetaintrule everything", "error")}
    _mends(patient, "broad-taint-rule")
    said = CliRunner().invoke(app, ["doctor", "--kubeconfig", str(patient.kubeconfig), *patient.options])
    assert said.exit_code == 0, said.output
    assert said.stdout.splitlines()[-1].startswith("nothing found: 9 checks on the cluster https://127.0.0.1:")


def test_an_authority_that_ends_soon_is_replaced_as_the_advice_says(tmp_path: Path) -> None:
    ensure_certificates(tmp_path / "tls", (), datetime.now(UTC) - AUTHORITY_LIFETIME + timedelta(days=20))
    with server_process(tmp_path) as server:
        said = CliRunner().invoke(app, ["doctor", "--kubeconfig", str(server.kubeconfig), "-o", "json"])
    (check,) = (each for each in json.loads(said.stdout)["checks"] if each["id"] == "certificate")
    assert [each["subject"] for each in check["findings"]] == [
        "certificate of the server",
        "certificate of the authority",
    ]
    ((command,),) = {tuple(each["commands"]) for each in check["findings"]}
    subprocess.run(["bash", "-c", command], env={**os.environ, "DATA_DIR": str(tmp_path)}, check=True)
    with server_process(tmp_path) as server:
        said = CliRunner().invoke(app, ["doctor", "--kubeconfig", str(server.kubeconfig)])
    assert "nothing found" in said.stdout


def _finds_every_fault(patient: Patient) -> None:
    """Live and from a dump, and nothing else."""
    live = patient.live(code=1)
    found = keys_of(live)
    node, driver = (str(patient.directory / name) for name in ("dra_manager_state", "claims"))
    assert found == {
        ("leaked-claim", "resourceclaim default/unheld", "error"),
        ("leaked-claim", "resourceclaim default/of-a-gone-pod", "error"),
        ("leaked-claim", "resourceclaim default/of-a-finished-pod", "error"),
        ("leaked-claim", "resourceclaim default/partly", "warning"),
        ("stuck-deletion", "resourceclaim default/deleted", "error"),
        ("stuck-deletion", "resourceclaim default/deleted-foreign", "error"),
        ("stuck-deletion", "resourceclaim default/deleted-in-use", "error"),
        ("stale-checkpoint", f"claim default/vanished in {node}", "error"),
        (
            "stale-checkpoint",
            f"claim default/vanished-too in {driver}/22222222-2222-4333-8444-555555555555.json",
            "error",
        ),
        ("dead-driver", "driver gpu.example.com on node gone", "error"),
        ("dead-driver", "driver nic.example.com on node driverless", "error"),
        ("dead-driver", "driver gpu.example.com on node quiet", "warning"),
        ("incomplete-pool", "pool both of driver dpu.example.net", "error"),
        ("double-booking", "example.com/gpu and driver gpu.example.com on both", "error"),
        ("certificate", "certificate of the client", "warning"),
        ("feature-gates", f"feature gate {GATE}", "error"),
    }
    assert {check for check, _, _ in found} == set(CHECKS) - {"broad-taint-rule"}, "each check finds its fault"
    for check in live["checks"]:
        assert check["why"]
        assert check["unchecked"] == []
        for each in check["findings"]:
            assert all(each[part] for part in ("message", "evidence", "advice", "commands")), each
    for options in ((), ("--anonymize",)):
        dump = str(patient.directory / f"dump{len(options)}.json")
        made = CliRunner().invoke(app, ["dump", "-o", dump, "--kubeconfig", str(patient.other_kubeconfig), *options])
        assert made.exit_code == 0, made.output
        dumped = patient.doctor("-f", dump, *patient.options, code=1)
        if options:
            # What events say is free text, which is renamed: that a node does not know a driver is lost.
            assert len(keys_of(dumped)) == len(found) - 1
            assert "jane" not in Path(dump).read_text()
        else:
            assert keys_of(dumped) == found


def _does_not_report_what_has_just_begun(patient: Patient) -> None:
    found = keys_of(patient.live("--older-than", "2h"))
    assert {check for check, _, _ in found} == {"double-booking", "certificate", "feature-gates", "dead-driver"}


def _mends(patient: Patient, check: str) -> None:
    for _ in range(ROUNDS_MAX):
        (answer,) = patient.live("--check", check)["checks"]
        if not answer["findings"]:
            break
        before = _findings(patient, check)
        for each in answer["findings"]:
            for command in each["commands"]:
                _run(patient, command, lambda: not keys_of(patient.live("--check", check)))
        # What is left is new: a claim that a pod used may now wait for its finalizer.
        _wait_until(partial(_are_gone, before, patient, check))
    assert keys_of(patient.live("--check", check, code=0)) == set()


def _run(patient: Patient, command: str, is_mended: Callable[[], bool]) -> None:
    if not command.startswith("dralloc scheduler"):
        patient.run(command)
        return
    # It runs until it is stopped.
    words = [*command.split(), "--metrics-address", "127.0.0.1:0"]
    with child_process(words, env=patient.environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        metrics = process.stdout.readline().split()[-1]
        (compared,) = patient.live("--check", "feature-gates", "--metrics", f"running={metrics}")["checks"]
        # Until it has published its gates, those of the earlier one count, too; its own are right.
        assert all("running, " in f"{each['message'].partition('off in')[0]}, " for each in compared["findings"])
        _wait_until(is_mended)
        process.terminate()


def _are_gone(findings: set[tuple[str, str]], patient: Patient, check: str) -> bool:
    return findings.isdisjoint(_findings(patient, check))


def _findings(patient: Patient, check: str) -> set[tuple[str, str]]:
    (answer,) = patient.live("--check", check)["checks"]
    return {(each["subject"], each["message"]) for each in answer["findings"]}


def _wait_until(is_true: Callable[[], bool]) -> None:
    deadline = datetime.now(UTC) + timedelta(seconds=60)
    while not is_true():
        assert datetime.now(UTC) < deadline
