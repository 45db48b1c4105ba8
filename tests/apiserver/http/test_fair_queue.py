"""Flows share a fair queue: by weight, whatever the number and cost of their items."""

from __future__ import annotations

from collections import Counter

from dralloc.apiserver.http.fair_queue import FairQueue


def served_time(queue: FairQueue[float], total_s: float) -> Counter[str]:
    """The time that each first key gets; items are their own cost, and each flow is refilled when it is served."""
    served: Counter[str] = Counter()
    while sum(served.values()) < total_s:
        path, cost_s = queue.pop()
        queue.charge(path, cost_s)
        served[str(path[0])] += cost_s  # type: ignore[assignment]  # a counter of seconds
        queue.push(path, cost_s)
    return served


def test_items_of_one_flow_keep_their_order() -> None:
    queue: FairQueue[int] = FairQueue()
    for number in range(5):
        queue.push(("a",), number)
    assert [queue.pop()[1] for _ in range(5)] == [0, 1, 2, 3, 4]
    assert len(queue) == 0


def test_flows_get_equal_time_whatever_their_items_cost() -> None:
    queue: FairQueue[float] = FairQueue()
    for _ in range(50):
        queue.push(("many", "x"), 0.001)
    queue.push(("costly", "x"), 0.1)
    served = served_time(queue, 20)
    assert abs(served["many"] - served["costly"]) < 0.5, served


def test_weights_divide_the_time() -> None:
    queue: FairQueue[float] = FairQueue({"high": 4.0})
    queue.push(("high", "u"), 0.01)
    queue.push(("low", "u"), 0.01)
    served = served_time(queue, 10)
    assert 3.5 < served["high"] / served["low"] < 4.5, served


def test_an_occasional_item_passes_a_flood_on_every_level() -> None:
    queue: FairQueue[float] = FairQueue()
    for connection in range(1000):
        queue.push(("level", "flooder", connection), 0.001)
    for _ in range(300):
        path, cost_s = queue.pop()
        queue.charge(path, cost_s)
    queue.push(("level", "other", "c"), 0.001)
    queue.push(("level", "flooder", "new"), 0.001)
    assert queue.pop()[0] == ("level", "other", "c")
    for connection in range(300):
        queue.push(("level", "flooder", connection), 0.001)
    rest = [queue.pop()[0] for _ in range(1001)]
    assert rest.index(("level", "flooder", "new")) <= 700, "a new connection precedes those that were served"


def test_a_charged_flow_waits_until_its_time_is_forgotten() -> None:
    queue: FairQueue[str] = FairQueue()
    for wanted in (["b", "a"], ["a", "b"]):
        queue.charge(("a",), 5.0 if wanted[0] == "b" else 0.0)
        for name in ("a", "b"):
            queue.push((name,), name)
        assert [queue.pop()[1] for _ in range(2)] == wanted
        queue.forget()


def test_flows_that_are_gone_are_forgotten() -> None:
    queue: FairQueue[int] = FairQueue()
    queue.push(("other",), -1)
    queue.push(("u", -1), -1)
    for number in range(10_000):
        queue.push(("u", number), number)
        path, _ = queue.pop()
        queue.charge(path, 0.001)
    assert len(queue._root.flows["u"].flows) <= 256
