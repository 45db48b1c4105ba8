"""Readers of traces: the public formats of Alibaba's GPU clusters (2023 and 2025), our own CSV, and manifests.

The first line of a CSV file tells its format. Times become seconds after the earliest one; a trace without times has pods that
arrive one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from dralloc.study.comparison import BadInput, CsvRow, CsvTable, read_bytes, table_of
from dralloc.study.manifest_files import manifest_arrivals
from dralloc.study.trace import WHOLE_DEVICE, Arrival, PodShape, Trace

MIB_PER_GIB: Final = 1024

_ReadArrival = Callable[[CsvRow], Arrival]


def read_trace(path: str | Path) -> Trace:
    """The trace of a file, whose format is found from its content. Raises BadInput."""
    content = read_bytes(path)
    name = Path(path).name.removesuffix(".gz").rpartition(".")[0] or Path(path).name
    if not _is_csv(path):
        return Trace.of(name, manifest_arrivals(path, content))
    table = table_of(path, content)
    read = _reader_for(table)
    arrivals = [_checked(row, read) for row in table.rows()]
    if not arrivals:
        raise BadInput(f"{path}: the trace has no pods")
    return Trace.of(name, _numbered(_from_zero(arrivals)))


def _is_csv(path: str | Path) -> bool:
    return str(path).removesuffix(".gz").endswith((".csv", ".tsv", ".txt"))


def _reader_for(table: CsvTable) -> _ReadArrival:
    for columns, read in _FORMATS.items():
        if set(columns) <= set(table.columns):
            return read
    known = "; ".join(",".join(columns) for columns in _FORMATS)
    raise BadInput(f"{table.file}:1: unknown columns {','.join(table.columns)}; a trace has one of: {known}")


def _checked(row: CsvRow, read: _ReadArrival) -> Arrival:
    arrival = read(row)
    load = arrival.load
    assert isinstance(load, PodShape), "tables have shapes"
    if load.devices > 1 and load.milli < WHOLE_DEVICE:
        raise BadInput(
            f"{row.file}:{row.line}: {load.devices} devices of {load.milli} thousandths each: only one device can be shared"
        )
    return arrival


# --- Alibaba 2023 (openb) -----------------------------------------------------------------------------------------


def _read_openb(row: CsvRow) -> Arrival:
    devices = row.whole("num_gpu")
    models = row.text("gpu_spec")
    shape = PodShape(
        cpu_milli=row.whole("cpu_milli"),
        memory_mib=row.whole("memory_mib"),
        devices=devices,
        milli=row.whole("gpu_milli", maximum=WHOLE_DEVICE) if devices else 0,
        models=tuple(sorted(models.split("|"))) if models and devices else (),
    )
    if devices and not shape.milli:
        raise row.bad("gpu_milli", "a pod with devices needs more than 0 of each")
    return _timed(row, row.name("name"), shape)


def _timed(row: CsvRow, name: str, shape: PodShape) -> Arrival:
    """With the times of both public formats. A pod without a deletion time stays."""
    created, deleted = row.optional_number("creation_time"), row.optional_number("deletion_time")
    started = row.optional_number("scheduled_time")
    if deleted is None:
        return Arrival(name, shape, created or 0.0)
    begin = next((time for time in (started, created) if time is not None), 0.0)
    if deleted < begin:
        raise row.bad("deletion_time", f"{deleted:g} is before the pod began at {begin:g}")
    return Arrival(name, shape, created or 0.0, deleted - begin)


# --- Alibaba 2025 (disaggregated inference) -----------------------------------------------------------------------


def _read_disaggregated(row: CsvRow) -> Arrival:
    """Amounts in cores and GiB; `rdma_request` is a percentage of a network card."""
    density = row.number("max_instance_per_node", -1, minimum=-1)
    shape = PodShape(
        cpu_milli=row.scaled("cpu_request", 1000),
        memory_mib=row.scaled("memory_request", MIB_PER_GIB),
        devices=row.whole("gpu_request", 0),
        nic_percent=row.whole("rdma_request", 0, maximum=100),
        disk_mib=row.scaled("disk_request", MIB_PER_GIB),
        group=row.name("app_name"),
        per_node_max=int(density) if density >= 1 else None,
    )
    return _timed(row, row.name("instance_sn"), shape)


# --- Ours ---------------------------------------------------------------------------------------------------------


def _read_plain(row: CsvRow) -> Arrival:
    """`devices` may be a fraction below 1; see docs/simulation.md."""
    devices = row.number("devices", 0)
    if devices >= 1 and devices != int(devices):
        raise row.bad("devices", f"expected a whole number, or a part of one device, got {row.text('devices')!r}")
    milli = WHOLE_DEVICE if devices >= 1 else round(devices * WHOLE_DEVICE)
    if devices and not milli:
        raise row.bad("devices", "the smallest part of a device is 0.001")
    models = row.text("models")
    return Arrival(
        row.name("name"),
        PodShape(
            cpu_milli=row.scaled("cores", 1000),
            memory_mib=row.scaled("memory_gib", MIB_PER_GIB),
            devices=int(devices) if devices >= 1 else int(devices > 0),
            milli=milli,
            models=tuple(sorted(models.split("|"))) if models else (),
        ),
        row.number("arrival_s", 0),
        row.optional_number("duration_s"),
    )


_FORMATS: Final[dict[tuple[str, ...], _ReadArrival]] = {
    ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli"): _read_openb,
    ("instance_sn", "app_name", "cpu_request", "gpu_request", "memory_request"): _read_disaggregated,
    ("name", "cores", "memory_gib", "devices"): _read_plain,
}


def _from_zero(arrivals: Iterable[Arrival]) -> Iterator[Arrival]:
    found = list(arrivals)
    start = min(each.at_s for each in found)
    for each in found:
        yield replace(each, at_s=each.at_s - start)


def _numbered(arrivals: Iterable[Arrival]) -> Iterator[Arrival]:
    """Names that occur twice get a number: names of pods are unique."""
    seen: dict[str, int] = {}
    for each in arrivals:
        count = seen[each.name] = seen.get(each.name, 0) + 1
        yield each if count == 1 else replace(each, name=f"{each.name}-{count}")
