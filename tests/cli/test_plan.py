"""`dralloc plan`: pods on nodes that do not exist yet, placed as the scheduler would place them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner, Result

from dralloc.cli.main import app
from dralloc.kube.codec import encode
from dralloc.node.node_object import node_document
from dralloc.node.simulated.profiles import load_profile, nodes_of

CLASSES = [
    {
        "metadata": {"name": size},
        "spec": {"selectors": [{"cel": {"expression": f'device.driver == "{size}.example.com"'}}]},
    }
    for size in ("large", "small")
]


def profile(tmp_path: Path, name: str, devices: int, **extra: Any) -> str:
    """A file with a shape of nodes that have so many devices of 40Gi each."""
    device = {
        "repeat": devices,
        "name": "card-{i}",
        "allowMultipleAllocations": True,
        "capacity": {"memory": {"value": "40Gi"}},
    }
    pool = {"driver": f"{name}.example.com", "slices": [{"devices": [device]}]}
    kind = {"capacity": {"cpu": "64", "memory": "1Ti", "pods": "110"}, "pools": [pool]}
    file = tmp_path / f"{name}.yaml"
    file.write_text(yaml.safe_dump({"classes": CLASSES, "nodes": [kind], **extra}))
    return str(file)


def template(name: str, *alternatives: str) -> dict[str, Any]:
    """Claims for a card of one of these sizes."""
    entries = [{"name": size, "deviceClassName": size} for size in alternatives]
    request: dict[str, Any] = {"name": "card", "firstAvailable": entries}
    if len(alternatives) == 1:
        request = {"name": "card", "exactly": {"deviceClassName": alternatives[0]}}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name},
        "spec": {"spec": {"devices": {"requests": [request]}}},
    }


def pod(name: str, wants: str = "", cpu: str = "1", **spec: Any) -> dict[str, Any]:
    claims = [{"name": "card", "resourceClaimTemplateName": wants}] if wants else []
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"containers": [container], "resourceClaims": claims, **spec},
    }


def run(documents: Sequence[Any], *arguments: str) -> Result:
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(documents)})
    return CliRunner().invoke(app, ["plan", "-f", "-", *arguments], input=text)


def plans(documents: Sequence[Any], *arguments: str) -> list[dict[str, Any]]:
    told = run(documents, *arguments, "-o", "json")
    assert told.exit_code in (0, 1), told.stderr
    return list(json.loads(told.stdout)["shapes"])


LARGE_ONLY, EITHER = template("large-only", "large"), template("either", "large", "small")


def test_shapes_are_compared_by_what_pods_prefer(tmp_path: Path) -> None:
    """The same alternatives, the same scores as on nodes that exist: 8 for the first, 7 for the second."""
    shapes = ("--shape", profile(tmp_path, "large", 2), "--shape", profile(tmp_path, "small", 4))
    documents = [EITHER, *(pod(f"p-{number}", "either") for number in range(4))]
    told = run(documents, *shapes)
    assert (told.exit_code, told.stdout) == (
        0,
        "SHAPE   NEW NODES   PODS     FIRST CHOICE   SCORE\n"
        "large   2           4 of 4   4 of 4         32\n"
        "small   1           4 of 4   0 of 4         28\n",
    )


def test_who_needs_what_a_shape_does_not_have_finds_no_place(tmp_path: Path) -> None:
    documents = [LARGE_ONLY, EITHER, pod("a", "large-only"), pod("b", "either"), pod("c", "large-only")]
    told = run(documents, "--shape", profile(tmp_path, "small", 4))
    assert told.exit_code == 1
    assert "small   1           1 of 3   0 of 1" in told.stdout
    assert "small: 2 pods (default/a, …) do not fit: 0/" in told.stdout
    [plan] = plans(documents, "--shape", profile(tmp_path, "small", 4))
    assert [each["pod"] for each in plan["refusals"]] == ["default/a", "default/c"]


def test_no_more_nodes_than_may_come(tmp_path: Path) -> None:
    documents = [LARGE_ONLY, *(pod(f"p-{number}", "large-only") for number in range(5))]
    [plan] = plans(documents, "--shape", f"{profile(tmp_path, 'large', 2)}=2")
    assert (len(plan["newNodes"]), len(plan["placements"]), len(plan["refusals"])) == (2, 4, 1)


def test_nodes_that_are_there_come_first_and_the_better_alternative_wins(tmp_path: Path) -> None:
    """A pod goes where its first alternative fits: to a node that comes for another pod, not to one with its second."""
    [there] = nodes_of(load_profile(profile(tmp_path, "small", 1)), 1, "there")
    existing = [node_document(there.shape), *(json.loads(encode(item)) for item in there.slices)]
    for document in existing[1:]:
        document.update(apiVersion="resource.k8s.io/v1", kind="ResourceSlice")
    shape = ("--shape", profile(tmp_path, "large", 2))
    [alone] = plans([*existing, EITHER, pod("p", "either")], *shape)
    assert ([each["node"] for each in alone["placements"]], alone["newNodes"]) == (["there-0"], [])
    first = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "first"}, "value": 1}
    forced = [
        *existing,
        first,
        LARGE_ONLY,
        EITHER,
        pod("b", "either"),
        pod("a", "large-only", priorityClassName="first"),
    ]
    [beside] = plans(forced, *shape)
    assert [(each["pod"], each["node"], each["score"]) for each in beside["placements"]] == [
        ("default/a", "new-large-0", 0),
        ("default/b", "new-large-0", 8),
    ]


def test_nodes_are_needed_for_processors_too(tmp_path: Path) -> None:
    shape = ("--shape", profile(tmp_path, "large", 8))
    [plan] = plans([pod(f"p-{number}", cpu="40") for number in range(3)], *shape)
    assert len(plan["newNodes"]) == 3
    [none] = plans([pod("p", cpu="65")], *shape)
    assert (none["newNodes"], len(none["refusals"])) == ([], 1)


def test_groups_of_nodes_come_whole() -> None:
    claim = template("chip", "tpu.example.com")
    [plan] = plans([claim, pod("p", "chip")], "--shape", "tpu")
    assert (len(plan["newNodes"]), len(plan["placements"])) == (4, 1)


def test_pods_that_run_or_have_ended_wait_for_nothing(tmp_path: Path) -> None:
    done = pod("done", "large-only") | {"status": {"phase": "Succeeded"}}
    told = run([LARGE_ONLY, done, pod("runs", nodeName="n")], "--shape", "gpu")
    assert (told.exit_code, "no pod waits for a node" in told.stderr) == (2, True)


def test_a_template_that_is_missing_is_told(tmp_path: Path) -> None:
    told = run([pod("p", "nowhere")], "--shape", "gpu")
    assert told.exit_code == 1
    assert "pod default/p cannot be placed: claim card: template default/nowhere does not exist" in told.stdout


def test_which_pod_gets_what(tmp_path: Path) -> None:
    told = run([EITHER, pod("p", "either")], "--shape", profile(tmp_path, "small", 1), "-o", "wide").stdout
    assert told.splitlines()[-1].split() == [
        "default/p",
        "new-small-0",
        "card/small",
        "small.example.com/new-small-0/card-0",
        "memory=40Gi",
    ]


@pytest.mark.parametrize("shape", ["nonsense", "gpu=0", "gpu=many", "gpu=1000000"])
def test_shapes_that_make_no_sense(shape: str) -> None:
    told = run([pod("p")], "--shape", shape)
    assert (told.exit_code, f"--shape {shape}: " in told.stderr) == (2, True)


@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    amounts=st.lists(st.sampled_from(["", "10Gi", "25Gi", "40Gi"]), min_size=1, max_size=8), devices=st.integers(1, 3)
)
def test_what_is_planned_holds_once_the_nodes_are_there(tmp_path: Path, amounts: list[str], devices: int) -> None:
    """With as many real nodes as were planned, every pod finds its place on the node that was named."""
    shape = profile(tmp_path, "large", devices)
    documents: list[Any] = []
    for number, amount in enumerate(amounts):
        capacity = {"capacity": {"requests": {"memory": amount}}} if amount else {}
        wanted = template(f"t-{number}", "large")
        wanted["spec"]["spec"]["devices"]["requests"][0]["exactly"].update(capacity)
        documents += [wanted, pod(f"p-{number}", f"t-{number}")]
    [plan] = plans(documents, "--shape", shape)
    assert not plan["refusals"]
    loaded = load_profile(shape)
    real: list[Any] = []
    for fake in nodes_of(loaded, len(plan["newNodes"]), "new-large"):
        real.append(node_document(fake.shape))
        real += [
            {**json.loads(encode(item)), "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice"}
            for item in fake.slices
        ]
    places = {each["pod"].rpartition("/")[2]: each["node"] for each in plan["placements"]}
    for document in documents:
        if document["kind"] == "Pod":
            place = places[document["metadata"]["name"]]
            document["spec"]["nodeSelector"] = {"kubernetes.io/hostname": place}
    [again] = plans([*real, *documents], "--shape", shape)
    assert (again["newNodes"], again["refusals"]) == ([], [])
    total = sum({"": 40, "10Gi": 10, "25Gi": 25, "40Gi": 40}[amount] for amount in amounts)
    assert len(plan["newNodes"]) >= -(-total // (40 * devices))
