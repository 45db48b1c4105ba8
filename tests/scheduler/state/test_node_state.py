"""The load of a node."""

from __future__ import annotations

from dralloc.scheduler.state.node_state import EMPTY
from dralloc.scheduler.state.pod_resources import resources_of
from tests.scheduler.pod_specs import container, host_port, spec


def test_a_pod_that_leaves_frees_everything_it_took() -> None:
    one, other = host_port(80), spec(containers=[container(cpu="1", memory="1Gi")])
    load = EMPTY.plus(resources_of(one)).plus(resources_of(other)).minus(resources_of(one)).minus(resources_of(other))
    assert not any(load.amounts.values())
    assert not any(load.weights.values())
    assert load.ports == ()
