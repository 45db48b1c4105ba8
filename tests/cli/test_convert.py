"""`dralloc convert`: manifests in another version, nothing lost on the way."""

from __future__ import annotations

import json

import pytest
import yaml
from typer.testing import CliRunner, Result

from dralloc.cli.main import app

CLAIM = """\
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: a, labels: {version: "1e3", on: "yes"}}
spec:
  devices:
    requests:
    - name: exact
      exactly: {deviceClassName: gpu.example.com, count: 2}
    - name: list
      firstAvailable: [{name: big, deviceClassName: big.example.com}]
    config:
    - opaque: {driver: gpu.example.com, parameters: {ratio: 0.5, script: "two\\nlines", none: null}}
"""


def run(*arguments: str, stdin: str) -> Result:
    return CliRunner().invoke(app, ["convert", "-f", "-", *arguments], input=stdin)


def test_requests_change_their_shape() -> None:
    result = run("--to", "v1beta1", stdin=CLAIM)
    assert result.exit_code == 0
    exact, first_available = yaml.safe_load(result.stdout)["spec"]["devices"]["requests"]
    assert exact == {"name": "exact", "deviceClassName": "gpu.example.com", "count": 2}
    assert first_available == {
        "name": "list",
        "deviceClassName": "",
        "firstAvailable": [{"name": "big", "deviceClassName": "big.example.com"}],
    }


@pytest.mark.parametrize("version", ["v1", "v1beta1", "v1beta2"])
def test_there_and_back_is_the_same(version: str) -> None:
    there = run("--to", version, stdin=CLAIM).stdout
    assert json.loads(run("--to", "v1", "-o", "json", stdin=there).stdout) == json.loads(
        run("--to", "v1", "-o", "json", stdin=CLAIM).stdout
    )


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (CLAIM.replace("/v1\n", "/v9\n"), "<stdin>: ResourceClaim a: there is no ResourceClaim in resource.k8s.io/v9; it exists in v1, v1beta2, v1beta1"),
        ("apiVersion: resource.k8s.io/v1alpha3\nkind: ResourceSlice\nmetadata: {name: s}", "ResourceSlice s: there is no ResourceSlice in resource.k8s.io/v1alpha3"),
        (CLAIM.replace("ResourceClaim", "ResourceKlaim"), "<stdin>: ResourceKlaim a: unknown kind of resource.k8s.io/v1"),
        ("hello", "<stdin>: expected an object with apiVersion and kind"),
        ("[]", "<stdin>: expected an object with apiVersion and kind"),
        (f"{CLAIM}---\nkind: Pod\n", "<stdin>: expected an object with apiVersion and kind"),
        ("# nothing\n", "no objects in <stdin>: empty, or only comments"),
    ],
    ids=["a version to come", "a version that is gone", "a kind", "a text", "a list", "no version", "nothing"],
)  # fmt: skip
def test_what_is_no_object_of_a_known_version_is_told(source: str, said: str) -> None:
    result = run("--to", "v1", stdin=source)
    assert (result.exit_code, result.stdout, said in result.stderr) == (2, "", True), result.stderr


def test_other_kinds_stay_as_they_are_and_order_is_kept() -> None:
    result = run("--to", "v1beta1", stdin=f"apiVersion: v1\nkind: Pod\n---\n{CLAIM}")
    pod, claim = yaml.safe_load_all(result.stdout)
    assert pod == {"apiVersion": "v1", "kind": "Pod"}
    assert claim["apiVersion"] == "resource.k8s.io/v1beta1"
    listed = json.loads(run("--to", "v1beta1", "-o", "json", stdin=f"{CLAIM}---\n{CLAIM}").stdout)
    assert (listed["kind"], len(listed["items"])) == ("List", 2)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("apiVersion: resource.k8s.io/v1\nkind: DeviceTaintRule", "it exists in v1, v1beta2"),
        ("apiVersion: resource.k8s.io/v1\nkind: DeviceClass\nspec: 7", "dralloc validate"),
        ("a: [", "<stdin>:2:1: not YAML"),
    ],
)
def test_what_cannot_be_converted_is_told(source: str, said: str) -> None:
    result = run("--to", "v1beta1", stdin=source + "\n")
    assert result.exit_code == 2
    assert said in result.stderr
