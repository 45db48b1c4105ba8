"""The part of a verdict that depends on what a node offers, and not on its pods and devices.

Most pods require the same of it, whatever resources and devices they request: they share one judge.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from dralloc.primitives.work_allowance import check_work, work_done
from dralloc.scheduler.decide.node_fit import NodeMisfit, misfit_of_offer
from dralloc.scheduler.decide.node_scores import RawScores, raw_scores
from dralloc.scheduler.decide.pod_requirements import HeldClaim, PodRequirements
from dralloc.scheduler.state.node_state import NodeOffer

OFFERS_MAX: Final = 20_000
WORK_OF_TERM: Final = 4


class OfferVerdict(NamedTuple):
    """`away` is a claim whose devices the node cannot use."""

    offer: NodeOffer
    misfit: NodeMisfit | None
    away: HeldClaim | None
    raw: RawScores
    is_admitted: bool


class OfferJudge:
    def __init__(self, requirements: PodRequirements) -> None:
        self._node = requirements.node
        self._work = _work_of(requirements)
        self._held = requirements.held
        self._known: dict[str, OfferVerdict] = {}

    def on(self, offer: NodeOffer) -> OfferVerdict:
        known = self._known.get(offer.name)
        if known is None or known.offer is not offer:
            if len(self._known) >= OFFERS_MAX:
                self._known.clear()
            known = self._known[offer.name] = self._judge(offer)
        return known

    def _judge(self, offer: NodeOffer) -> OfferVerdict:
        check_work()
        work_done(self._work)
        misfit = misfit_of_offer(self._node, offer)
        away = next((held for held in self._held if not held.is_usable_on(offer.place)), None)
        return OfferVerdict(
            offer, misfit, away, raw_scores(self._node, offer), is_admitted=misfit is None and away is None
        )


def _work_of(requirements: PodRequirements) -> int:
    """What a node takes, in units of `work_allowance`."""
    node = requirements.node
    terms = len(node.required.node_selector_terms or ()) if node.required is not None else 0
    return WORK_OF_TERM * (1 + terms + len(node.preferred))
