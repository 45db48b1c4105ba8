"""`dralloc cel`: a selector tried on devices."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner, Result

from dralloc.cli.main import app

SLICES = """\
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: a}
spec:
  driver: gpu.example.com
  nodeName: node-1
  pool: {name: node-1, generation: 1, resourceSliceCount: 1}
  devices:
  - name: gpu-0
    attributes: {model: {string: a100}, index: {int: 0}}
    capacity: {memory: {value: 40Gi}}
  - name: gpu-1
    attributes: {model: {string: h100}, index: {int: 1}}
    capacity: {memory: {value: 80Gi}}
  - name: gpu-2
    attributes: {index: {int: 2}}
---
apiVersion: v1
kind: Pod
"""

OLD_SLICE = """\
apiVersion: resource.k8s.io/v1beta1
kind: ResourceSlice
metadata: {name: b}
spec:
  driver: nic.example.org
  nodeName: node-1
  pool: {name: p, generation: 1, resourceSliceCount: 1}
  devices:
  - name: nic-0
    basic: {attributes: {speed: {int: 100}}}
"""

MODEL = 'device.attributes["gpu.example.com"].model == "h100"'


def run(*arguments: str, stdin: str = SLICES) -> Result:
    return CliRunner().invoke(app, ["cel", *arguments], input=stdin)


def rows(result: Result) -> list[list[str]]:
    table, _, _ = result.stdout.partition("\n\n")
    return [line.split(maxsplit=3) for line in table.splitlines()]


def test_each_device_has_a_row() -> None:
    result = run("device.attributes['gpu.example.com'].index >= 1", "-f", "-")
    assert rows(result) == [
        ["DRIVER", "POOL", "DEVICE", "MATCHES"],
        ["gpu.example.com", "node-1", "gpu-0", "false"],
        ["gpu.example.com", "node-1", "gpu-1", "true"],
        ["gpu.example.com", "node-1", "gpu-2", "true"],
    ]
    assert "2 of 3 devices match, 0 fail" in result.stdout
    assert result.exit_code == 0


def test_failing_devices_are_told_with_the_reason_and_a_code() -> None:
    result = run(MODEL, "-f", "-")
    assert rows(result)[3][3].startswith("error: no such key: model")
    assert "1 of 3 devices match, 1 fail" in result.stdout
    assert result.exit_code == 1


def test_names_are_counted_with_their_values() -> None:
    result = run(MODEL, "-f", "-")
    assert 'attribute gpu.example.com/model exists on 2 of 3 devices: "a100" (1), "h100" (1)' in result.stdout


def test_a_misspelt_name_is_found_out() -> None:
    result = run("device.capacity['gpu.example.com'].?memroy.hasValue()", "-f", "-")
    assert "capacity gpu.example.com/memroy exists on 0 of 3 devices; is gpu.example.com/memory meant?" in result.stdout


def test_slices_of_every_version_count(tmp_path: Path) -> None:
    (tmp_path / "new.yaml").write_text(SLICES)
    (tmp_path / "old.yaml").write_text(OLD_SLICE)
    result = run("device.attributes['nic.example.org'].?speed.orValue(0) == 100", "-f", str(tmp_path))
    assert [row[2:] for row in rows(result)[1:]] == [
        ["gpu-0", "false"],
        ["gpu-1", "false"],
        ["gpu-2", "false"],
        ["nic-0", "true"],
    ]


@pytest.mark.parametrize("form", ["json", "yaml"])
def test_machines_get_the_same(form: str) -> None:
    result = run(MODEL, "-f", "-", "-o", form)
    told = json.loads(result.stdout) if form == "json" else yaml.safe_load(result.stdout)
    assert told["counts"] == {"devices": 3, "matching": 1, "other": 1, "failing": 1}
    assert [device["matches"] for device in told["devices"]] == [False, True, None]
    assert told["names"][0]["name"] == "gpu.example.com/model"
    assert told["refusedAsNew"] is None


def test_an_explanation_takes_the_device_with_most_to_tell() -> None:
    result = run(f"{MODEL} || false", "-f", "-", "--explain")
    lines = result.stdout.splitlines()
    assert lines[0].startswith("gpu.example.com/node-1/gpu-2: error")
    assert "error" in lines[2]
    assert any("^ no such key: model" in line for line in lines)
    assert result.exit_code == 1


@pytest.mark.parametrize("name", ["gpu-1", "gpu.example.com/node-1/gpu-1"])
def test_an_explanation_of_a_named_device(name: str) -> None:
    result = run(MODEL, "-f", "-", "--explain", "--device", name)
    assert result.stdout.splitlines() == [
        "gpu.example.com/node-1/gpu-1: true",
        "",
        f"true     {MODEL}",
        '"h100"     device.attributes["gpu.example.com"].model',
    ]
    assert result.exit_code == 0


def test_an_explanation_for_machines() -> None:
    told = json.loads(run(MODEL, "-f", "-", "--explain", "--device", "gpu-1", "-o", "json").stdout)
    assert told["device"] == "gpu.example.com/node-1/gpu-1"
    assert [(part["depth"], part["values"]) for part in told["parts"]] == [(0, ["true"]), (1, ['"h100"'])]


def test_a_malformed_device_has_no_explanation() -> None:
    slices = SLICES.replace("{string: a100}", "{version: '1.2'}")
    result = run("true", "-f", "-", "--explain", stdin=slices)
    assert result.exit_code == 1
    assert "gpu-0: attribute model: '1.2' is not a semantic version" in result.stderr


def test_without_files_the_expression_itself_is_judged() -> None:
    result = run(MODEL)
    assert result.stdout == "The expression is valid. Its maximum cost is 5.\n"
    assert result.exit_code == 0


def test_what_only_stored_objects_may_have_is_told() -> None:
    result = run("device.attributes['x'].y.all(e, e == 1)")
    assert result.exit_code == 1
    assert "a new object with this expression would be rejected" in result.stderr
    assert (
        run("device.attributes['x'].y.all(e, e == 1)", "--feature-gates", "DRAListTypeAttributes=true").exit_code == 0
    )


def test_faults_of_the_expression_are_marked() -> None:
    result = run("device.nothing == 1 &&\n true + 2")
    assert result.exit_code == 2
    assert " | device.nothing == 1 &&\n | ......^\n" in result.stderr
    assert " |  true + 2\n | ......^\n" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "stdin", "reason"),
    [
        (["true", "-f", "/nowhere/x.yaml"], "", "No such file"),
        (["true", "-f", "-"], "kind: [", "<stdin>:"),
        (["true", "-f", "-"], "kind: Pod", "no devices"),
        (["true", "-f", "-", "--device", "none"], SLICES, "no device none"),
        (["true", "--explain"], "", "needs a device"),
        (["true", "-f", "-"], SLICES.replace("driver: gpu.example.com", "driver: [1]"), "dralloc validate"),
        (["true", "--feature-gates", "None=true"], "", "None"),
    ],
)
def test_bad_input_ends_in_a_sentence(arguments: list[str], stdin: str, reason: str) -> None:
    result = run(*arguments, stdin=stdin)
    assert result.exit_code == 2
    assert reason in result.stderr
    assert "Traceback" not in result.stderr
