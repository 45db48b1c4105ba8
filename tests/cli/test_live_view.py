"""What `dralloc top devices --watch` draws: every device where there is room, nodes where there is not."""

from __future__ import annotations

import pytest

from dralloc.answers.device_report import PoolReport
from dralloc.answers.usage_report import UsageReporter, usage_report
from dralloc.cli.device_watch import change_lines, changed_pools, frame, text_of
from dralloc.devices.allocator.features import Features
from dralloc.devices.snapshot import Snapshot
from dralloc.kube.resource_v1 import ResourceClaim
from dralloc.testing import builders as build


def cluster(nodes: int, used: dict[int, str] | None = None) -> Snapshot:
    """Nodes with a card of 80Gi each, of which some is used."""
    slices = [
        build.resource_slice(
            f"s-{number:04}",
            build.device("gpu-0", capacity={"memory": "80Gi"}, shareable=True),
            pool=f"node-{number:04}",
            node_name=f"node-{number:04}",
        )
        for number in range(nodes)
    ]
    return Snapshot.of(slices=slices, claims=[share(number, amount) for number, amount in (used or {}).items()])


def share(number: int, amount: str) -> ResourceClaim:
    held = build.held("gpu-0", pool=f"node-{number:04}", share_id=f"share-{number}", consumed={"memory": amount})
    return build.claim(f"c-{number}", allocation=build.allocation(held))


def drawn(snapshot: Snapshot, height: int = 24) -> list[str]:
    return [text_of(line) for line in frame(usage_report(snapshot, Features()), height=height)]


def test_every_device_where_there_is_room() -> None:
    assert drawn(cluster(2, {1: "20Gi"})) == [
        "2 nodes, 2 devices: 1 free, 1 shared   ",
        "gpu.example.com memory ██░░░░░░░░░░░░░░░░░░ 20Gi of 160Gi  12%",
        "",
        "node-0000",
        "  gpu.example.com/gpu-0  free     memory ░░░░░░░░░░░░░░░░░░░░ 0 of 80Gi  ",
        "node-0001",
        "  gpu.example.com/gpu-0  shared   memory █████░░░░░░░░░░░░░░░ 20Gi of 80Gi  default/c-1",
    ]


@pytest.mark.slow
def test_nodes_with_the_fullest_first_where_there_is_not() -> None:
    lines = drawn(cluster(5000, {7: "80Gi", 4321: "40Gi"}), height=10)
    assert len(lines) == 10
    assert lines[0].startswith("5,000 nodes, 5,000 devices: 4,998 free, 1 shared, 1 full")
    assert lines[3].startswith("node-0007  1 of 1 used  memory ████████████████████ 80Gi of 80Gi")
    assert lines[4].startswith("node-4321  1 of 1 used  memory ██████████░░░░░░░░░░ 40Gi of 80Gi")
    assert lines[-1] == "… 4,994 more nodes; --node NAME shows one"


def test_one_node_that_does_not_fit_is_cut() -> None:
    devices = [build.device(f"d-{number}") for number in range(50)]
    lines = drawn(Snapshot.of(slices=[build.resource_slice("s", *devices)]), height=12)
    assert len(lines) == 12
    assert lines[-1].startswith("… ")


@pytest.mark.parametrize("height", [0, 1, 2, 3])
def test_the_smallest_screen_shows_something(height: int) -> None:
    assert drawn(cluster(30), height=height)


def test_nothing_to_show() -> None:
    assert drawn(Snapshot())[-1] == "no devices"


def test_a_little_is_never_shown_as_nothing() -> None:
    assert "█░░░" in drawn(cluster(1, {0: "1Mi"}))[1]


def test_changes_are_told_device_by_device() -> None:
    reporter = UsageReporter(Features())
    before = reporter.reports(cluster(3, {1: "20Gi"}))
    one_more = cluster(3, {1: "20Gi", 2: "80Gi"})
    assert list(change_lines(before, reporter.reports(one_more))) == [
        "node-0002  gpu.example.com/node-0002/gpu-0  full  memory 80Gi of 80Gi used  default/c-2"
    ]
    gone = reporter.reports(cluster(2, {1: "20Gi"}))
    assert list(change_lines(before, gone)) == ["gpu.example.com/node-0002/gpu-0  is no longer published"]
    assert list(change_lines(before, before)) == []


def test_pools_of_which_nothing_changed_are_reported_once() -> None:
    reporter = UsageReporter(Features())
    snapshot = cluster(3, {1: "20Gi"})
    before = reporter.reports(snapshot)
    after = reporter.reports(snapshot.with_claim(share(2, "1Gi")))
    same = [any(report is known for known in before) for report in after]
    assert same == [True, True, False]
    assert changed_pools(before, after) == [after[2]]
    assert after == usage_report(snapshot.with_claim(share(2, "1Gi")), Features())
    assert isinstance(after[0], PoolReport)
