"""`dralloc validate`: faults where they are written, in the words of a compiler."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner, Result

from dralloc.cli.main import app
from tests.support.child_process import child_process

GOOD = """\
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: a}
spec:
  devices:
    requests:
    - name: gpu
      exactly: {deviceClassName: gpu.example.com}
"""

BAD = """\
# A claim with many faults.
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata:
  name: Bad_Name
spec:
  devices:
    requests:
    - name: gpu
      deviceClassName: gpu.example.com
      exactly:
        deviceClassName: gpu.example.com
        coutn: 3
        count: -1
        selectors:
        - cel: {expression: "device.driver =="}
    - name: gpu
    - name: nic
      exactly: {deviceClassName: 7, tolerations: [{operator: Exists, effect: Never}]}
"""


def run(*arguments: str, stdin: str | bytes | None = None) -> Result:
    return CliRunner().invoke(app, ["validate", *arguments], input=stdin)


def lines_about(result: Result, file: str) -> list[tuple[str, str]]:
    """The place and the path of every line that is told."""
    told = [line.removeprefix(f"{file}:").split(": ") for line in result.stdout.splitlines()]
    return [(parts[0], parts[2]) for parts in told]


def test_every_fault_is_told_where_it_is_written(tmp_path: Path) -> None:
    file = tmp_path / "claim.yaml"
    file.write_text(BAD)
    result = run(str(file))
    assert result.exit_code == 1
    assert lines_about(result, str(file)) == [
        ("5:3", "metadata.name"),
        ("10:7", "spec.devices.requests[0].deviceClassName"),
        ("13:9", "spec.devices.requests[0].exactly.coutn"),
        ("14:9", "spec.devices.requests[0].exactly.count"),
        ("16:17", "spec.devices.requests[0].exactly.selectors[0].cel.expression"),
        ("17:7", "spec.devices.requests[1]"),
        ("17:7", "spec.devices.requests[1]"),
        ("19:17", "spec.devices.requests[2].exactly.deviceClassName"),
        ("19:70", "spec.devices.requests[2].exactly.tolerations[0].effect"),
    ]
    assert 'did you mean "count"?' in result.stdout
    assert "1 object in 1 file: 9 errors, 0 warnings" in result.stderr


def test_a_good_manifest_is_silent_and_ends_well() -> None:
    result = run("-", stdin=GOOD)
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == "1 object in 1 file: 0 errors, 0 warnings\n"


def test_faults_of_v1beta1_are_found_in_its_shape() -> None:
    source = {
        "apiVersion": "v1",
        "kind": "List",
        "items": [
            {
                "apiVersion": "resource.k8s.io/v1beta1",
                "kind": "ResourceClaim",
                "metadata": {"name": "a"},
                "spec": {"devices": {"requests": [{"name": "r", "deviceClassName": "d", "count": -1}]}},
            },
            {
                "apiVersion": "resource.k8s.io/v1beta1",
                "kind": "ResourceSlice",
                "metadata": {"name": "a"},
                "spec": {
                    "driver": "d.example.com",
                    "allNodes": True,
                    "pool": {"name": "p", "resourceSliceCount": 1},
                    "devices": [{"name": "x", "basic": {"attributes": {"m": {}}}}],
                },
            },
        ],
    }
    text = json.dumps(source, indent=1)
    lines = text.splitlines()
    result = run("-", "-o", "json", stdin=text)
    told = {entry["path"]: entry for entry in json.loads(result.stdout)["diagnostics"] if entry["severity"] == "error"}
    assert '"count": -1' in lines[told["spec.devices.requests[0].exactly.count"]["line"] - 1]
    (attribute,) = [entry for path, entry in told.items() if "attributes[m]" in path]
    assert lines[attribute["line"] - 1].strip() == '"m": {}'


JOB_WITH_SLIPS = """\
apiVersion: batch/v1
kind: Job
metadata: {name: j}
spec:
  template:
    spec:
      restartPolicy: Never
      nodeSelecter: {a: b}
      dnsPolicy: Default
      resourceClaims: [{name: gpu, resourceClaimTemplatName: t}]
      containers:
        - name: c
          image: x
          resources: {claim: [{name: gpu}]}
"""


def test_misspelt_fields_of_pods_are_errors_with_what_was_meant() -> None:
    result = run("-", stdin=JOB_WITH_SLIPS)
    pod = "spec.template.spec"
    for place, path, meant in (
        ("8:7", f"{pod}.nodeSelecter", "nodeSelector"),
        ("10:36", f"{pod}.resourceClaims[0].resourceClaimTemplatName", "resourceClaimTemplateName"),
        ("14:23", f"{pod}.containers[0].resources.claim", "claims"),
    ):
        name = path.rpartition(".")[2]
        assert f'<stdin>:{place}: error: {path}: unknown field "{name}", did you mean "{meant}"?' in result.stdout
    assert "dnsPolicy" not in result.stdout


@pytest.mark.parametrize(
    ("source", "severity", "said"),
    [
        ("apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway", "warning", "not checked: dralloc does not know the kind"),
        ("apiVersion: resource.k8s.io/v1\nkind: ResourceClam", "error", 'did you mean "ResourceClaim"?'),
        ("apiVersion: resource.k8s.io/v1alpha3\nkind: DeviceTaintRule", "error", "it exists in v1, v1beta2"),
        ("metadata: {}", "error", "missing apiVersion and kind"),
        ("- 1", "error", "expected an object"),
        ("7", "error", "expected an object"),
        ("a: [", "error", "not YAML"),
        ('{"a": ', "error", "not JSON"),
        ("a: 1\na: 2", "error", "missing"),
        (GOOD + "spec: {}", "error", '"spec" is stated more than once'),
        (GOOD.replace("v1", "v1beta1", 1).replace("exactly: {deviceClassName: gpu.example.com}", "deviceClassName: x"), "warning", "deprecated"),
        (GOOD.replace(".com}", ".com, adminAccess: true}"), "warning", "must have the label"),
        (GOOD.replace(".com}", ".com, count: 0}"), "warning", "0 is treated as 1"),
        (GOOD.replace("{name: a}", "{name: a, creationTimestamp: yesterday}"), "error", "not a time"),
        (GOOD + "status: {reservedFor: [{name: x}]}", "error", "status.reservedFor"),
    ],
)  # fmt: skip
def test_what_is_told(source: str, severity: str, said: str) -> None:
    result = run("-", stdin=source)
    assert result.exit_code == (1 if severity == "error" else 0)
    assert any(f": {severity}: " in line and said in line for line in result.stdout.splitlines()), result.output


def test_directories_are_searched_and_unreadable_files_are_told(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "b.yml").write_text(BAD)
    (tmp_path / "a.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": []}))
    (tmp_path / "notes.txt").write_text("not a manifest")
    (tmp_path / "empty").mkdir()
    result = run(str(tmp_path))
    assert result.exit_code == 1
    assert "1 object in 2 files" in result.stderr
    missing = run(str(tmp_path / "none.yaml"), str(tmp_path / "empty"), str(tmp_path / "a.json"))
    assert missing.exit_code == 2
    assert "No such file" in missing.stderr
    assert "no manifests" in missing.stderr
    nothing = run(str(tmp_path / "none.yaml"))
    assert (nothing.exit_code, nothing.stderr.count("\n")) == (2, 1)


EMPTY = ["", "# Nothing yet.\n---\n", "---\n---\n", '{"apiVersion": "v1", "kind": "List", "items": []}']


@pytest.mark.parametrize("text", EMPTY)
def test_no_objects_at_all_is_wrong_input(text: str, tmp_path: Path) -> None:
    (tmp_path / "claims.yaml").write_text(text)
    for name, stdin in (("-", text), (str(tmp_path), None), (str(tmp_path / "claims.yaml"), None)):
        result = run(name, stdin=stdin)
        said = f"{name if stdin is None else '<stdin>'}: error: no objects here: empty, or only comments\n"
        assert (result.exit_code, result.stdout, result.stderr) == (2, "", said)
    report = json.loads(run("-", "-o", "json", stdin=text).stdout)
    assert (report["objects"], [entry["file"] for entry in report["diagnostics"]]) == (0, ["<stdin>"])


@pytest.mark.parametrize("text", EMPTY)
def test_an_empty_file_among_others_is_no_fault(text: str, tmp_path: Path) -> None:
    (tmp_path / "empty.yaml").write_text(text)
    (tmp_path / "claim.yaml").write_text(GOOD)
    for names in ([tmp_path], [tmp_path / "empty.yaml", tmp_path / "claim.yaml"]):
        result = run(*map(str, names))
        assert (result.exit_code, result.stderr) == (0, "1 object in 2 files: 0 errors, 0 warnings\n")


@pytest.mark.slow
def test_large_files_are_judged_in_parts_and_told_as_one(tmp_path: Path) -> None:
    file = tmp_path / "many.yaml"
    good = "\n".join([GOOD] + ["# " + "x" * 1000] * 100) + "\n"
    documents = [good] * 11 + [BAD] + [good] * 11 + [BAD + "a: ["]
    file.write_text("---\n".join(documents))
    lines = file.read_text().splitlines()
    report = json.loads(run(str(file), "-o", "json").stdout)
    assert (report["files"], report["objects"]) == (1, 23)
    unknown = [entry for entry in report["diagnostics"] if "coutn" in entry["path"]]
    assert [lines[entry["line"] - 1].strip() for entry in unknown] == ["coutn: 3"]
    assert "not YAML" in report["diagnostics"][-1]["message"]


def test_gates_decide_what_is_a_fault() -> None:
    source = GOOD.replace(".com}", ".com, capacity: {requests: {memory: 10Gi}}}")
    assert run("-", "--feature-gates", "DRAConsumableCapacity=false", stdin=source).exit_code == 0
    stored = run("-", "--feature-gates", "DRAConsumableCapacity=false", "--output-version", "v1", stdin=source)
    assert "capacity" not in stored.stdout
    refused = run("-", "--feature-gates", "DRAConsumableCapacty=true", stdin=source)
    assert refused.exit_code == 2
    assert "there is no feature gate" in refused.stderr


def test_what_would_be_stored_is_shown_in_the_version_asked_for() -> None:
    result = run("-", "--output-version", "v1beta1", stdin=GOOD)
    assert result.exit_code == 0
    assert result.stdout.startswith("apiVersion: resource.k8s.io/v1beta1\nkind: ResourceClaim\n")
    assert "count: 1" in result.stdout
    assert "exactly" not in result.stdout
    report: dict[str, Any] = json.loads(run("-", "--output-version", "v1", "-o", "json", stdin=GOOD).stdout)
    assert report["stored"][0]["spec"]["devices"]["requests"][0]["exactly"]["allocationMode"] == "ExactCount"


# --- Bad input -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "source",
    [b"\x00", b"\xff\xfe", b"a: \xc3", b'{"a": NaN}', b"&a [*a]", b"%YAML 9.9\n---\na", b"[" * 3_000_000, b"{a: " * 3_000_000, b"- " * 3_000_000, b'{"a":' * 3_000_000, b" " * 3_000_000 + b"a", b"? " * 3_000_000, b"a" * 3_000_000, b"!!!!", b"'", b"--- |\n\t"],
    ids=lambda source: source[:8].decode(errors="replace").encode("unicode_escape").decode(),
)  # fmt: skip
def test_bad_bytes_end_in_an_error_and_no_traceback(source: bytes) -> None:
    result = run("-", stdin=source)
    assert result.exit_code == 1
    assert result.exception is None or isinstance(result.exception, SystemExit)
    assert "<stdin>:" in result.stdout


@pytest.mark.slow
def test_a_hundred_megabytes_of_nesting_are_refused_at_once(tmp_path: Path) -> None:
    file = tmp_path / "deep.yaml"
    file.write_bytes(b"a: " + b"[" * 100_000_000)
    finished = subprocess.run(
        [sys.executable, "-m", "dralloc", "validate", str(file)],
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert finished.returncode == 1
    assert "levels deep" in finished.stdout
    assert "Traceback" not in finished.stderr


manifests = st.builds(
    lambda base, start, length, patch: base[:start] + patch + base[start + length :],
    st.sampled_from([GOOD, BAD]),
    st.integers(0, len(BAD)),
    st.integers(0, 20),
    st.text(alphabet="ab019:-{}[]\"'&*!|>#,. \n\té\x00", max_size=10),
)


@pytest.mark.fuzz
@pytest.mark.slow
@given(manifests)
def test_any_damage_to_a_manifest_is_told_or_harmless(source: str) -> None:
    result = run("-", stdin=source)
    assert result.exit_code in (0, 1), result.output
    assert result.exception is None or isinstance(result.exception, SystemExit)
    assert result.exit_code == 0 or ": error: " in result.stdout


# --- As a program --------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_whoever_stops_reading_hears_no_complaint(tmp_path: Path) -> None:
    file = tmp_path / "many.yaml"
    file.write_text("---\n".join([BAD] * 100))
    with child_process(
        [sys.executable, "-m", "dralloc", "validate", str(file)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert b"Traceback" not in process.stderr.read()


@pytest.mark.slow
def test_text_that_the_terminal_cannot_show_is_escaped(tmp_path: Path) -> None:
    file = tmp_path / "claim.yaml"
    file.write_text(GOOD.replace("name: a}", "name: ä☃}"), encoding="utf-8")
    environment = os.environ | {"PYTHONIOENCODING": "ascii", "LC_ALL": "C"}
    finished = subprocess.run(
        [sys.executable, "-m", "dralloc", "validate", str(file)], capture_output=True, env=environment, check=False
    )
    assert finished.returncode == 1
    assert b"\\xe4\\u2603" in finished.stdout


GATED = """\
apiVersion: resource.k8s.io/v1beta1
kind: ResourceClaim
metadata: {name: a}
spec:
  devices:
    requests:
    - name: gpu
      deviceClassName: gpu.example.com
      devicePreference: MostAvailable
      capacity:
        requests: {memory: 1Gi}
        limits: {memory: 2Gi}
---
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: s}
spec:
  driver: gpu.example.com
  nodeName: node-a
  pool: {name: p, generation: 1, resourceSliceCount: 1}
  devices:
  - name: gpu-0
    allowMultipleAllocations: true
    remainder: GiveToLast
    capacity:
      memory: {value: 10Gi, requestPolicy: {zeroConsumption: true}}
      limits: {value: 10Gi, requestPolicy: {default: 1Gi, strategy: BlockOrShare}}
"""


def test_fields_that_a_server_drops_are_warned_of_where_they_are_written() -> None:
    result = run("-", stdin=GATED)
    assert result.exit_code == 0, result.output
    dropped = [line.split(": ") for line in result.stdout.splitlines() if ": dropped by " in line]
    assert [(parts[0].removeprefix("<stdin>:"), parts[2], parts[3].split()[8]) for parts in dropped] == [
        ("9:7", "spec.devices.requests[0].exactly.devicePreference", "DRADevicePreference"),
        ("12:9", "spec.devices.requests[0].exactly.capacity.limits", "DRACapacityLimits"),
        ("24:5", "spec.devices[0].remainder", "DRACapacityRemainder"),
        ("26:45", "spec.devices[0].capacity[memory].requestPolicy.zeroConsumption", "DRAZeroConsumption"),
        ("27:59", "spec.devices[0].capacity[limits].requestPolicy.strategy", "DRACapacityStrategies"),
    ]
    assert "dropped" not in run("-", "--feature-gates", "AllAlpha=true", stdin=GATED).output
