"""The steps of a pod and its status: starts, restarts, the end, and restoring after a restart of the agent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dralloc.kube.codec import decode, encode
from dralloc.node.pod_plan import ContainerRun, Exit, PodPlan, Runs, plan_pod
from dralloc.node.pod_status import PodFacts, pod_phase, pod_status, restored_runs
from dralloc.node.pod_view import NodePod
from dralloc.node.timings import DEFAULT_TIMINGS

NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
RUNNING = ContainerRun(started_at=NOW)


def at(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def exited(code: int = 0, seconds_ago: float = 0.0, crashes: int = 1, restarts: int = 0) -> ContainerRun:
    exit = Exit(code=code, started_at=at(-seconds_ago - 1), finished_at=at(-seconds_ago))
    return ContainerRun(exit=exit, started_at=exit.started_at, crashes=crashes, restarts=restarts)


def pod(
    *containers: str,
    init: tuple[str, ...] = (),
    sidecars: tuple[str, ...] = (),
    restart: str = "Always",
    ephemeral: tuple[str, ...] = (),
) -> NodePod:
    """A pod. Sidecars come before the other init containers."""
    inits: list[dict[str, Any]] = [{"name": name, "restartPolicy": "Always"} for name in sidecars]
    inits += [{"name": name} for name in init]
    spec = {
        "containers": [{"name": name, "image": "i"} for name in containers or ("main",)],
        "initContainers": inits,
        "ephemeralContainers": [{"name": name, "image": "i"} for name in ephemeral],
        "restartPolicy": restart,
    }
    return decode(encode({"metadata": {"name": "p", "namespace": "default", "uid": "u"}, "spec": spec}), NodePod)


@dataclass(frozen=True)
class Case:
    id: str
    pod: NodePod = field(default_factory=pod)
    runs: Runs = field(default_factory=dict)
    is_ending: bool = False
    start: tuple[str, ...] = ()
    stop: tuple[str, ...] = ()
    wake_s: float | None = None
    is_over: bool = False


DEBUGGED = pod("main", ephemeral=("debugger",))

CASES = [
    Case(id="an ephemeral container runs beside", pod=DEBUGGED, runs={"main": RUNNING}, start=("debugger",)),
    Case(id="an ephemeral container runs once", pod=DEBUGGED, runs={"main": RUNNING, "debugger": exited(code=1)}),
    Case(
        id="a pod does not wait for an ephemeral container",
        pod=pod("main", restart="Never", ephemeral=("debugger",)),
        runs={"main": exited(), "debugger": RUNNING},
        stop=("debugger",),
    ),
    Case(id="all containers start at once", pod=pod("a", "b"), start=("a", "b")),
    Case(id="what runs is left alone", runs={"main": RUNNING}),
    Case(id="what is being started is left alone", runs={"main": ContainerRun(is_starting=True)}),
    Case(id="init containers start one after another", pod=pod(init=("i", "j")), start=("i",)),
    Case(
        id="the next starts when the one before is done", pod=pod(init=("i", "j")), runs={"i": exited()}, start=("j",)
    ),
    Case(id="and then the others", pod=pod(init=("i",)), runs={"i": exited()}, start=("main",)),
    Case(id="an init container that fails is tried again", pod=pod(init=("i",)), runs={"i": exited(1)}, start=("i",)),
    Case(id="later and later", pod=pod(init=("i",)), runs={"i": exited(1, crashes=2)}, wake_s=10),
    Case(
        id="or is the end of a pod that never restarts",
        pod=pod(init=("i",), restart="Never"),
        runs={"i": exited(1)},
        is_over=True,
    ),
    Case(id="sidecars come first", pod=pod(sidecars=("s",), init=("i",)), start=("s",)),
    Case(id="and need only run", pod=pod(sidecars=("s",), init=("i",)), runs={"s": RUNNING}, start=("i",)),
    Case(
        id="a sidecar that exits starts again beside the others",
        pod=pod(sidecars=("s",)),
        runs={"s": exited(), "main": RUNNING},
        start=("s",),
    ),
    Case(
        id="and does not hold up the others",
        pod=pod("a", "b", sidecars=("s",)),
        runs={"s": exited(crashes=3), "a": exited(), "b": RUNNING},
        start=("a",),
        wake_s=20,
    ),
    Case(id="what exits starts again", runs={"main": exited()}, start=("main",)),
    Case(id="after the second time it waits", runs={"main": exited(1, crashes=2, seconds_ago=3)}, wake_s=7),
    Case(id="until its time has come", runs={"main": exited(1, crashes=2, seconds_ago=10)}, start=("main",)),
    Case(id="never more than five minutes", runs={"main": exited(1, crashes=99)}, wake_s=300),
    Case(id="OnFailure leaves what went well", pod=pod(restart="OnFailure"), runs={"main": exited()}, is_over=True),
    Case(id="and starts what failed", pod=pod(restart="OnFailure"), runs={"main": exited(2)}, start=("main",)),
    Case(id="Never leaves everything", pod=pod(restart="Never"), runs={"main": exited(2)}, is_over=True),
    Case(
        id="one that is done waits for the rest",
        pod=pod("a", "b", restart="Never"),
        runs={"a": exited(), "b": RUNNING},
    ),
    Case(
        id="sidecars end when the rest is done",
        pod=pod(sidecars=("s",), restart="Never"),
        runs={"s": RUNNING, "main": exited()},
        stop=("s",),
    ),
    Case(id="an ending pod stops what runs", runs={"main": RUNNING}, is_ending=True, stop=("main",)),
    Case(
        id="also what is only being started",
        runs={"main": ContainerRun(is_starting=True)},
        is_ending=True,
        stop=("main",),
    ),
    Case(
        id="sidecars last",
        pod=pod(sidecars=("s",)),
        runs={"s": RUNNING, "main": RUNNING},
        is_ending=True,
        stop=("main",),
    ),
    Case(
        id="then they too",
        pod=pod(sidecars=("s",)),
        runs={"s": RUNNING, "main": exited(143)},
        is_ending=True,
        stop=("s",),
    ),
    Case(id="an ending pod starts nothing again", runs={"main": exited(1)}, is_ending=True, is_over=True),
    Case(id="an ending pod that never ran is over", is_ending=True, is_over=True),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_plan_pod(case: Case) -> None:
    plan = plan_pod(case.pod.spec, case.runs, is_ending=case.is_ending, now=NOW, timings=DEFAULT_TIMINGS)
    assert plan == PodPlan(
        start=tuple(case.pod.container(name) for name in case.start),
        stop=tuple(case.pod.container(name) for name in case.stop),
        wake_at=at(case.wake_s) if case.wake_s is not None else None,
        is_over=case.is_over,
    )


def test_a_long_run_resets_the_restart_backoff() -> None:
    crashing = ContainerRun(started_at=NOW, crashes=5)
    assert crashing.exited(Exit(code=1, started_at=NOW, finished_at=at(599)), DEFAULT_TIMINGS).crashes == 6
    assert crashing.exited(Exit(code=1, started_at=NOW, finished_at=at(600)), DEFAULT_TIMINGS).crashes == 1


# --- Status -------------------------------------------------------------------------------------------------------


def facts(runs: Runs, **others: Any) -> PodFacts:
    return PodFacts(runs=runs, now=NOW, **{"is_prepared": True, **others})


@pytest.mark.parametrize(
    ("runs", "others", "phase"),
    [
        ({}, {"is_prepared": False}, "Pending"),
        ({"main": ContainerRun(is_starting=True)}, {}, "Pending"),
        ({"main": RUNNING}, {}, "Running"),
        ({"main": exited(1, crashes=2)}, {}, "Running"),
        ({"main": exited(0)}, {"is_over": True}, "Succeeded"),
        ({"main": exited(1)}, {"is_over": True}, "Failed"),
        ({}, {"is_over": True}, "Failed"),
        ({"main": exited(0)}, {"is_over": True, "ended": ("DeadlineExceeded", "too long")}, "Failed"),
    ],
)
def test_phases(runs: Runs, others: Mapping[str, Any], phase: str) -> None:
    assert pod_phase(pod(), facts(runs, **others)) == phase


def conditions_of(status: Mapping[str, Any]) -> dict[str, str]:
    return {condition.type: condition.status for condition in status["conditions"]}


def test_conditions_show_the_progress_of_a_pod() -> None:
    with_init = pod(init=("i",))
    waiting = pod_status(with_init, facts({}, is_prepared=False))
    assert conditions_of(waiting) == {
        "PodReadyToStartContainers": "False",
        "Initialized": "False",
        "ContainersReady": "False",
        "Ready": "False",
    }
    assert waiting["containerStatuses"][0].state.waiting.reason == "PodInitializing"
    assert waiting["initContainerStatuses"][0].state.waiting.reason == "ContainerCreating"
    running = pod_status(with_init, facts({"i": exited(), "main": RUNNING}))
    assert set(conditions_of(running).values()) == {"True"}
    done = pod_status(with_init, facts({"i": exited(), "main": exited()}, is_over=True))
    assert conditions_of(done) == {
        "PodReadyToStartContainers": "False",
        "Initialized": "True",
        "ContainersReady": "False",
        "Ready": "False",
    }
    assert {condition.reason for condition in done["conditions"][2:]} == {"PodCompleted"}


def test_the_time_of_a_condition_is_kept_until_the_condition_changes() -> None:
    first = pod_status(pod(), facts({"main": RUNNING}))
    later = PodFacts(
        runs={"main": RUNNING},
        now=at(60),
        is_prepared=True,
        started_at=first["startTime"],
        conditions=tuple(first["conditions"]),
    )
    assert pod_status(pod(), later) == first
    changed = pod_status(
        pod(),
        PodFacts(
            runs={"main": exited(1, crashes=2)}, now=at(60), is_prepared=True, conditions=tuple(first["conditions"])
        ),
    )
    times = {condition.type: condition.last_transition_time for condition in changed["conditions"]}
    assert times["Ready"] == "2026-01-01T12:01:00Z"
    assert times["Initialized"] == "2026-01-01T12:00:00Z"


def test_ephemeral_containers_have_statuses_of_their_own() -> None:
    facts = PodFacts(runs={"main": RUNNING, "debugger": exited(code=3)}, now=NOW)
    status = pod_status(DEBUGGED, facts)
    (debugger,) = status["ephemeralContainerStatuses"]
    assert (debugger.name, debugger.state.terminated.exit_code) == ("debugger", 3)
    assert [each.name for each in status["containerStatuses"]] == ["main"]
    assert status["phase"] == "Running"
    stored = decode(encode({"metadata": {"name": "p"}, "status": status}), NodePod)
    assert restored_runs(stored).keys() == {"main", "debugger"}


def test_a_crashing_container_shows_how_it_ended_and_that_it_waits() -> None:
    (status,) = pod_status(pod(), facts({"main": exited(3, crashes=4, restarts=3)}))["containerStatuses"]
    assert status.state.waiting.reason == "CrashLoopBackOff"
    assert status.last_state.terminated.exit_code == 3
    assert (status.restart_count, status.ready, status.started) == (3, False, False)


runs_of_a_container = st.one_of(
    st.just(RUNNING),
    st.builds(exited, code=st.integers(0, 255), crashes=st.integers(1, 4), restarts=st.integers(0, 3)),
)


@given(run=runs_of_a_container, restart=st.sampled_from(["Always", "OnFailure", "Never"]), is_over=st.booleans())
def test_a_restarted_agent_restores_the_state_from_the_status(run: ContainerRun, restart: str, is_over: bool) -> None:
    """The next steps are those without the restart."""
    if is_over and run.exit is None:
        return
    before = pod(restart=restart)
    status = pod_status(before, facts({"main": run}, is_over=is_over))
    shown = decode(encode({"metadata": {"name": "p", "uid": "u"}, "spec": before.spec, "status": status}), NodePod)
    (restored,) = restored_runs(shown).values()
    assert (restored.restarts, restored.is_running) == (run.restarts, run.is_running)
    assert (restored.exit is None) == (run.exit is None)
    if restored.exit is not None and run.exit is not None:
        assert (restored.exit.code, restored.exit.finished_at) == (run.exit.code, run.exit.finished_at)
    later = at(1000)
    plans = [
        plan_pod(before.spec, {"main": each}, is_ending=False, now=later, timings=DEFAULT_TIMINGS)
        for each in (run, restored)
    ]
    assert plans[0] == plans[1]
