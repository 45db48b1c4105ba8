"""Readers of traces: each format gives the same kind of arrivals, and bad input is named by file, line and column."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from dralloc.study.comparison import BadInput
from dralloc.study.trace import Arrival, ManifestPod, PodShape, Trace
from dralloc.study.trace_files import read_trace

OPENB = (
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n"
)
DISAGGREGATED = (
    "instance_sn,role,app_name,cpu_request,cpu_limit,gpu_request,gpu_limit,rdma_request,rdma_limit,memory_request,"
    "memory_limit,disk_request,disk_limit,max_instance_per_node,creation_time,scheduled_time,deletion_time\n"
)
PLAIN = "name,cores,memory_gib,devices,models,arrival_s,duration_s\n"


def write(directory: Path, text: str, name: str = "pods.csv") -> Path:
    path = directory / name
    path.write_text(text)
    return path


def test_alibaba_2023_with_times(tmp_path: Path) -> None:
    rows = "b,4000,15258,1,220,,BE,Running,900,1200,950\na,88000,327680,8,1000,G2|A10,LS,Succeeded,100,,100\n"
    trace = read_trace(write(tmp_path, OPENB + rows))
    assert trace == Trace(
        "pods",
        (
            Arrival("a", PodShape(88000, 327680, 8, 1000, ("A10", "G2")), 0, None),
            Arrival("b", PodShape(4000, 15258, 1, 220), 800, 250),
        ),
    )


def test_alibaba_2023_without_times_keeps_the_order_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "pods_x.csv.gz"
    header = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n"
    path.write_bytes(gzip.compress(f"{header}b,1000,1,0,0,\na,1000,1,1,1000,nan\n".encode()))
    trace = read_trace(path)
    assert trace.name == "pods_x"
    assert [(each.name, each.load.devices) for each in trace.arrivals if isinstance(each.load, PodShape)] == [
        ("b", 0),
        ("a", 1),
    ]
    assert not trace.has_departures


def test_alibaba_2025(tmp_path: Path) -> None:
    rows = (
        "i0,HN,app_0,12,12,1,1,25,25,120.0,120.0,640.0,800.0,8,,,\n"
        "i1,CN,app_1,64,64,0,0,1,1,0.5,320.0,255.0,300.0,-1,1435629.0,1435630.0,1435760.0\n"
    )
    first, second = read_trace(write(tmp_path, DISAGGREGATED + rows)).arrivals
    assert first == Arrival("i0", PodShape(12000, 122880, 1, 1000, (), 25, 655360, "app_0", 8))
    assert second == Arrival("i1", PodShape(64000, 512, 0, 1000, (), 1, 261120, "app_1", None), 1435629.0, 130.0)


def test_our_own_format(tmp_path: Path) -> None:
    rows = "half,1.5,4,0.5,,10,\nfour,8,32,4,a|b,12.5,60\nnone,1,1,,,12,1\n"
    assert read_trace(write(tmp_path, PLAIN + rows)).arrivals == (
        Arrival("half", PodShape(1500, 4096, 1, 500), 0, None),
        Arrival("none", PodShape(1000, 1024, 0, 0), 2, 1),
        Arrival("four", PodShape(8000, 32768, 4, 1000, ("a", "b")), 2.5, 60),
    )


def test_pods_of_one_name_are_told_apart(tmp_path: Path) -> None:
    trace = read_trace(write(tmp_path, PLAIN + "a,1,1,1,,,\na,1,1,1,,,\n"))
    assert [each.name for each in trace.arrivals] == ["a", "a-2"]


MANIFEST = """\
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: gpu, namespace: ml}
spec: {spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu.example.com}}]}}}
---
apiVersion: v1
kind: Pod
metadata: {name: late, namespace: ml, creationTimestamp: "2026-01-01T00:01:00Z", annotations: {dralloc.io/duration-seconds: "30"}}
spec:
  nodeName: gone
  containers: [{name: main, image: train}]
  resourceClaims: [{name: gpu, resourceClaimTemplateName: gpu}]
status: {phase: Running}
---
apiVersion: batch/v1
kind: Job
metadata: {name: early, namespace: ml, creationTimestamp: "2026-01-01T00:00:30Z"}
spec: {parallelism: 2, template: {spec: {containers: [{name: main, image: train}]}}}
"""


def test_manifests_with_creation_times(tmp_path: Path) -> None:
    trace = read_trace(write(tmp_path, MANIFEST, "pods.yaml"))
    assert [(each.name, each.at_s, each.duration_s) for each in trace.arrivals] == [
        ("ml/early-0", 0, None),
        ("ml/early-1", 0, None),
        ("ml/late", 30, 30),
    ]
    late = trace.arrivals[-1].load
    assert isinstance(late, ManifestPod)
    assert late.pod.spec.node_name == ""
    assert [claim.metadata.name for claim in late.claims] == ["late-gpu"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (OPENB + "a,x,1,1,1000,,,,,,\n", "pods.csv:2: column cpu_milli: expected a number, got 'x'"),
        (OPENB + "a,1,1,1,1000,,,,,,\nb,1,1,1.5,1000,,,,,,\n", "pods.csv:3: column num_gpu: expected a whole number"),
        (OPENB + "a,1,1,1,1001,,,,,,\n", "pods.csv:2: column gpu_milli: expected at most 1000"),
        (OPENB + "a,1,1,1,0,,,,,,\n", "pods.csv:2: column gpu_milli: a pod with devices needs more than 0"),
        (OPENB + "a,1,1,2,500,,,,,,\n", "pods.csv:2: 2 devices of 500 thousandths each: only one device can be shared"),
        (OPENB + "a,-1,1,1,1000,,,,,,\n", "pods.csv:2: column cpu_milli: expected a number of at least 0"),
        (OPENB + "a,inf,1,1,1000,,,,,,\n", "pods.csv:2: column cpu_milli: expected a number of at least 0"),
        (OPENB + ",1,1,1,1000,,,,,,\n", "pods.csv:2: column name: a name is required"),
        (OPENB + "a,1,1,1,1000,,,,50,40,\n", "pods.csv:2: column deletion_time: 40 is before the pod began at 50"),
        (OPENB + "a,1,1\n", "pods.csv:2: 3 columns, but the first line names 11"),
        (OPENB, "pods.csv: the trace has no pods"),
        ("", "pods.csv:1: no columns; the first line must name them"),
        ("\n" + PLAIN, "pods.csv:1: no columns; the first line must name them"),
        ("a,b\n1,2\n", "pods.csv:1: unknown columns a,b; a trace has one of: name,cpu_milli"),
        ("a,a\n", "pods.csv:1: two columns have the same name"),
        (PLAIN + "a,1,1,1.5,,,\n", "pods.csv:2: column devices: expected a whole number, or a part of one device"),
        (PLAIN + "a,1,1,0.0001,,,\n", "pods.csv:2: column devices: the smallest part of a device is 0.001"),
        (PLAIN + "a,1,1,1,,soon,\n", "pods.csv:2: column arrival_s: expected a number, got 'soon'"),
        (DISAGGREGATED + "i,CN,,1,1,0,0,0,0,1,1,1,1,-1,,,\n", "pods.csv:2: column app_name: a name is required"),
        (
            DISAGGREGATED + "i,CN,a,1,1,0,0,101,0,1,1,1,1,-1,,,\n",
            "pods.csv:2: column rdma_request: expected at most 100",
        ),
    ],
)
def test_bad_tables(tmp_path: Path, text: str, expected: str) -> None:
    with pytest.raises(BadInput) as caught:
        read_trace(write(tmp_path, text))
    assert str(caught.value).startswith(str(tmp_path / expected))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("kind: [\n", "pods.yaml:2: column "),
        ("", "pods.yaml: no pods, and no Jobs or Deployments that would have some"),
        (MANIFEST.replace('"30"', "soon"), "pods.yaml: pod ml/late: annotation dralloc.io/duration-seconds: 'soon'"),
        (MANIFEST.replace("{name: gpu, namespace: ml}", "{name: x, namespace: ml}"), "pods.yaml: claim gpu: template"),
    ],
)
def test_bad_manifests(tmp_path: Path, text: str, expected: str) -> None:
    with pytest.raises(BadInput) as caught:
        read_trace(write(tmp_path, text, "pods.yaml"))
    assert str(caught.value).startswith(str(tmp_path / expected))


def test_a_table_may_be_separated_by_tabs(tmp_path: Path) -> None:
    rows = PLAIN + "a,1,2,0.5,x|y,,\n"
    with_tabs = read_trace(write(tmp_path, rows.replace(",", "\t"), "pods.tsv"))
    assert with_tabs.arrivals == read_trace(write(tmp_path, rows)).arrivals


def test_bad_files(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"none\.csv: No such file or directory"):
        read_trace(tmp_path / "none.csv")
    damaged = tmp_path / "damaged.csv.gz"
    damaged.write_bytes(gzip.compress(OPENB.encode())[:-9])
    with pytest.raises(BadInput, match=r"damaged\.csv\.gz: damaged gzip file"):
        read_trace(damaged)
    latin = tmp_path / "latin.csv"
    latin.write_bytes(PLAIN.encode() + b"caf\xe9,1,1,1,,,\n")
    with pytest.raises(BadInput, match=r"latin\.csv:2: not UTF-8 text"):
        read_trace(latin)
