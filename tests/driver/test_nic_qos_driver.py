"""The example driver nic-qos, with real traffic shaping where the machine has it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dralloc.kube.resource_v1 import ResourceClaim
from tests.driver.example_cluster import (
    claim_document,
    cluster_with,
    fields,
    health_of,
    results_of,
    run,
    show_environment,
    written,
)

pytestmark = pytest.mark.slow


@contextmanager
def network_namespace() -> Iterator[str]:
    """A network namespace with two interfaces; skips the test without the permission."""
    name = f"nic-qos-{os.getpid()}"
    commands = [f"ip netns add {name}"]
    for number in (1, 2):
        commands += [
            f"ip -n {name} link add eth{number} type veth peer name peer{number}",
            f"ip -n {name} link set eth{number} up",
            f"ip -n {name} link set peer{number} up",
        ]
    commands += [
        f"tc -n {name} qdisc add dev eth1 root handle 1: htb",
        f"ip -n {name} link add link eth1 name probe type macvlan mode bridge",
        f"ip -n {name} link del probe",
    ]
    try:
        for command in commands:
            made = subprocess.run(command.split(), capture_output=True, text=True, check=False)
            if made.returncode != 0:
                pytest.skip(f"not allowed here: {command}: {made.stderr.strip()}")
        yield name
    except FileNotFoundError as error:
        pytest.skip(f"not installed here: {error.filename}")
    finally:
        if shutil.which("ip"):
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


def shown(*command: str) -> Any:
    done = subprocess.run(command, capture_output=True, check=True)
    return msgspec.json.decode(done.stdout or b"[]")


def class_rates(namespace: str, interface: str) -> list[int]:
    """The guaranteed rates of the shares on an interface, in bit/s."""
    listed = subprocess.run(
        ["tc", "-n", namespace, "class", "show", "dev", interface], capture_output=True, text=True, check=True
    ).stdout
    units = {"bit": 1, "Kbit": 10**3, "Mbit": 10**6, "Gbit": 10**9}
    found = re.findall(r"class htb 1:([0-9a-f]+) parent \S+ .*?rate (\d+)(\w+) ", listed)
    return [int(amount) * units[unit] for number, amount, unit in found if int(number, 16) >= 0x10]


@pytest.mark.real
def test_stories_1_to_3_with_real_shaping(directory: Path) -> None:
    async def scenario(namespace: str) -> None:
        environment = {
            "NIC_QOS_NETNS": namespace,
            "NIC_QOS_INTERFACES": "eth1,eth2",
            "NIC_QOS_LINE_BITS": "1000000000",
        }
        async with cluster_with(directory, "nic-qos", **environment) as cluster:
            rates: dict[str, int] = {}
            for name in ("any-nic", "two-nics", "guaranteed"):
                await cluster.client.create(claim_document("nic-qos", name))
                await cluster.run_pod(name, {"nic": name}, *show_environment("NIC_QOS", directory / name))
                for value in (await written(directory / name)).values():
                    rates[fields(value)["interface"]] = int(fields(value)["bits"])
                on = [fields(value)["on"] for value in (await written(directory / name)).values()]
                if name == "two-nics":
                    assert sorted(on) == ["eth1", "eth2"], "story 2: they are distinct"
            # Stories 1 and 3: the default without a request, and requests rounded up to the step.
            assert sorted(rates.values()) == [100_000_000, 100_000_000, 100_000_000, 260_000_000]
            links = {link["ifname"] for link in shown("ip", "-json", "-n", namespace, "link", "show")}
            assert rates.keys() <= links
            classes = [rate for interface in ("eth1", "eth2") for rate in class_rates(namespace, interface)]
            assert sorted(classes) == sorted(rates.values())
            seen = await cluster.until(
                ResourceClaim, "guaranteed", lambda claim: claim is not None and bool(claim.status.devices)
            )
            assert seen is not None
            (status,) = seen.status.devices
            assert status.network_data is not None
            assert status.network_data.interface_name in rates
            assert [(found.type, found.status) for found in status.conditions or ()] == [("Guaranteed", "True")]
            await health_of(cluster, "two-nics", {"Healthy"})
            subprocess.run(["ip", "-n", namespace, "link", "set", "peer2", "down"], check=True)
            await health_of(cluster, "two-nics", {"Healthy", "Unhealthy"})
            for name in ("any-nic", "two-nics", "guaranteed"):
                await cluster.delete_pod(name)
                await cluster.claim_is_free(name)
            links = {link["ifname"] for link in shown("ip", "-json", "-n", namespace, "link", "show")}
            assert not rates.keys() & links, "nothing is left behind"

    with network_namespace() as namespace:
        run(scenario(namespace))


def test_a_dry_run_only_accounts_for_bandwidth(directory: Path) -> None:
    async def scenario() -> None:
        environment = {"NIC_QOS_DRY": "1", "NIC_QOS_INTERFACES": "lo", "NIC_QOS_LINE_BITS": "1000000000"}
        async with cluster_with(directory, "nic-qos", **environment) as cluster:
            (published,) = await cluster.published()
            (found,) = published.spec.devices or ()
            assert found.attributes["enforced"].bool is False
            await cluster.client.create(claim_document("nic-qos", "guaranteed"))
            await cluster.run_pod("p", {"nic": "guaranteed"}, *show_environment("NIC_QOS", directory / "p"))
            (value,) = (await written(directory / "p")).values()
            assert fields(value)["bits"] == "260000000"
            await cluster.delete_pod("p")

    run(scenario())


def test_a_driver_sees_the_share_and_the_limit_of_a_claim(directory: Path) -> None:
    async def scenario() -> None:
        environment = {"NIC_QOS_DRY": "1", "NIC_QOS_INTERFACES": "lo", "NIC_QOS_LINE_BITS": "1000000000"}
        async with cluster_with(directory, "nic-qos", "DRACapacityLimits=true", **environment) as cluster:
            document = claim_document("nic-qos", "guaranteed", "bursting")
            (asked,) = document["spec"]["devices"]["requests"]
            asked["exactly"]["capacity"]["limits"] = {"bandwidth": "500M"}
            await cluster.client.create(document)
            await cluster.run_pod("p", {"nic": "bursting"}, *show_environment("NIC_QOS", directory / "p"))
            ((name, value),) = (await written(directory / "p")).items()
            (result,) = await results_of(cluster, "bursting")
            assert result.share_id is not None
            assert name == f"NIC_QOS_{result.share_id[:8].upper()}"
            assert (fields(value)["bits"], fields(value)["ceiling"]) == ("260000000", "500000000")
            assert {key: str(limit) for key, limit in result.capacity_limits.items()} == {"bandwidth": "500M"}
            await cluster.delete_pod("p")

    run(scenario())
