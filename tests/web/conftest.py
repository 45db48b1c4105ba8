"""One cluster of `dralloc up` with objects of every kind, and one browser window, for all tests of the page."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dralloc import connect
from dralloc.client.blocking_client import Client
from dralloc.testing import builders as build
from tests.support.browser import Page
from tests.support.cluster_process import ClusterProcess, cluster_process
from tests.support.web_scene import NODES, scene
from tests.support.web_window import LIVE, Window, window
from tests.support.workloads import Document, claim_template, pod, pod_group, template


@pytest.fixture(scope="package")
def cluster() -> Iterator[ClusterProcess]:
    with cluster_process("--ephemeral", "--nodes", NODES, "--feature-gates", "GenericWorkload=true") as running:
        yield running


@pytest.fixture(scope="package")
def client(cluster: ClusterProcess) -> Iterator[Client]:
    with connect(cluster.kubeconfig) as connected:
        for document in scene():
            connected.create(document)
        yield connected


@pytest.fixture(scope="package")
def opened(cluster: ClusterProcess, client: Client) -> Iterator[Window]:
    with window() as shown:

        async def open_page(page: Page) -> None:
            await page.resize(1280, 800)
            await page.open(f"{cluster.url}/ui/")
            await page.until(LIVE)
            # All pods that fit are scheduled.
            await page.sees("1 pending")

        shown.run(open_page)
        yield shown
        # The browser logs a question about an object that was deleted in the meantime.
        assert [error for error in shown.page.errors if "404" not in error or "/explain/" not in error] == []
        foreign = [sent.url for sent in shown.page.sent if not sent.url.startswith((cluster.url, "about:"))]
        assert foreign == []


@pytest.fixture(scope="package")
def gang(client: Client, opened: Window) -> None:
    """A gang of which some pods would fit on a node. It comes after what the page waits for when it is opened."""
    whole = build.request("gpu", device_class="gpu.example.com")
    client.create(claim_template("whole", whole, namespace="research"))
    client.create(pod_group("gang", namespace="research", min_count=4))
    for number in range(4):
        client.create(_member(f"gang-{number}"))


def _member(name: str) -> Document:
    made = pod(name, {"gpus": template("whole")}, namespace="research", group="gang")
    return {**made, "spec": {**made["spec"], "nodeSelector": {"kubernetes.io/hostname": "gpu-2"}}}
