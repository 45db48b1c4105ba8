"""The environment and command line of a container's process."""

from __future__ import annotations

from typing import Any

import pytest

from dralloc.kube.codec import decode, encode
from dralloc.node.kubelet.cdi import ContainerEdits, DeviceNode, Mount
from dralloc.node.pod_view import NodePod
from dralloc.node.process_runtime import (
    BadEnvironment,
    command_line,
    container_environment,
    expand,
    unsupported_parts,
)


def pod(**container: Any) -> NodePod:
    document = {
        "metadata": {"name": "p", "namespace": "n", "uid": "u", "labels": {"app.io/x": "y"}, "annotations": {"a": "b"}},
        "spec": {"nodeName": "node-a", "containers": [{"name": "main", **container}]},
    }
    return decode(encode(document), NodePod)


def environment(edits: ContainerEdits = ContainerEdits(), **container: Any) -> dict[str, str]:  # noqa: B008 - immutable
    made = pod(**container)
    return container_environment(made, made.spec.containers[0], edits, "10.0.0.7")


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        ("plain", "plain"),
        ("$(A)", "1"),
        ("$(A)-$(B)", "1-$(B)"),
        ("$$(A)", "$(A)"),
        ("$$$(A)", "$1"),
        ("$A ${A} $(A", "$A ${A} $(A"),
    ],
)
def test_known_references_are_expanded(text: str, expanded: str) -> None:
    assert expand(text, {"A": "1"}) == expanded


def test_variables_refer_to_earlier_ones_and_devices_override_them() -> None:
    edits = ContainerEdits(
        env={"GPU": "0", "A": "device"},
        device_nodes=(DeviceNode(path="/dev/gpu0"), DeviceNode(path="/dev/x", host_path="/dev/host-x")),
        mounts=(Mount(host_path="/opt", container_path="/lib"),),
    )
    env = [{"name": "A", "value": "1"}, {"name": "B", "value": "$(A)$(C)"}, {"name": "C", "value": "3"}]
    found = environment(edits, env=env)
    assert (found["A"], found["B"], found["C"], found["GPU"]) == ("device", "1$(C)", "3", "0")
    assert found["DRALLOC_DEVICE_NODES"] == "/dev/gpu0:/dev/host-x"
    assert found["DRALLOC_MOUNTS"] == "/opt:/lib"
    assert found["HOSTNAME"] == "p"


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("metadata.name", "p"),
        ("metadata.namespace", "n"),
        ("metadata.uid", "u"),
        ("metadata.labels['app.io/x']", "y"),
        ("metadata.annotations['a']", "b"),
        ("metadata.labels['absent']", ""),
        ("spec.nodeName", "node-a"),
        ("status.hostIP", "10.0.0.7"),
        ("status.podIP", "10.0.0.7"),
    ],
)
def test_variables_may_refer_to_fields_of_the_pod(path: str, value: str) -> None:
    found = environment(env=[{"name": "X", "valueFrom": {"fieldRef": {"fieldPath": path}}}])
    assert found["X"] == value


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ({"fieldRef": {"fieldPath": "spec.nonsense"}}, "fieldPath 'spec.nonsense' is not supported"),
        ({"secretKeyRef": {"name": "s", "key": "k"}}, "not secretKeyRef"),
        ({}, "not nothing"),
    ],
)
def test_unsupported_references_are_errors(source: dict[str, Any], text: str) -> None:
    with pytest.raises(BadEnvironment, match=text):
        environment(env=[{"name": "X", "valueFrom": source}])


def test_the_command_line_is_command_and_arguments_with_references_replaced() -> None:
    container = pod(command=["run", "$(A)"], args=["--to=$(B)"]).spec.containers[0]
    assert command_line(container, {"A": "1", "B": "2"}) == ["run", "1", "--to=2"]


def test_unsupported_parts_of_a_pod_are_named() -> None:
    made = pod(tty=True, livenessProbe={"exec": {}}, volumeMounts=[{"name": "v"}], resources={"limits": {"cpu": "1"}})
    assert unsupported_parts(made) == ("main.tty", "main.volumeMounts", "main.livenessProbe", "main.resources.limits")
    assert unsupported_parts(pod()) == ()
