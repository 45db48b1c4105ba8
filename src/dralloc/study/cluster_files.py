"""Readers of clusters: tables of nodes, manifests, profiles of simulated nodes, and descriptions of kinds of nodes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from dralloc.answers.cluster_objects import ClusterObjects
from dralloc.answers.planner import BadShape, CandidateShape, Growths, add_classes
from dralloc.node.simulated.profiles import BadProfile, profile_names
from dralloc.primitives.features import FeatureGates
from dralloc.study.cluster import PODS_PER_NODE, Cluster, NodeRow, cluster_of_rows, terms_for
from dralloc.study.comparison import BadInput, CsvRow, read_bytes, table_of
from dralloc.study.manifest_files import manifest_objects
from dralloc.study.trace_files import MIB_PER_GIB

# COUNTxDEVICES:CORES:GIB[:MODEL]
_KIND: Final = re.compile(r"(\d+)x(\d+):(\d+(?:\.\d+)?):(\d+(?:\.\d+)?)(?::([\w.-]+))?")
_NODES_MAX: Final = 100_000
# Nodes of profiles need a time of creation.
_SOME_TIME: Final = datetime(2026, 1, 1, tzinfo=UTC)


def read_cluster(path: str | Path, *, device_class: str = "", capacity: str = "") -> Cluster:
    """The cluster of a file: a table of nodes, manifests, or a profile (a built-in one by its name). Raises BadInput.

    `device_class` and `capacity` say what pods of tables request, where manifests and profiles leave a choice.
    """
    if str(path) in profile_names():
        return _profile_cluster(str(path), str(path), device_class, capacity)
    content = read_bytes(path)
    name = Path(path).name.removesuffix(".gz")
    if name.endswith((".csv", ".tsv", ".txt")):
        table = table_of(path, content)
        table.require(_OPENB if "cpu_milli" in table.columns else _PLAIN)
        read = _openb_row if "cpu_milli" in table.columns else _plain_row
        rows = _distinct(map(read, table.rows()), str(path))
        return cluster_of_rows(name, rows)
    if re.search(rb"^nodes:", content, re.M) and not re.search(rb"^kind:", content, re.M):
        return _profile_cluster(str(path), str(path), device_class, capacity)
    objects = manifest_objects(path, content)
    if not objects.has_nodes:
        raise BadInput(f"{path}: no nodes")
    return Cluster(name, objects, terms_for(objects, device_class, capacity))


def described_cluster(text: str, *, device_class: str = "", capacity: str = "") -> Cluster:
    """The cluster of a description: `COUNTxDEVICES:CORES:GIB[:MODEL]`, or `PROFILE=COUNT`, several with commas.

    Raises BadInput.
    """
    parts = [part.strip() for part in text.split(",") if part.strip()]
    kinds = [_KIND.fullmatch(part) for part in parts]
    if parts and all(kinds):
        return cluster_of_rows(text, _distinct(_described_rows(kinds), text))
    if not parts or any(kinds) or not all("=" in part for part in parts):
        raise BadInput(
            f"nodes {text!r}: expected COUNTxDEVICES:CORES:GIB[:MODEL], such as 100x8:96:768:a100, or PROFILE=COUNT, "
            f"such as gpu=100; several with commas, all of one form"
        )
    return _profile_cluster(text, text, device_class, capacity)


# --- Tables -------------------------------------------------------------------------------------------------------

_OPENB: Final = ("sn", "cpu_milli", "memory_mib", "gpu")
_PLAIN: Final = ("name", "cores", "memory_gib", "devices")


def _openb_row(row: CsvRow) -> NodeRow:
    return NodeRow(
        row.name("sn"),
        row.whole("cpu_milli"),
        row.whole("memory_mib"),
        row.whole("gpu", 0),
        row.text("model"),
    )


def _plain_row(row: CsvRow) -> NodeRow:
    return NodeRow(
        row.name("name"),
        row.scaled("cores", 1000),
        row.scaled("memory_gib", MIB_PER_GIB),
        row.whole("devices", 0),
        row.text("model"),
        row.whole("nics", 0),
        row.scaled("disk_gib", MIB_PER_GIB),
        row.whole("pods", PODS_PER_NODE),
    )


def _described_rows(kinds: list[re.Match[str] | None]) -> Iterator[NodeRow]:
    for number, kind in enumerate(kinds):
        assert kind is not None, "all parts match"
        count, devices, cores, gib, model = kind.groups()
        if not 1 <= int(count) <= _NODES_MAX:
            raise BadInput(f"nodes {kind[0]!r}: the number of nodes must be between 1 and {_NODES_MAX:,}")
        for index in range(int(count)):
            yield NodeRow(
                f"node-{number}-{index:05}",
                round(float(cores) * 1000),
                round(float(gib) * MIB_PER_GIB),
                int(devices),
                model or "",
            )


def _distinct(rows: Iterator[NodeRow], where: str) -> list[NodeRow]:
    found: dict[str, NodeRow] = {}
    for row in rows:
        if row.name in found:
            raise BadInput(f"{where}: node {row.name} is listed twice")
        found[row.name] = row
    if not found:
        raise BadInput(f"{where}: no nodes")
    return list(found.values())


# --- Profiles -----------------------------------------------------------------------------------------------------


def _profile_cluster(name: str, text: str, device_class: str, capacity: str) -> Cluster:
    """The nodes of profiles; a profile without a count has one round of its kinds of nodes."""
    objects = ClusterObjects(FeatureGates.defaults(), place=name)
    try:
        shapes = [CandidateShape.parse(part.strip()) for part in text.split(",") if part.strip()]
        add_classes(objects, shapes)
        for shape in shapes:
            _add_nodes(objects, shape, is_counted="=" in text)
    except (BadShape, BadProfile) as error:
        raise BadInput(str(error)) from None
    return Cluster(name, objects, terms_for(objects, device_class, capacity))


def _add_nodes(objects: ClusterObjects, shape: CandidateShape, *, is_counted: bool) -> None:
    growths = Growths(shape, _SOME_TIME)
    wanted = shape.nodes_max if is_counted else shape.unit
    added = 0
    for number in range(-(-wanted // shape.unit)):
        growth = growths(number)
        for node in growth.nodes[: wanted - added]:
            objects.add(node)
            added += 1
        for each in growth.slices:
            objects.add(each)
