"""`dralloc simulate`: how well strategies of the scheduler use a cluster, for the pods of a trace."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from dralloc.cli.options import Output, OutputFormat
from dralloc.cli.output import INTERRUPTED, fail, in_words, say, writing

if TYPE_CHECKING:
    from collections.abc import Callable

    from dralloc.study.cluster import Cluster
    from dralloc.study.comparison import ComparedRuns
    from dralloc.study.run import Run
    from dralloc.study.study import Study, TraceSource

SYNTHETIC_HELP: Final = (
    "Draw the trace from distributions, instead of reading one: KEY=VALUE with semicolons, or an empty text for the defaults. Keys: pods, "
    "shapes, devices, cores (for each device), memory (GiB for each core), models, constrained, interarrival and duration (seconds). Values: 4, "
    "'0.5:3 1:5' (values with weights), 'uniform(1, 8)', 'exponential(20)', 'lognormal(3600, 1.5)' (median, sigma)."
)


def simulate(
    traces: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[TRACE]...",
            help="CSV files (Alibaba's GPU traces of 2023 and 2025, or our own format) or manifests; may be compressed with gzip.",
        ),
    ] = None,
    synthetic: Annotated[str | None, typer.Option("--synthetic", metavar="MIX", help=SYNTHETIC_HELP)] = None,
    cluster: Annotated[
        str | None,
        typer.Option(
            "--cluster",
            metavar="FILE",
            help="A table of nodes (CSV), manifests, or a profile (a file or a built-in name).",
        ),
    ] = None,
    nodes: Annotated[
        str | None,
        typer.Option(
            "--nodes",
            metavar="KINDS",
            help="COUNTxDEVICES:CORES:GIB[:MODEL], or PROFILE=COUNT, instead of --cluster; several with commas.",
        ),
    ] = None,
    strategy: Annotated[
        str,
        typer.Option(
            "--strategy",
            metavar="NAMES",
            help="Strategies to compare: names, or FILE.py:NAME for one of your own.",
        ),
    ] = "Spread",
    seeds: Annotated[
        int, typer.Option("--seeds", metavar="COUNT", min=1, help="The number of runs with different seeds.")
    ] = 1,
    seed: Annotated[int, typer.Option("--seed", help="The first seed.")] = 42,
    load: Annotated[
        float | None,
        typer.Option(
            "--tune",
            metavar="FACTOR",
            min=0.01,
            help="Let pods arrive in a random order, so many that they request this multiple of the cluster's devices; none leaves.",
        ),
    ] = None,
    moves_max: Annotated[
        int,
        typer.Option(
            "--moves-max",
            metavar="COUNT",
            min=0,
            help="Move at most so many pods to make room for one that no node can take, as dralloc defrag plans it. Slow on large clusters.",
        ),
    ] = 0,
    device_class: Annotated[
        str, typer.Option("--device-class", help="The class that pods of tables request; for manifests and profiles.")
    ] = "",
    capacity: Annotated[
        str, typer.Option("--capacity", help="The capacity of which shares are parts; for manifests and profiles.")
    ] = "",
    run_dir: Annotated[
        Path | None,
        typer.Option(
            "--run-dir", help="Keep finished runs here: the same command, started again, goes on where it ended."
        ),
    ] = None,
    report: Annotated[
        Path | None, typer.Option("--report", metavar="FILE", help="Write an HTML report with plots.")
    ] = None,
    csv_file: Annotated[
        Path | None, typer.Option("--csv", metavar="FILE", help="Write one row for each run as CSV.")
    ] = None,
    workers: Annotated[
        int | None, typer.Option("--workers", metavar="COUNT", min=1, help="Processes; default: one for each core.")
    ] = None,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Simulate how pods of a trace are placed on a cluster, and compare strategies of the scheduler.

    Pods are decided by the scheduler's own code in virtual time. A pod that no node can take waits until another one leaves. With --tune,
    the experiment of published studies: pods arrive until they request a multiple of the devices, and the part of the devices that stays
    unallocated is the result.

    # 500 pods on 20 nodes with 8 devices, 96 cores and 768 GiB each.
    dralloc simulate --synthetic 'pods=500' --nodes 20x8:96:768

    # A trace with arrivals and durations, on the nodes of a table, with a report.
    dralloc simulate pods.csv --cluster nodes.csv --report report.html

    # A published experiment; interrupted, it goes on where it ended.
    dralloc simulate pods.csv --cluster nodes.csv --tune 1.3 --run-dir runs
    """
    from dralloc.study.comparison import BadInput, compared
    from dralloc.study.study import Study, kept_runs, run_study

    try:
        study = Study(
            traces=_traces(traces or [], synthetic),
            cluster=_cluster(cluster, nodes, device_class, capacity),
            strategies=tuple(dict.fromkeys(filter(None, map(str.strip, strategy.split(","))))),
            seeds=range(seed, seed + seeds),
            load=load,
            moves_max=moves_max,
            directory=run_dir,
            **({"workers": workers} if workers is not None else {}),
        )
        if kept := kept_runs(study):
            say(f"{kept} of {len(study.tasks)} runs are finished already in {run_dir}", err=True)
        with _progress(study) as advance:
            runs = run_study(study, advance)
        if csv_file is not None:
            _write(csv_file, _csv_text(runs))
        if report is not None:
            from dralloc.study.html_report import html_report

            _write(report, html_report(runs))
    except BadInput as error:
        fail(str(error))
    except OSError as error:
        fail(in_words(error))
    except KeyboardInterrupt:
        again = f"; finished runs are in {run_dir}, the same command goes on from there" if run_dir else ""
        fail(f"interrupted{again}", INTERRUPTED)
    from dralloc.cli.answers import answer

    for note in dict.fromkeys(note for run in runs for note in run.notes):
        say(note, err=True)
    groups = compared(runs)
    answer(output, lambda: _values(groups, runs), lambda: _lines(groups, is_wide=output is OutputFormat.WIDE))


def _traces(files: Sequence[Path], synthetic: str | None) -> list[TraceSource]:
    from dralloc.study.synthetic_trace import SyntheticMix, SyntheticTraces
    from dralloc.study.trace_files import read_trace

    if not files and synthetic is None:
        fail("give the file of a trace, or --synthetic MIX; --synthetic '' is a mix with defaults")
    found: list[TraceSource] = [read_trace(file) for file in files]
    if synthetic is not None:
        found.append(SyntheticTraces(SyntheticMix.parse(synthetic)))
    names = [each.name for each in found]
    if len(set(names)) < len(names):
        fail(f"two traces have the name {max(names, key=names.count)}; rename a file")
    return found


def _cluster(file: str | None, nodes: str | None, device_class: str, capacity: str) -> Cluster:
    from dralloc.study.cluster_files import described_cluster, read_cluster

    if (file is None) == (nodes is None):
        fail("give either --cluster or --nodes, such as --nodes 100x8:96:768")
    if file is not None:
        return read_cluster(file, device_class=device_class, capacity=capacity)
    assert nodes is not None
    return described_cluster(nodes, device_class=device_class, capacity=capacity)


@contextmanager
def _progress(study: Study) -> Iterator[Callable[[int], None] | None]:
    from dralloc.cli.progress import progress_bar

    with progress_bar(study.pods, "simulating") as advance:
        yield advance


def _write(path: Path, text: str) -> None:
    with writing(path):
        path.write_text(text, encoding="utf-8")


# --- Text -----------------------------------------------------------------------------------------------------------------


def _lines(groups: list[ComparedRuns], *, is_wide: bool) -> Iterator[str]:
    from dralloc.cli.tables import table
    from dralloc.study.run import ordered_sizes

    has_waits = any(group.mean("wait_s", "p95") for group in groups)
    has_moves = any(group.mean("moves") for group in groups)
    header = ["TRACE", "STRATEGY", "ALLOCATED", "UNALLOCATED", "STRANDED", "PODS", "REFUSED"]
    header += ["WAIT", "WAIT P95"] if has_waits else []
    header += ["MOVES"] if has_moves else []
    header += ["DECISIONS/S"] if is_wide else []
    rows: list[list[str]] = []
    for group in groups:
        spread = f" ±{group.deviation:.2f}" if len(group.runs) > 1 else ""
        row = [group.trace, group.strategy, f"{100 - group.unallocated_percent:.2f} %"]
        row += [f"{group.unallocated_percent:.2f} %{spread}"]
        row += [f"{sum(group.stranded_percent.values()):.2f} %"]
        row += [f"{group.mean('pods'):,.0f}", f"{group.mean('unplaced'):,.0f}"]
        row += [_time(group.mean("wait_s", "mean")), _time(group.mean("wait_s", "p95"))] if has_waits else []
        row += [f"{group.mean('moves'):,.0f}"] if has_moves else []
        row += [f"{group.mean('decisions_per_s'):,.0f}"] if is_wide else []
        rows.append(row)
    yield from table(header, rows)
    causes = list(dict.fromkeys(cause for group in groups for cause in group.stranded_percent))
    sizes = ordered_sizes({size for group in groups for size in group.unplaced_by_size})
    if causes:
        parts = [[f"{group.stranded_percent.get(cause, 0.0):.2f} %" for cause in causes] for group in groups]
        yield from ("", *_details("STRANDED BY CAUSE", causes, groups, parts))
    if sizes:
        parts = [[f"{group.unplaced_by_size.get(size, 0.0):,.0f}" for size in sizes] for group in groups]
        yield from ("", *_details("REFUSED BY DEVICES", sizes, groups, parts))


def _details(title: str, names: list[str], groups: list[ComparedRuns], cells: list[list[str]]) -> list[str]:
    from dralloc.cli.tables import table

    rows = [(group.trace, group.strategy, *row) for group, row in zip(groups, cells, strict=True)]
    return table((title, "", *names), rows)


def _time(seconds: float) -> str:
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.1f}{unit}"
    return f"{seconds:.1f}s"


# --- JSON and CSV ---------------------------------------------------------------------------------------------------------


def _values(groups: list[ComparedRuns], runs: list[Run]) -> dict[str, Any]:
    return {"results": [group.values() for group in groups], "runs": [run.summary() for run in runs]}


def _csv_text(runs: list[Run]) -> str:
    import csv
    import io

    rows = [_flat(run.summary()) for run in runs]
    text = io.StringIO()
    writer = csv.DictWriter(text, list(dict.fromkeys(name for row in rows for name in row)), restval=0)
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _flat(values: dict[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, dict):
            flat |= {f"{name}.{inner}": each for inner, each in value.items()}
        else:
            flat[name] = value
    return flat
