"""`dralloc conformance`: compare this version with recorded answers of Kubernetes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dralloc.cli.options import Gates, Output, OutputFormat
from dralloc.cli.output import FINDINGS, fail, parse_gates

if TYPE_CHECKING:
    from dralloc.conformance.vector_family import VectorTally, VectorVerdict


def _families(incomplete: str) -> list[str]:
    from dralloc.conformance.vector_family import FAMILIES

    return [name for name in FAMILIES if name.startswith(incomplete)]


def conformance(
    family: Annotated[
        str,
        typer.Argument(
            metavar="FAMILY",
            help="The family of recorded answers, such as api or quantity.",
            autocompletion=_families,
        ),
    ],
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE", help="Files of recorded answers, one JSON object per line, plain or gzip."),
    ],
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show every disagreement.")] = False,
    server: Annotated[str | None, typer.Option(help="The API server, for families that need one.")] = None,
    token: Annotated[str | None, typer.Option(help="A bearer token for the server.")] = None,
    kubeconfig: Annotated[Path | None, typer.Option(help="A kubeconfig with credentials for the server.")] = None,
    token_file: Annotated[
        Path | None,
        typer.Option(help="The server's token file: users of recorded requests are in it while they run."),
    ] = None,
    output: Output = OutputFormat.TABLE,
    feature_gates: Gates = "",
) -> None:
    """Compare with recorded answers of Kubernetes. Exits with 0 if all agree or are known differences, with 1 otherwise.

    # Does the allocator choose the same devices as Kubernetes? With differences:
    dralloc conformance allocation tests/vectors/allocation.jsonl.gz
    dralloc conformance allocation tests/vectors/allocation.jsonl.gz -v

    # The same for a program.
    dralloc conformance cel tests/vectors/cel.jsonl.gz -o json
    """
    from dralloc.cli.answers import answer
    from dralloc.cli.progress import progress
    from dralloc.conformance.vector_family import (
        FAMILIES,
        BadVectors,
        VectorOptions,
        VectorTally,
        known_differences,
        load_family,
        read_lines,
    )

    if family not in FAMILIES:
        fail(f"unknown family {family!r}; known: {', '.join(FAMILIES)}")
    options = VectorOptions(parse_gates(feature_gates), server, token, kubeconfig, token_file)
    tally = VectorTally(known_differences(family))
    runner = load_family(family)
    found: list[tuple[Path, VectorVerdict]] = []
    for path in files:
        try:
            lines = read_lines(path)
            for verdict in progress(runner.run(lines, options), total=len(lines), what=path.name):
                tally.count(verdict)
                if verdict.differences and verdict.line not in tally.known:
                    found.append((path, verdict))
        except OSError as error:
            fail(f"{path}: {error.strerror or error}")
        except BadVectors as error:
            fail(f"{path}: no recorded answers of the family {family}: {error}")
    is_full = verbose or output is OutputFormat.WIDE
    answer(output, lambda: _values(family, tally, found), lambda: _lines(tally, found if is_full else []))
    if tally.disagreements:
        raise typer.Exit(FINDINGS)


def _lines(tally: VectorTally, shown: list[tuple[Path, VectorVerdict]]) -> Iterator[str]:
    for path, verdict in shown:
        yield f"{path}: {verdict.line}"
        yield from (f"    {difference}" for difference in verdict.differences)
    for verdict in tally.known_differences:
        yield f"known difference: {verdict.line}: {tally.known[verdict.line]}"
    yield f"{tally.agreed} of {tally.total} agree"


def _values(family: str, tally: VectorTally, found: list[tuple[Path, VectorVerdict]]) -> dict[str, Any]:
    return {
        "family": family,
        "total": tally.total,
        "agreed": tally.agreed,
        "disagreements": [
            {"file": str(path), "line": verdict.line, "differences": list(verdict.differences)}
            for path, verdict in found
        ],
        "knownDifferences": [
            {"line": verdict.line, "reason": tally.known[verdict.line]} for verdict in tally.known_differences
        ],
    }
