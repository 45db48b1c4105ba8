"""Simulated traces: pods get what the scheduler would give them, leave, and those that wait are tried again."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dralloc.answers.cluster_objects import ClusterObjects
from dralloc.primitives.features import FeatureGates
from dralloc.study import (
    Arrival,
    BadInput,
    Cluster,
    NodeRow,
    PodShape,
    Run,
    Trace,
    cluster_of_rows,
    described_cluster,
    read_cluster,
    read_trace,
    simulate,
    synthetic_trace,
)

ONE_NODE = cluster_of_rows("one", [NodeRow("n", 16_000, 65_536, 2, "a")])


def pod(name: str, devices: int = 1, milli: int = 1000, at_s: float = 0, duration_s: float | None = None) -> Arrival:
    return Arrival(name, PodShape(1000, 1024, devices, milli), at_s, duration_s)


def placed(run: Run) -> dict[str, float | None]:
    return dict(zip(run.pods["name"], run.pods["placed_s"], strict=True))


def test_pods_share_devices_until_none_is_left() -> None:
    run = simulate(Trace("t", tuple(pod(f"p{n}", milli=400) for n in range(6))), ONE_NODE)
    assert [row["node"] for row in run.records()] == ["n"] * 4 + [None] * 2
    assert run.steps["allocated_milli"] == [400, 800, 1200, 1600, 1600, 1600]
    assert run.allocated_percent == 80
    assert run.unplaced_by_size == {"≤ ½": 2}
    assert run.records()[-1]["reason"].startswith("0/1 nodes are available")
    assert run.stranded_percent["remainder-too-small"] == 20


def test_waiting_pods_are_placed_in_the_order_of_arrival_when_others_leave() -> None:
    arrivals = (
        pod("first", 2, duration_s=100),
        pod("large", 2, at_s=1, duration_s=10),
        pod("small", 1, at_s=2, duration_s=10),
        pod("smaller", 1, 500, at_s=3),
    )
    run = simulate(Trace("t", arrivals), ONE_NODE)
    assert placed(run) == {"first": 0, "large": 100, "small": 110, "smaller": 110}
    assert run.waits_s == [0, 99, 107, 108]
    assert run.steps["waiting"] == [0, 1, 2, 3]
    assert dict(zip(run.pods["name"], run.pods["left_s"], strict=True))["small"] == 120


def test_a_waiting_pod_does_not_hold_up_those_behind_it() -> None:
    arrivals = (pod("one", duration_s=100), pod("two", 2, at_s=1), pod("three", at_s=2))
    assert placed(simulate(Trace("t", arrivals), ONE_NODE)) == {"one": 0, "two": None, "three": 2}


def test_departures_at_the_time_of_an_arrival_come_first() -> None:
    arrivals = (pod("one", 2, duration_s=5), pod("two", 2, at_s=5))
    assert placed(simulate(Trace("t", arrivals), ONE_NODE)) == {"one": 0, "two": 5}


def test_models_of_devices() -> None:
    cluster = cluster_of_rows("two", [NodeRow("x", 9000, 9000, 1, "a"), NodeRow("y", 9000, 9000, 1, "")])
    wants = [Arrival(f"p{n}", PodShape(1, 1, 1, 1000, ("a", "b"))) for n in range(2)]
    assert [row["node"] for row in simulate(Trace("t", tuple(wants)), cluster).records()] == ["x", None]


def test_groups_network_cards_and_disks() -> None:
    shape = PodShape(1000, 1024, 1, 1000, (), 50, 1024, "app", 1)
    trace = Trace("t", tuple(Arrival(f"p{n}", shape) for n in range(3)))
    rows = [NodeRow(f"n{n}", 9000, 9000, 4, nics=1, disk_mib=4096) for n in range(2)]
    run = simulate(trace, cluster_of_rows("nics", rows))
    assert {row["node"] for row in run.records()[:2]} == {"n0", "n1"}, "at most one on each node"
    assert run.records()[2]["node"] is None
    assert run.notes == ()
    free = simulate(Trace("t", (Arrival("p", PodShape(1, 1, 0, 0, (), 101 - 1, 99)),)), ONE_NODE)
    assert free.records()[0]["node"] == "n"
    assert len(free.notes) == 2, "what no node has is left out, and said"


def test_devices_of_profiles_are_shared_by_their_capacity() -> None:
    run = simulate(Trace("t", tuple(pod(f"p{n}", milli=500) for n in range(17))), described_cluster("gpu=1"))
    assert (run.capacity_milli, run.steps["allocated_milli"][-1]) == (8000, 8000)
    assert len(run.waits_s) == 16


def test_partitions_count_as_parts_of_their_card() -> None:
    run = simulate(Trace("t", tuple(pod(f"p{n}") for n in range(40))), described_cluster("mig=1"))
    cards = run.capacity_milli // 1000
    assert 0 < cards < 40
    assert 0 < run.steps["allocated_milli"][-1] <= run.capacity_milli


MANIFEST = """\
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: shared, namespace: default}
spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu.example.com}}]}}
"""
POD = """\
---
apiVersion: v1
kind: Pod
metadata: {{name: {name}, namespace: default, creationTimestamp: "2026-01-01T00:00:0{at}Z", annotations: {{dralloc.io/duration-seconds: "{duration}"}}}}
spec:
  containers: [{{name: main, image: train}}]
  resourceClaims: [{{name: gpu, resourceClaimName: shared}}]
"""


def test_a_claim_that_pods_share_is_deallocated_after_the_last(tmp_path: Path) -> None:
    pods = tmp_path / "pods.yaml"
    pods.write_text(
        MANIFEST
        + "".join(
            POD.format(name=name, at=at, duration=duration)
            for name, at, duration in (("a", 0, 3), ("b", 1, 4), ("c", 9, 1))
        )
    )
    run = simulate(read_trace(pods), read_cluster("gpu"))
    assert placed(run) == {"default/a": 0, "default/b": 1, "default/c": 9}
    assert run.steps["allocated_milli"] == [1000, 1000, 1000]
    assert len(set(run.pods["node"])) == 1


RUNNING = """\
apiVersion: v1
kind: Node
metadata: {name: node}
status: {allocatable: {cpu: "8", memory: 8Gi, pods: "10"}}
---
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: gpu.example.com}
spec: {}
---
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: node}
spec:
  {driver: gpu.example.com, nodeName: node, pool: {name: node, generation: 1, resourceSliceCount: 1}, devices: [{name: a}, {name: b}]}
---
apiVersion: v1
kind: Pod
metadata: {name: runs, namespace: default, uid: u}
spec:
  nodeName: node
  containers: [{name: main, image: train, resources: {requests: {cpu: "5"}}}]
  resourceClaims: [{name: gpu, resourceClaimName: mine}]
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: mine, namespace: default, uid: c}
spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu.example.com}}]}}
status:
  allocation: {devices: {results: [{request: gpu, driver: gpu.example.com, pool: node, device: b}]}}
  reservedFor: [{resource: pods, name: runs, uid: u}]
"""


def test_pods_that_run_in_the_cluster_stay_unless_the_trace_has_them(tmp_path: Path) -> None:
    dump = tmp_path / "dump.yaml"
    dump.write_text(RUNNING)
    cluster = read_cluster(dump)
    beside = simulate(Trace("t", tuple(Arrival(f"p{n}", PodShape(2000, 1, 1)) for n in range(2))), cluster)
    assert beside.pods["node"] == ["node", None], "one device and three cores are left"
    assert beside.steps["allocated_milli"] == [2000, 2000]
    again = simulate(read_trace(dump), cluster)
    assert (again.pods["node"], again.steps["allocated_milli"]) == (["node"], [1000])


def test_pods_of_manifests_can_be_drawn_several_times(tmp_path: Path) -> None:
    pods = tmp_path / "pods.yaml"
    template = MANIFEST.replace("kind: ResourceClaim", "kind: ResourceClaimTemplate").replace(
        "spec: {devices:", "spec: {spec: {devices:"
    )
    pods.write_text(
        template.rstrip()
        + "}\n"
        + POD.format(name="a", at=0, duration=1).replace("resourceClaimName", "resourceClaimTemplateName")
    )
    run = simulate(read_trace(pods), read_cluster("gpu"), load=1.0)
    assert len(run.pods["name"]) == 8
    assert run.allocated_percent == 100


def test_a_run_does_not_depend_on_anything_but_its_seed() -> None:
    trace, cluster = synthetic_trace("pods=150", seed=3), described_cluster("8x8:64:512,2x0:64:256")
    one, two = (simulate(trace, cluster, seed=5, load=1.1) for _ in range(2))
    assert (one.steps, one.pods, one.stranded) == (two.steps, two.pods, two.stranded)
    assert simulate(trace, cluster, seed=6, load=1.1).pods["name"] != one.pods["name"]


def test_traces_and_clusters_can_be_sent_to_other_processes() -> None:
    trace, cluster = synthetic_trace("pods=5"), described_cluster("gpu=2")
    copy, copied = pickle.loads(pickle.dumps((trace, cluster)))
    assert (copy.digest, copied.digest) == (trace.digest, cluster.digest)
    assert simulate(copy, copied).pods == simulate(trace, cluster).pods


def test_data_frames_take_the_columns_of_a_run() -> None:
    """A data frame is made from columns of equal length, or from records."""
    run = simulate(synthetic_trace("pods=30"), ONE_NODE)
    for columns in (run.steps, run.pods, run.stranded):
        assert type(columns) is dict
        assert len({len(column) for column in columns.values()}) == 1
    assert run.records()[3]["name"] == run.pods["name"][3]
    assert Run.of_values(run.to_values()) == run


def test_devices_that_pods_cannot_request() -> None:
    bare = Cluster("cpus", ClusterObjects(FeatureGates.defaults()))
    with pytest.raises(BadInput, match="cpus: no devices with a device class, but pods of t request devices"):
        simulate(Trace("t", (pod("p"),)), bare)


TWO_NODES = cluster_of_rows("two", [NodeRow(f"n{n}", 16_000, 65_536, 2) for n in range(2)])


def test_pods_are_moved_to_make_room() -> None:
    """One device of each node is in use; a pod that needs two of one node gets them after one move."""
    arrivals = (pod("a", duration_s=50), pod("b"), pod("large", 2, at_s=1, duration_s=10), pod("larger", 2, at_s=2))
    stuck = simulate(Trace("t", arrivals), TWO_NODES)
    assert placed(stuck) == {"a": 0, "b": 0, "large": 50, "larger": 60}
    run = simulate(Trace("t", arrivals), TWO_NODES, moves_max=1)
    assert placed(run) == {"a": 0, "b": 0, "large": 1, "larger": 11}
    assert run.moves == run.summary()["moves"] == 1
    assert run.steps["allocated_milli"] == [1000, 2000, 4000, 4000]
    first, second, *_ = run.records()
    assert first["node"] == second["node"]
    assert (first["left_s"], second["left_s"]) == (50, None)


SHAPES = st.builds(
    PodShape,
    cpu_milli=st.integers(0, 12_000),
    memory_mib=st.integers(0, 40_000),
    devices=st.just(1),
    milli=st.integers(1, 1000),
) | st.builds(PodShape, cpu_milli=st.integers(0, 8000), memory_mib=st.integers(0, 999), devices=st.integers(0, 3))
ARRIVALS = st.lists(st.tuples(SHAPES, st.integers(0, 20), st.none() | st.integers(1, 30)), min_size=1, max_size=25).map(
    lambda drawn: Trace.of(
        "random", (Arrival(f"p{n}", shape, at_s, duration_s) for n, (shape, at_s, duration_s) in enumerate(drawn))
    )
)


@settings(max_examples=15, deadline=None)
@given(ARRIVALS)
def test_moves_lose_no_pod_and_no_device(trace: Trace) -> None:
    """Pods that were moved run as long as they would have, and what is allocated is what running pods request."""
    run = simulate(trace, TWO_NODES, moves_max=2)
    durations = {each.name: each.duration_s for each in trace.arrivals}
    for row in run.records():
        if row["placed_s"] is not None:
            duration_s = durations[row["name"]]
            assert row["left_s"] == (None if duration_s is None else row["placed_s"] + duration_s)
    rows = zip(run.steps["time_s"], run.steps["allocated_milli"], run.steps["arrival"], strict=True)
    for time_s, allocated, number in rows:
        here = [
            row
            for row in run.records()[:number]
            if row["placed_s"] is not None
            and row["placed_s"] <= time_s
            and (row["left_s"] is None or row["left_s"] > time_s)
        ]
        assert allocated == sum(row["requested_milli"] for row in here)


@settings(max_examples=40, deadline=None)
@given(ARRIVALS)
def test_no_node_ever_has_more_than_it_offers(trace: Trace) -> None:
    """Counted a second time, from the times at which pods were placed and left."""
    run = simulate(trace, TWO_NODES)
    shapes = {each.name: each.load for each in trace.arrivals}
    records = [row for row in run.records() if row["node"] is not None]
    for moment in records:
        here = [
            shapes[row["name"]]
            for row in records
            if row["node"] == moment["node"]
            and row["placed_s"] <= moment["placed_s"]
            and (row["left_s"] is None or row["left_s"] > moment["placed_s"])
        ]
        loads = [each for each in here if isinstance(each, PodShape)]
        assert sum(each.cpu_milli for each in loads) <= 16_000
        assert sum(each.memory_mib for each in loads) <= 65_536
        assert sum(each.requested_milli for each in loads) <= 2000
    assert max(run.steps["allocated_milli"]) <= run.capacity_milli == 4000
    for name, column in run.stranded.items():
        assert min(column, default=0) >= 0, name
