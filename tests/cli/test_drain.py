"""`dralloc drain --dry-run`: the blast radius as text and values, and which files are what."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner, Result

from dralloc.cli.main import app
from dralloc.cli.object_documents import as_manifest
from dralloc.kube.codec import encode
from tests.answers.test_drain import NODES, cluster, owned, with_claim
from tests.answers.test_fit import pod

RULE = {
    "apiVersion": "resource.k8s.io/v1beta2",
    "kind": "DeviceTaintRule",
    "metadata": {"name": "repair"},
    "spec": {
        "deviceSelector": {"driver": "gpu.example.com", "pool": "n1", "device": "gpu-0"},
        "taint": {"key": "repair", "effect": "NoExecute"},
    },
}


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A cluster with two pods that have a controller, on a node that they fill, and a rule."""
    first, second = (with_claim(owned(pod(name)), f"gpu-{number}") for number, name in enumerate("ab"))
    objects = cluster(*NODES, *first, *second).objects
    items = []
    for kind, found in objects.items():
        group = "v1" if kind.__name__ in ("Pod", "Node") else "resource.k8s.io/v1"
        for obj in found.values():
            document = json.loads(as_manifest(obj, "v1") if group != "v1" else encode(obj))
            items.append({**document, "apiVersion": group, "kind": kind.__name__})
    (tmp_path / "cluster.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    (tmp_path / "rule.yaml").write_text(yaml.safe_dump(RULE))
    return tmp_path


def run(files: Path, *arguments: str) -> Result:
    named = [str(files / each) if each.endswith((".json", ".yaml")) else each for each in arguments]
    return CliRunner().invoke(app, ["drain", *named])


def test_a_node(files: Path) -> None:
    told = run(files, "n1", "--dry-run", "-f", "cluster.json")
    assert told.exit_code == 1, told.stderr
    assert told.stdout.splitlines() == [
        "drain of node n1: 2 pods evicted: 1 placed elsewhere, 1 without a place",
        "",
        "POD         EVICTED   THEN       NODE   REASON",
        "default/a   now       placed     n2     -",
        "default/b   now       unplaced   -      "
        "0/2 nodes are available: 1 node: the only device is in use; 1 node: unschedulable",
    ]


def test_a_device(files: Path) -> None:
    told = run(files, "--device", "gpu.example.com/n1/gpu-0", "--dry-run", "-f", "cluster.json", "-o", "json")
    assert told.exit_code == 0, told.stderr
    values = json.loads(told.stdout)
    assert (values["devices"], values["everyPodFindsAPlace"]) == (["gpu.example.com/n1/gpu-0"], True)
    [evicted] = values["pods"]
    assert (evicted["pod"], evicted["from"], evicted["result"], evicted["node"]) == ("default/a", "n1", "Placed", "n2")


def test_a_rule_and_a_cluster_are_told_apart_by_what_the_files_have(files: Path) -> None:
    for order in (("rule.yaml", "cluster.json"), ("cluster.json", "rule.yaml")):
        told = run(files, "-f", order[0], "-f", order[1], "--dry-run")
        assert (told.exit_code, told.stdout.splitlines()[0]) == (
            0,
            "drain of 1 device: 1 pod evicted: 1 placed elsewhere",
        ), told.stderr


def test_nobody_is_evicted(files: Path) -> None:
    told = run(files, "n2", "--dry-run", "-f", "cluster.json")
    assert (told.exit_code, told.stdout) == (0, "drain of node n2: 0 pods evicted\n")


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["n1"], 2, "add --dry-run"),
        (["--dry-run"], 2, "give a node, --device, or -f"),
        (["-f", "cluster.json", "--dry-run"], 2, "give a node, --device, or -f"),
        (["n1", "--device", "a/b/c", "--dry-run"], 2, "give a node or --device, not both"),
        (["--device", "a/b", "--dry-run"], 2, "--device a/b: expected DRIVER/POOL/DEVICE"),
        (["n4", "--dry-run", "-f", "cluster.json"], 1, "no node n4 in the files"),
        (["--device", "a/b/c", "--dry-run", "-f", "cluster.json"], 1, "no device a/b/c in the files"),
    ],
)
def test_questions_that_make_no_sense(files: Path, arguments: list[str], code: int, message: str) -> None:
    told = run(files, *arguments)
    assert (told.exit_code, message in told.stderr) == (code, True), told.stderr


def test_nothing_is_written_without_a_dry_run_either(files: Path) -> None:
    told = run(files, "n1", "-f", "cluster.json")
    assert (told.exit_code, told.stdout) == (2, "")
