"""`dralloc top devices`: node, pool, device, and who holds how much of it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from typer.testing import CliRunner, Result

from dralloc.answers.usage_report import usage_report
from dralloc.cli.device_tree import tree
from dralloc.cli.main import app
from dralloc.devices.allocator.features import Features
from dralloc.devices.snapshot import Snapshot
from dralloc.kube.codec import encode
from dralloc.node.simulated.profiles import classes_of, load_profile, nodes_of
from dralloc.testing import builders as build

CLUSTER = str(Path(__file__).parents[1] / "cases" / "explain" / "cluster.yaml")


def run(*arguments: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(app, ["top", "devices", *arguments], input=stdin)


def test_the_tree() -> None:
    result = run("-f", CLUSTER)
    assert result.exit_code == 0
    assert (
        result.stdout
        == """\
n1
  gpu.example.com/n1: 0 of 2 free, 1 shared, 1 blocked
    gpu-0  shared   memory 17Gi of 40Gi used, 23Gi available, fits up to 23Gi
           ml/held  memory 17Gi
    gpu-1  blocked  memory 0 of 40Gi used  blocked by taints: taint broken=fan:NoSchedule
n2
  gpu.example.com/n2: 0 of 1 free, 1 full
    gpu-0  full     memory 80Gi of 80Gi used, 0 available, no more fits
           ml/whole
"""
    )


def test_wide_shows_attributes_shares_and_users() -> None:
    told = run("-f", CLUSTER, "--node", "n1", "-o", "wide").stdout
    assert "model=a100, numa=0" in told
    assert "request r  share 6b134138-b100-4de2-a3dd-88351611f8ef  reserved for pods/user" in told
    assert "n2" not in told


def test_for_machines_as_json_and_yaml() -> None:
    told = json.loads(run("-f", CLUSTER, "-o", "json").stdout)
    assert yaml.safe_load(run("-f", CLUSTER, "-o", "yaml").stdout) == told
    [shared, _] = told["pools"][0]["devices"]
    assert shared["capacity"]["memory"] == {
        "value": "40Gi",
        "used": "17Gi",
        "free": "23Gi",
        "largestRequest": "23Gi",
    }
    assert shared["holders"][0]["claim"] == "held"


def test_what_allocate_gives_shows_up(tmp_path: Path) -> None:
    claims = str(Path(CLUSTER).with_name("claims.yaml"))
    given = CliRunner().invoke(app, ["allocate", "-f", CLUSTER, "-f", claims, "--claim", "small", "-o", "yaml"])
    result = run("-f", CLUSTER, "-f", "-", stdin=given.stdout)
    assert "memory 20Gi of 40Gi used, 20Gi available, fits up to 19Gi" in result.stdout
    assert "default/small  memory 3Gi" in result.stdout


def test_bars_counters_and_capacities_side_by_side() -> None:
    slices = [
        build.resource_slice("counters", of=2, counters={"card": {"units": "4"}}),
        build.resource_slice(
            "parts",
            build.device("d", capacity={"memory": "10", "slots": "3"}, shareable=True, draws={"card": {"units": "1"}}),
            of=2,
        ),
    ]
    share = build.held("d", share_id="s", consumed={"memory": "5", "slots": "1"})
    snapshot = Snapshot.of(slices=slices, claims=[build.claim("c", allocation=build.allocation(share))])
    assert list(tree(usage_report(snapshot, Features()), is_wide=False, with_bars=True)) == [
        "node-a",
        "  gpu.example.com/pool-a: 0 of 1 free, 1 shared",
        "    counter card/units: 3 of 4 left",
        "    d  shared   memory █████░░░░░ 5 of 10 used, 5 available, fits up to 5",
        "                slots ███░░░░░░░ 1 of 3 used, 2 available, fits up to 2",
        "       default/c  memory 5, slots 1",
    ]


def test_no_devices() -> None:
    result = run("-f", "-", stdin="apiVersion: v1\nkind: Node\nmetadata: {name: node-1}\n")
    assert (result.exit_code, result.stdout) == (0, "no devices\n")


def test_an_unknown_node() -> None:
    result = run("-f", CLUSTER, "--node", "n9")
    assert result.exit_code == 1
    assert "no node n9 in the files" in result.stderr


def test_the_summary_of_200_nodes_fits_on_a_screen(tmp_path: Path) -> None:
    cluster = tmp_path / "cluster.json"
    cluster.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": list(mig_cluster(200))}))
    result = run("-f", str(cluster), "--summary")
    assert result.exit_code == 0, result.stderr
    lines = result.stdout.splitlines()
    assert len(lines) <= 24
    assert lines[1].split() == ["mig.example.com", "10,400", "2,600", "0", "600", "7,200", "memory", "40Gi"]
    assert "mig.example.com: blocked 7,200 by counters" in lines
    told = json.loads(run("-f", str(cluster), "--summary", "-o", "json").stdout)
    [driver] = told["drivers"]
    assert driver["hardware"]["memory"] == {
        "value": "32000Gi",
        "used": "24000Gi",
        "available": "8000Gi",
        "unusable": "0",
    }
    pools = json.loads(run("-f", str(cluster), "-o", "json").stdout)["pools"]
    assert len(pools) == 200
    assert pools[0]["hardware"]["memory"] == {"value": "160Gi", "used": "120Gi", "available": "40Gi"}
    assert Counter(device["state"] for device in pools[0]["devices"]) == {"free": 13, "full": 3, "blocked": 36}


def mig_cluster(nodes: int) -> Iterator[dict[str, Any]]:
    """Nodes with four cards of 40Gi, each in 13 partitions; three cards of each node are taken whole."""
    profile = load_profile("mig")
    [node] = nodes_of(profile, 1, "mig")
    taken = [build.held(f"card-{card}-7g-40gb", driver="mig.example.com", pool="mig-0") for card in range(3)]
    wanted = build.request("r", device_class="mig.example.com", count=3)
    claim = json.loads(encode(build.claim("mig-0", wanted, allocation=build.allocation(*taken))))
    objects = [
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "mig-0"}},
        {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", **claim},
        *(json.loads(encode(each)) for each in node.slices),
    ]
    text = json.dumps(objects)
    for number in range(nodes):
        yield from json.loads(text.replace("mig-0", f"mig-{number}"))
    for device_class in classes_of(profile):
        yield json.loads(encode(device_class))
