"""How well strategies use a cluster: a synthetic trace, and the public ones where `TRACES` names their directory.

    make bench ARGS=placement TRACES=~/clusterdata/cluster-trace-gpu-v2023/csv SEEDS=10

The directory has the published names (`openb_pod_list_default.csv`, `openb_node_list_gpu_node.csv`) or short ones
(`pods_default.csv.gz`, `nodes.csv.gz`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from bench.measurement import Figure, benchmark
from dralloc.study import described_cluster, read_cluster, read_trace
from dralloc.study.comparison import ComparedRuns, compared
from dralloc.study.strategies import STRATEGY_NAMES
from dralloc.study.study import FIRST_SEED, Study, run_study
from dralloc.study.synthetic_trace import SyntheticMix, SyntheticTraces

MIX: Final = "pods=600; shapes=60; cores=uniform(2, 12)"
NODES: Final = "24x8:96:768,12x4:64:512,6x2:96:384,6x0:94:256"
LOAD: Final = 1.3
SYNTHETIC_SEEDS: Final = 3
# The unallocated percentage that FGD leaves, as published (analysis_allo_discrete.csv of its simulator).
PUBLISHED: Final = {"default": 4.61, "gpushare100": 13.10, "multigpu50": 2.82, "cpu250": 6.59, "gpuspec33": 5.45}
BEST: Final = "FragmentationAware"


@benchmark("placement")
def placement() -> Iterator[Figure]:
    synthetic = SyntheticTraces(SyntheticMix.parse(MIX))
    groups = _compared(Study([synthetic], described_cluster(NODES), STRATEGY_NAMES, _seeds(SYNTHETIC_SEEDS), LOAD))
    yield from _figures(groups)
    if "TRACES" not in os.environ:
        return
    directory = Path(os.environ["TRACES"])
    cluster = read_cluster(_one_of(directory, "nodes.csv.gz", "openb_node_list_gpu_node.csv"))
    for name, published in PUBLISHED.items():
        trace = read_trace(_one_of(directory, f"pods_{name}.csv.gz", f"openb_pod_list_{name}.csv"))
        study = Study([trace], cluster, STRATEGY_NAMES, _seeds(int(os.environ.get("SEEDS", "10"))), LOAD)
        yield from _figures(_compared(study), published)


def _seeds(count: int) -> Sequence[int]:
    return range(FIRST_SEED, FIRST_SEED + count)


def _compared(study: Study) -> list[ComparedRuns]:
    return compared(run_study(study))


def _figures(groups: Sequence[ComparedRuns], published: float | None = None) -> Iterator[Figure]:
    for group in groups:
        target = published if group.strategy == BEST else None
        yield Figure(f"{group.trace}, {group.strategy}: unallocated", group.unallocated_percent, "%", target)
        yield Figure(
            f"{group.trace}, {group.strategy}: decisions", group.mean("decisions_per_s"), "1/s", more_is_better=True
        )


def _one_of(directory: Path, *names: str) -> Path:
    return next((directory / name for name in names if (directory / name).exists()), directory / names[-1])
