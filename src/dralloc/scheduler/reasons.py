"""Why no node takes a pod, in one line: how many nodes say what."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from dralloc.allocator.outcome import BudgetExhausted, Impossible
from dralloc.scheduler.asks import Ask
from dralloc.scheduler.claims import PLUGIN
from dralloc.scheduler.node_fit import NOT_SELECTED
from dralloc.scheduler.node_state import NodeState
from dralloc.scheduler.verdicts import Lacking, OutOfReach, Unfit, Verdict
from dralloc.snapshot.identity import ClaimId


def summary(ask: Ask, verdicts: Mapping[str, Verdict], nodes: Mapping[str, NodeState]) -> str:
    """Nodes without a verdict are those that the ask rules out by name."""
    if not nodes:
        return "no nodes are available"
    counts = Counter(_reasons(verdicts.values()))
    if ruled_out := len(nodes) - len(verdicts):
        counts[NOT_SELECTED.reason if ask.wishes.only_nodes() is not None else _out_of_reach(ask.held[0].claim_id)] += (
            ruled_out
        )
    ordered = sorted(counts.items(), key=lambda entry: (-entry[1], entry[0]))
    parts = [f"{count} {'node' if count == 1 else 'nodes'}: {reason}" for reason, count in ordered]
    return f"0/{len(nodes)} nodes are available: {'; '.join(parts)}"


def _reasons(verdicts: Iterable[Verdict]) -> Iterator[str]:
    for verdict in verdicts:
        match verdict:
            case Unfit(misfit):
                yield misfit.reason
            case OutOfReach(claim_id):
                yield _out_of_reach(claim_id)
            case Lacking(outcome):
                yield _lack(outcome)
            case _:
                pass


def _lack(outcome: Impossible | BudgetExhausted) -> str:
    match outcome:
        case BudgetExhausted(steps):
            return f"no devices found for all claims within {steps} steps"
        case Impossible(pools):
            return (
                f"pools that contradict themselves: {', '.join(map(str, pools))}"
                if pools
                else "cannot allocate all claims"
            )


def _out_of_reach(claim_id: ClaimId) -> str:
    return f"claim {claim_id} has devices that are out of reach"


def plugins(verdicts: Iterable[Verdict]) -> frozenset[str]:
    """The checks that keep the pod from nodes, by their names in Kubernetes."""
    return frozenset(verdict.misfit.plugin if isinstance(verdict, Unfit) else PLUGIN for verdict in verdicts)
