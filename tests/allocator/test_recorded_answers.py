"""The allocator, and the plain allocator that serves as oracle, give the recorded answers of Kubernetes."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from dralloc.conformance.allocation import FAMILY, read_line
from dralloc.conformance.vector_family import VectorOptions, read_lines
from tests.support.plain_allocator import allocate_plainly
from tests.support.plain_pools import World

VECTORS = Path(__file__).parent.parent / "vectors"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "count"), [("allocation", 3000), ("allocation-hard", 88), ("upstream-allocation", 3533)]
)
def test_every_recorded_answer(name: str, count: int) -> None:
    verdicts = list(FAMILY.run(read_lines(VECTORS / f"{name}.jsonl.gz"), VectorOptions()))
    assert len(verdicts) == count
    assert [verdict for verdict in verdicts if verdict.differences] == []


@pytest.mark.slow
def test_the_oracle_gives_the_recorded_answers() -> None:
    compared = 0
    for text in read_lines(VECTORS / "allocation.jsonl.gz")[::4]:
        name, problem, claims = read_line(text)
        expected = msgspec.json.decode(text)["expect"]
        demand, snapshot = problem.demand, problem.snapshot
        world = World(
            slices=tuple(found.source for pool in snapshot.pools.values() for found in pool.slices),
            claims=claims,
            classes={
                str(found.device_class.metadata.name): found.device_class
                for found in demand.alternatives
                if found.fault is None
            },
            node=problem.node,
            features=demand.features,
            allocated=tuple(snapshot.claims.values()),
        )
        outcome = allocate_plainly(world, 2_000)
        if outcome.is_out_of_steps or expected.get("timedOut"):
            continue
        compared += 1
        if "error" in expected:
            assert outcome.fatal is not None, name
        elif expected["results"] is None:
            assert outcome.given is None, name
            assert outcome.fatal is None, name
        else:
            want = [
                [found["device"] for found in result["devices"].get("results", ())] for result in expected["results"]
            ]
            assert outcome.given is not None, name
            assert [[given.device[2] for given in claim] for claim in outcome.given] == want, name
    assert compared > 700


def test_a_changed_vector_is_a_difference() -> None:
    lines = read_lines(VECTORS / "allocation.jsonl.gz")[:60]
    for text in lines:
        line = msgspec.json.decode(text)
        if line["expect"].get("results"):
            line["expect"]["results"][0]["devices"]["results"][0]["device"] = "another"
        else:
            line["expect"] = {"results": []}
        (verdict,) = FAMILY.run([msgspec.json.encode(line)], VectorOptions())
        assert verdict.differences, verdict.line
