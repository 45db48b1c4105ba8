"""`dralloc explain`: why a pod, a claim or a group of pods does not fit, what would help, or why it gets its devices."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated, Final

import typer

from dralloc.cli.answers import answer
from dralloc.cli.name_completion import subjects_starting_with
from dralloc.cli.options import Namespace, OnlyNode
from dralloc.cli.output import FINDINGS, fail, paint
from dralloc.cli.placement_options import PlacementOptions, takes_options


class Sort(StrEnum):
    POD = "pod"
    CLAIM = "claim"
    PODGROUP = "podgroup"


# As kubectl, which takes a kind in any case, in the plural and by its short name.
WORDS: Final = {
    **dict.fromkeys(("pod", "pods", "po"), Sort.POD),
    **dict.fromkeys(("claim", "claims", "resourceclaim", "resourceclaims"), Sort.CLAIM),
    **dict.fromkeys(("podgroup", "podgroups"), Sort.PODGROUP),
}


def _parse_sort(text: str) -> Sort:
    found = WORDS.get(text.lower())
    if found is None:
        raise typer.BadParameter(f"{text!r} is not one of {', '.join(Sort)}")
    return found


def _sorts_starting_with(incomplete: str) -> list[str]:
    return [sort for sort in Sort if sort.startswith(incomplete)]


@takes_options
def explain(
    options: PlacementOptions,
    sort: Annotated[
        Sort,
        typer.Argument(
            metavar="pod|claim|podgroup",
            parser=_parse_sort,
            autocompletion=_sorts_starting_with,
            help="What to explain.",
        ),
    ],
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="NAMESPACE/NAME, or a name alone (see --namespace).",
            autocompletion=subjects_starting_with,
        ),
    ],
    node: OnlyNode = None,
    namespace: Namespace = None,
) -> None:
    """Explain why a pod, a claim or a PodGroup does not fit, and what would help; or why it gets its devices. Exits with 1 if something blocks it.

    The first line is the answer. Then come the nodes, grouped by reason; the likeliest changes with which the scheduler would
    place it, each of them tried, with the node; and for each request, how many devices are lost at which check.
    With -o json, `nearestMisses` has these changes for scripts: objects to set a field of (a JSON pointer, from, to), to
    delete or to release, and feature gates to enable.

    # Why is this pod pending? Reads the cluster of kubectl's current context.
    dralloc explain pod ml/train-0

    # The same without access to the cluster, from a dump.
    dralloc dump -o cluster.json
    dralloc explain pod ml/train-0 -f cluster.json

    # Why does a claim not fit on one node? For a program: -o json.
    dralloc explain claim shared-gpu -n ml --node node-7

    # Why does a gang wait? Its members, which of them would fit together, what is
    # missing for the rest.
    dralloc explain podgroup ml/train

    # Would this claim fit in the cluster?
    dralloc explain claim wanted -f wanted.yaml --context production
    """
    from dralloc.answers.pod_explanation import SubjectQuestion
    from dralloc.cli.cluster_source import print_assumed_nodes, print_notes, unknown_names_fail

    if sort is Sort.PODGROUP and node is not None:
        fail("--node asks about a pod or a claim; a group may have several nodes")
    question = SubjectQuestion(sort.value, name, node, options.scheduler_names)
    source = options.source(namespace)
    objects = source.load(options.gates(), needed=question.needed, useful=question.useful, events=question.events)
    print_assumed_nodes(objects)
    with unknown_names_fail():
        found = question.answer(objects)
    print_notes(objects)

    def text() -> Iterator[str]:
        first, *rest = found.lines()
        yield paint(first, "green" if found.is_good else "red")
        yield from rest

    answer(options.output, found.values, text)
    if not found.is_good:
        raise typer.Exit(FINDINGS)
