"""A claim's whole story in the browser and on the command line: created, waited and why, allocated, used, released, deleted."""

from __future__ import annotations

import re

import pytest
from typer.testing import CliRunner

from dralloc.cli.main import app
from dralloc.client.blocking_client import Client
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.resource_v1 import DeviceClass, ResourceClaim
from tests.support.browser import Page
from tests.support.cluster_process import ClusterProcess
from tests.support.web_scene import with_own_claim
from tests.support.web_window import Window

pytestmark = [pytest.mark.slow, pytest.mark.real]

WHOLE = ["Created", "FailedScheduling", "Allocated", "Deallocated", "Deleted"]
STEPS = "[...document.querySelectorAll('#story ~ .events .badge')].map((each) => each.innerText)"
TEXT = "document.querySelector('#story ~ .events').innerText"


def test_a_claims_whole_story(opened: Window, client: Client, cluster: ClusterProcess) -> None:
    documents = with_own_claim("serving", "life", {"exactly": {"deviceClassName": "late.example.com"}})
    late = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": "late.example.com"},
        "spec": {"selectors": [{"cel": {"expression": 'device.driver == "nic.example.com"'}}]},
    }

    async def told(page: Page, reason: str) -> None:
        await page.until(f"{STEPS}.includes('{reason}')")

    async def look(page: Page) -> None:
        for document in documents:
            client.create(document)
        await page.go("#/claims/serving/life")
        await told(page, "FailedScheduling")
        assert "pod life: " in await page.run(TEXT)
        assert "late.example.com" in await page.run(TEXT)
        client.create(late)
        await told(page, "Allocated")
        assert re.search(r"allocated nic.example.com/nic-\d/eth\d.* for pods/life", await page.run(TEXT))
        await told(page, "Prepared")
        await page.click("#story ~ .events a[href='#/pods/serving/life']")
        await page.sees("is on node nic-")
        client.delete(Pod, "life", namespace="serving")
        await page.go("#/claims/serving/life")
        await told(page, "Deallocated")
        assert "can be allocated again; it is no longer reserved for pods/life" in await page.run(TEXT)
        client.delete(ResourceClaim, "life", namespace="serving")
        await page.sees("There is no claim serving/life")
        await told(page, "Deleted")
        assert await page.run(STEPS) == WHOLE
        # The address alone is enough.
        await page.reload()
        await told(page, "Deleted")

    opened.run(look)
    said = CliRunner().invoke(app, ["explain", "claim", "serving/life", "--kubeconfig", str(cluster.kubeconfig)])
    assert said.exit_code == 1
    assert said.stdout.splitlines()[0] == "claim serving/life does not exist any more"
    steps = [line.split()[1].rstrip(":") for line in said.stdout.splitlines() if line.startswith("  20")]
    assert steps == WHOLE
    client.delete(DeviceClass, "late.example.com")


def test_a_claim_that_never_was_has_no_story(opened: Window) -> None:
    async def look(page: Page) -> None:
        await page.go("#/claims/serving/never")
        await page.sees("There is no claim serving/never")
        await page.sees("no claim serving/never in the cluster")
        assert await page.run("document.querySelector('#story')") is None

    opened.run(look)


def test_texts_of_events_stay_texts(opened: Window, client: Client) -> None:
    hostile = "<img src=x onerror='window.taken=1'><script>window.taken=1</script>"
    about = {
        "kind": "ResourceClaim",
        "apiVersion": "resource.k8s.io/v1",
        "namespace": "serving",
        "name": "haunted",
        "uid": "u",
    }
    seen = {"firstTimestamp": "2026-01-01T00:00:00Z", "lastTimestamp": "2026-01-01T00:00:09Z", "count": -1}
    pod = {"kind": "Pod", "name": hostile, "namespace": "serving", "uid": "v"}
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "haunted.1", "namespace": "serving"},
        "involvedObject": about,
        "reason": hostile,
        "message": hostile,
        "related": pod,
        **seen,
    }

    async def look(page: Page) -> None:
        client.create(event)
        await page.go("#/claims/serving/haunted")
        await page.until(f"{TEXT}.includes('onerror')")
        assert await page.run("document.querySelectorAll('main img, main script').length") == 0
        assert await page.run("window.taken") is None

    opened.run(look)
