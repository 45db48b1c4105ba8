"""The scheduler's metrics of devices follow what it places."""

from __future__ import annotations

from dralloc.testing.builders import claim, device, device_class, request, resource_slice
from tests.support.scheduled_cluster import ScheduledCluster, in_cluster, node, our_pod

GI = 2**30


def figures(cluster: ScheduledCluster) -> dict[str, str]:
    """The figures that are not zero, by name and cause."""
    lines = (line.rpartition(" ") for line in cluster.schedulers[0].counters.text().splitlines())
    return {
        name.partition("{")[0].removeprefix("dralloc_") + name.partition("cause=")[2].strip('"}'): value
        for name, _, value in lines
        if name.startswith("dralloc_") and value != "0"
    }


@in_cluster()
async def test_figures_follow_placements(cluster: ScheduledCluster) -> None:
    cards = [device(f"gpu-{number}", capacity={"memory": "80Gi"}, shareable=True) for number in range(2)]
    await cluster.create(node("n1", cpu="4"), resource_slice("gpus", *cards, node_name="n1", pool="n1"), device_class())
    await cluster.settle()
    unused = {
        "devices": "2",
        "free_devices": "2",
        "capacity": str(160 * GI),
        "available_capacity": str(160 * GI),
        "largest_fit": str(80 * GI),
    }
    assert figures(cluster) == unused | {"idle_devices": "2"}
    await cluster.create(claim("a", request(capacity={"memory": "60Gi"})), our_pod("a", "a", requests={"cpu": "3"}))
    await cluster.settle()
    assert figures(cluster) == unused | {
        "free_devices": "1",
        "device_shares": "1",
        "available_capacity": str(100 * GI),
        "idle_devices": "1.25",
        "stranded_devicesremainder-too-small": "0.5",
        "stranded_devicescpu-starved": "0.75",
    }
    await cluster.remove_pod("a")
    await cluster.release("a")
    await cluster.settle()
    assert figures(cluster) == unused | {
        "idle_devices": "2",
        "stranded_devicesremainder-too-small": "0.5",
        "stranded_devicescpu-starved": "0.75",
    }
