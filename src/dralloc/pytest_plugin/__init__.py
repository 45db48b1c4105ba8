"""A plugin for pytest: a test that names `dra_cluster` gets a running cluster of its own.

    @pytest.mark.dra_cluster(nodes={"gpu": 2}, virtual_time=True)
    def test_two_pods_share_a_card(dra_cluster):
        dra_cluster.apply("manifests/")
        assert dra_cluster.wait_until_running("inference").spec.node_name == "gpu-0"

pytest loads this module in every project that has dralloc installed, whether it uses the fixture or not. So nothing of dralloc is imported
before a test asks for a cluster.
"""

from __future__ import annotations

import inspect
from collections.abc import Generator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from dralloc.pytest_plugin.cluster import DraCluster

MARKER: Final = "dra_cluster"
_CLUSTER: Final = pytest.StashKey["DraCluster"]()


def pytest_addoption(pluginmanager: pytest.PytestPluginManager) -> None:
    """No option, but the earliest hook there is, and the asserts of dralloc are to stay as they are.

    pytest rewrites those of every package that comes with a plugin, and there is no way to ask it not to. For a control plane that costs seconds at the
    first import. Where a later pytest keeps its marks elsewhere, that is all that is lost.
    """
    getattr(pluginmanager.rewrite_hook, "_must_rewrite", set()).discard("dralloc")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        f"{MARKER}(nodes=…, virtual_time=False, feature_gates='', controllers=…): the cluster that this test gets; "
        "nodes are numbers by profile (gpu, nic, mig, cpu, tpu or a file), such as {'gpu': 2}",
    )


@pytest.fixture
def dra_cluster(request: pytest.FixtureRequest) -> Generator[DraCluster, None, None]:
    """A cluster in this process: API server, scheduler, controllers and fake nodes. The marker of the same name says which."""
    from dralloc.pytest_plugin.cluster import BadCluster, running_cluster

    marker = request.node.get_closest_marker(MARKER)
    positional, named = (marker.args, marker.kwargs) if marker is not None else ((), {})
    with ExitStack() as stack:
        try:
            inspect.signature(running_cluster).bind(*positional, **named)
        except TypeError as error:
            pytest.fail(f"marker {MARKER}: {error}", pytrace=False)
        try:
            cluster = stack.enter_context(running_cluster(**named))
        except BadCluster as error:
            pytest.fail(f"marker {MARKER}: {error}", pytrace=False)
        request.node.stash[_CLUSTER] = cluster
        yield cluster


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Where a test fails, show what its cluster looks like."""
    report = yield
    cluster = item.stash.get(_CLUSTER, None)
    if cluster is not None and report.when == "call" and call.excinfo is not None and report.failed:
        is_shown = getattr(call.excinfo.value, "shows_cluster", False)
        if not is_shown:
            report.sections.append(("the cluster", cluster.describe()))
    return report
