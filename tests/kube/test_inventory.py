"""Names of device attributes, and selectors for unknown names."""

from __future__ import annotations

import pytest

from dralloc.cel.compiler import compile_selector_expression
from dralloc.kube.diagnostics import warn_about_unknown_names
from dralloc.kube.inventory import find_unknown_names, take_inventory
from dralloc.kube.manifests import read_manifest
from dralloc.testing.builders import device, resource_slice

SLICE = resource_slice(
    "gpus",
    device("gpu-0", attributes={"model": "a100", "numa.example.net/node": 1}, capacity={"memory": "40Gi"}),
    device("gpu-1", attributes={"model": "h100"}, capacity={"memory": "80Gi"}),
)
D = 'device.attributes["gpu.example.com"]'


def test_names_are_counted_once_per_device() -> None:
    inventory = take_inventory([SLICE])
    assert inventory.device_count == 2
    assert inventory.attributes == {("gpu.example.com", "model"): 2, ("numa.example.net", "node"): 1}
    assert inventory.capacity == {("gpu.example.com", "memory"): 2}


@pytest.mark.parametrize(
    ("expression", "want"),
    [
        (f'{D}.model == "a"', []),
        (f'{D}.modle == "a"', ["the attribute gpu.example.com/modle; did you mean gpu.example.com/model?"]),
        (f"{D}.?node.hasValue()", ["the attribute gpu.example.com/node; did you mean numa.example.net/node?"]),
        (f"has({D}.rainbow)", ["the attribute gpu.example.com/rainbow"]),
        ('device.capacity["gpu.example.com"].cores.isInteger()', ["the capacity gpu.example.com/cores"]),
        ('device.driver == "x"', []),
    ],
)
def test_names_that_no_device_has_are_found(expression: str, want: list[str]) -> None:
    unknown = find_unknown_names(compile_selector_expression(expression).reads, take_inventory([SLICE]))
    assert [str(name) for name in unknown] == [f"no device in these files has {text}" for text in want]


def test_without_devices_no_name_is_unknown() -> None:
    assert not find_unknown_names(compile_selector_expression(f"has({D}.x)").reads, take_inventory([]))


SLICES_FILE = b"""\
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: a}
spec:
  driver: gpu.example.com
  allNodes: true
  pool: {name: p, generation: 1, resourceSliceCount: 1}
  devices: [{name: gpu-0, attributes: {model: {string: a100}}}]
"""
CLASSES_FILE = b"""\
apiVersion: resource.k8s.io/v1
kind: List
items:
- apiVersion: resource.k8s.io/v1
  kind: DeviceClass
  metadata: {name: gpu}
  spec:
    selectors:
    - cel: {expression: 'device.attributes["gpu.example.com"].model == "a"'}
    - cel:
        expression: device.attributes["gpu.example.com"].modle == "a"
    - cel: {expression: 'not an expression'}
"""


def test_warnings_have_the_position_of_the_selector() -> None:
    ((index, warning),) = warn_about_unknown_names([read_manifest(SLICES_FILE), read_manifest(CLASSES_FILE)])
    assert index == 1
    assert (warning.position.line, warning.position.column) == (11, 9)
    assert (warning.path, warning.kind, warning.name) == ("spec.selectors[1].cel.expression", "DeviceClass", "gpu")
    assert warning.message.endswith("did you mean gpu.example.com/model?")


def test_there_is_no_warning_without_a_readable_slice() -> None:
    broken = read_manifest(SLICES_FILE.replace(b"gpu.example.com", b"[1]"))
    assert list(warn_about_unknown_names([broken, read_manifest(CLASSES_FILE)])) == []
