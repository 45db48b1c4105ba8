"""`dralloc conformance`: put recorded answers of Kubernetes to this version, and count where they agree."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dralloc.cli.output import FEATURE_GATES_HELP, FINDINGS, fail, parse_gates, say

if TYPE_CHECKING:
    from dralloc.conformance.frame import Tally, Verdict


def conformance(
    family: Annotated[str, typer.Argument(help="What the recorded answers are about: quantity, api, …")],
    files: Annotated[
        list[Path], typer.Argument(help="Files of recorded answers, one JSON object a line, gzip or plain.")
    ],
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show every disagreement.")] = False,
    feature_gates: Annotated[str, typer.Option(help=FEATURE_GATES_HELP)] = "",
    server: Annotated[str | None, typer.Option(help="The API server to ask, for families that need one.")] = None,
    token: Annotated[str | None, typer.Option(help="A bearer token for that server.")] = None,
    kubeconfig: Annotated[Path | None, typer.Option(help="Where to find credentials for that server.")] = None,
) -> None:
    """Compare with recorded answers of Kubernetes. Exits with 0 if all agree or differ knowingly."""
    from dralloc.conformance.families import FAMILIES, load_family
    from dralloc.conformance.frame import BadVectors, Options, Tally, known_differences, read_lines

    if family not in FAMILIES:
        fail(f"there is no family {family!r}; there are: {', '.join(FAMILIES)}")
    options = Options(parse_gates(feature_gates), server, token, kubeconfig)
    tally = Tally(known_differences(family))
    runner = load_family(family)
    for path in files:
        try:
            for verdict in runner.run(read_lines(path), options):
                tally.count(verdict)
                if verbose and verdict.differences and verdict.line not in tally.known:
                    _show(path, verdict)
        except OSError as error:
            fail(f"{path}: {error.strerror or error}")
        except BadVectors as error:
            fail(f"{path}: not recorded answers of the family {family}: {error}")
    _conclude(tally)


def _show(path: Path, verdict: Verdict) -> None:
    say(f"{path}: {verdict.line}")
    for difference in verdict.differences:
        say(f"    {difference}")


def _conclude(tally: Tally) -> None:
    for verdict in tally.known_differences:
        say(f"known difference: {verdict.line}: {tally.known[verdict.line]}")
    say(f"{tally.agreed} of {tally.total} agree")
    if tally.disagreements:
        raise typer.Exit(FINDINGS)
