"""The tie-break between nodes survives their renaming, and does not give their names away."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dralloc.answers.node_ranks import RANK_ANNOTATION, hidden_ranks, rank_function
from dralloc.kube.core_v1 import Node
from dralloc.kube.meta_v1 import ObjectMeta
from dralloc.scheduler.settings import SchedulerSettings

RANKS = st.dictionaries(st.text(min_size=1), st.integers(min_value=0, max_value=2**32 - 1), min_size=1, max_size=50)


@given(RANKS)
def test_hidden_ranks_have_the_same_order(ranks: dict[str, int]) -> None:
    hidden = hidden_ranks(ranks)
    new = SchedulerSettings().rank("new-gpu-7")
    assert sorted(ranks, key=lambda name: (ranks[name], name)) == sorted(ranks, key=lambda name: (hidden[name], name))
    assert all((hidden[name] < new) == (each < new) for name, each in ranks.items() if each != new)


def test_a_hidden_rank_does_not_confirm_a_name() -> None:
    names = [f"node-{number}" for number in range(50)]
    ranks = {name: SchedulerSettings().rank(name) for name in names}
    hidden = hidden_ranks(ranks)
    assert not {hidden[name] for name in names} & set(ranks.values())


def test_the_rank_is_the_schedulers_unless_the_node_has_one() -> None:
    plain, ranked = ObjectMeta(name="a"), ObjectMeta(name="b", annotations={RANK_ANNOTATION: "7"})
    rank = rank_function([Node(metadata=plain), Node(metadata=ranked)])
    assert (rank("a"), rank("b")) == (SchedulerSettings().rank("a"), 7)
