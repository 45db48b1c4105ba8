"""`dralloc dump`: everything that an answer depends on, in one file."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO

import typer

from dralloc.cli.options import Context, Files, Gates, Kubeconfig, Namespace
from dralloc.cli.output import parse_gates, say, writing

if TYPE_CHECKING:
    from dralloc.answers.dump import ClusterDump


class DumpFormat(StrEnum):
    YAML = "yaml"
    JSON = "json"


def dump(
    output: Annotated[Path | None, typer.Option("--output", "-o", help="The file to write; default: print.")] = None,
    anonymize: Annotated[
        bool, typer.Option("--anonymize", help="Rename what names people, teams, workloads and machines.")
    ] = False,
    format: Annotated[
        DumpFormat | None,
        typer.Option(metavar="FORMAT", help="yaml or json; default: json for a FILE that ends with .json, else yaml."),
    ] = None,
    files: Files = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    namespace: Namespace = None,
    feature_gates: Gates = "",
) -> None:
    """Write everything that answers about a cluster depend on to one file. Nothing is written to the cluster.

    With `-f FILE`, other commands answer from the file as they would have answered from the cluster when it was written, to the byte.
    Secrets and fields that no answer reads (environment, commands, images, annotations of pods) are left out. The file begins with a
    header: the time, the versions of the server and of dralloc, the feature gates, the kinds that it contains, and for `dralloc doctor`
    until when certificates are valid.

    With --anonymize, names, labels and free text are replaced, each name by the same other one everywhere and in the same order, so that
    all answers stay the same but for the names. Drivers, classes, devices, and the names of attributes and capacities stay.

    # Attach this to a bug report.
    dralloc dump --anonymize -o dump.yaml

    # Ask later, or on another machine. JSON is read faster.
    dralloc dump -o cluster.json
    dralloc explain pod ml/train-0 -f cluster.json

    # Anonymize a dump that exists.
    dralloc dump -f cluster.json --anonymize -o anonymous.json
    """
    from dralloc.answers.cluster_objects import relevant_kinds
    from dralloc.answers.doctor.live_facts import read_all_facts
    from dralloc.answers.dump import documents, header_of
    from dralloc.answers.live_cluster import server_version
    from dralloc.cli.cluster_source import ClusterSource, print_notes
    from dralloc.cli.product_version import version_text
    from dralloc.cli.progress import progress
    from dralloc.cli.server_connection import ask_server, find_server

    source = ClusterSource(files=files, kubeconfig=kubeconfig, context=context, namespace=namespace)
    kinds = [object_type for object_type, _ in relevant_kinds()]
    objects, read = source.read(parse_gates(feature_gates), kinds, with_workload_pods=False, with_writes=True)
    print_notes(objects)
    if source.has_cluster:
        connection = find_server(kubeconfig, context)
        objects.server_version = ask_server(connection, server_version)
        objects.facts = ask_server(connection, lambda transport: read_all_facts(transport, connection))
    header = header_of(objects, read, dralloc=version_text())
    bodies = documents(header, objects)
    total = 1 + sum(each.count for each in header.kinds)
    if anonymize:
        from dralloc.answers.anonymizer import Anonymizer

        anonymizer = Anonymizer(list(bodies))
        objects.notes += anonymizer.notes
        print_notes(objects)
        bodies = anonymizer.documents()
    if format is None:
        format = DumpFormat.JSON if output is not None and output.suffix == ".json" else DumpFormat.YAML
    pieces = _pieces(progress(bodies, total=total, what="writing"), format)
    if output is None:
        sys.stdout.flush()
        _write(sys.stdout.buffer, pieces)
        return
    with writing(output), output.open("wb") as file:
        _write(file, pieces)
    say(f"{output}: {_contents(header)}", err=True)


def _pieces(bodies: Iterator[bytes], format: DumpFormat) -> Iterator[bytes]:
    """The file, one object after the other."""
    if format is DumpFormat.YAML:
        from dralloc.kube.json_reader import read_json
        from dralloc.kube.yaml_writer import write_yaml

        for number, body in enumerate(bodies):
            yield b"---\n" * bool(number) + write_yaml(read_json(body.decode())).encode()
        return
    yield b'{"apiVersion":"v1","kind":"List","items":[\n'
    for number, body in enumerate(bodies):
        yield b",\n" * bool(number) + body
    yield b"\n]}\n"


def _write(file: BinaryIO, pieces: Iterator[bytes]) -> None:
    for piece in pieces:
        file.write(piece)
    file.flush()


def _contents(header: ClusterDump) -> str:
    """What the file contains, in words."""
    counts = [f"{each.count:,} {each.kind}" for each in header.kinds if each.count]
    return ", ".join(counts) or "no objects"
