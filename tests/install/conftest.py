"""A user's home with the kubeconfig of a running cluster."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cluster_process import cluster_process
from tests.support.installation import PROGRAMS, environment_of

OBJECTS = """
apiVersion: v1
kind: Namespace
metadata: {name: ml}
---
apiVersion: v1
kind: Pod
metadata: {name: train-0, namespace: ml}
spec: {containers: [{name: c, image: example.com/c}]}
---
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: default}
spec: {containers: [{name: c, image: example.com/c}]}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: shared-gpu, namespace: ml}
spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu.example.com}}]}}
"""


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The home of a user whose kubeconfig is that of a cluster with a node, its devices and a few objects."""
    directory = tmp_path_factory.mktemp("home")
    (directory / ".kube").mkdir()
    kubeconfig = directory / ".kube" / "config"
    options = ("--nodes", "gpu=1", "--ephemeral", "--one-process", "--kubeconfig", str(kubeconfig))
    with cluster_process(*options):
        (directory / "objects.yaml").write_text(OBJECTS)
        apply = [str(PROGRAMS / "dralloc"), "apply", "-f", str(directory / "objects.yaml")]
        subprocess.run(apply, env=environment_of(directory), check=True, stdout=subprocess.DEVNULL)
        yield directory
