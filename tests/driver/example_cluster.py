"""A cluster with an example driver, and what its pods and claims show."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import yaml

from dralloc.client.typed_resource import ObjectKey
from dralloc.kube.resource_v1 import DeviceRequestAllocationResult, ResourceClaim
from dralloc.node.pod_view import NODE_PODS
from tests.support.driver_cluster import DriverCluster, driver_cluster

EXAMPLES = Path(__file__).parents[2] / "examples" / "drivers"


def documents(example: str, file: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((EXAMPLES / example / "manifests" / file).read_text()))


def claim_document(example: str, name: str, rename: str = "") -> dict[str, Any]:
    (found,) = [
        document
        for document in documents(example, "claims.yaml")
        if document["kind"] == "ResourceClaim" and document["metadata"]["name"] == name
    ]
    return {**found, "metadata": {**found["metadata"], "name": rename or name}}


@asynccontextmanager
async def cluster_with(
    directory: Path, example: str, gates: str = "", **environment: str
) -> AsyncIterator[DriverCluster]:
    async with driver_cluster(directory, gates=gates) as cluster:
        for document in documents(example, "classes.yaml"):
            await cluster.client.create(document)
        await cluster.start_driver(EXAMPLES / example / "driver.py", **environment)
        yield cluster


def run(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(scenario)


def show_environment(prefix: str, file: Path) -> tuple[str, ...]:
    """A container that prints its environment and keeps running."""
    return ("sh", "-c", f"env | grep ^{prefix} | sort > {file}.new; mv {file}.new {file}; exec sleep 600")


async def written(file: Path) -> dict[str, str]:
    """The printed environment."""
    async with asyncio.timeout(60):
        while not file.exists():
            await asyncio.sleep(0.02)
    return dict(line.split("=", 1) for line in file.read_text().splitlines())


def rewrite(file: Path, text: str) -> None:
    """Replace a file that a driver reads, atomically."""
    other = file.with_name(f"{file.name}.new")
    other.write_text(text)
    other.replace(file)


async def results_of(cluster: DriverCluster, claim: str) -> tuple[DeviceRequestAllocationResult, ...]:
    allocation = (await cluster.client.get(ResourceClaim, claim)).status.allocation
    assert allocation is not None
    return allocation.devices.results


async def health_of(cluster: DriverCluster, pod: str, wanted: set[str]) -> None:
    """Wait until the pod's status shows this health."""
    seen: set[str] = set()
    async with asyncio.timeout(60):
        while seen != wanted:
            await asyncio.sleep(0.1)
            status = (await cluster.client.calls.get(NODE_PODS, ObjectKey("default", pod))).status
            seen = {
                device.health
                for container in status.container_statuses
                for entry in container.allocated_resources_status
                for device in entry.resources
            }


def fields(value: str) -> dict[str, str]:
    return dict(part.split("=", 1) for part in value.split(","))
