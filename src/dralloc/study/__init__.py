"""Simulation of traces: how well a strategy of the scheduler uses a cluster.

from dralloc.study import read_cluster, read_trace, simulate

run = simulate(read_trace("pods.csv"), read_cluster("nodes.csv"), "Spread")
run.summary()["unallocated_percent"]
"""

from dralloc.study.cluster import Cluster, NodeRow, cluster_of_rows
from dralloc.study.cluster_files import described_cluster, read_cluster
from dralloc.study.comparison import BadInput
from dralloc.study.run import Run
from dralloc.study.simulation import simulate
from dralloc.study.synthetic_trace import SyntheticMix, synthetic_trace
from dralloc.study.trace import Arrival, PodShape, Trace
from dralloc.study.trace_files import read_trace

__all__ = [
    "Arrival",
    "BadInput",
    "Cluster",
    "NodeRow",
    "PodShape",
    "Run",
    "SyntheticMix",
    "Trace",
    "cluster_of_rows",
    "described_cluster",
    "read_cluster",
    "read_trace",
    "simulate",
    "synthetic_trace",
]
