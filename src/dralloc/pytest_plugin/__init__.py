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
import sysconfig
from collections.abc import Generator
from contextlib import ExitStack
from pathlib import Path
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
    known = inspect.signature(running_cluster)
    with ExitStack() as stack:
        try:
            known.bind(*positional, **named)
        except TypeError as error:
            raise _marker_fault(f"{error}; it takes {', '.join(f'{name}=' for name in known.parameters)}") from None
        try:
            cluster = stack.enter_context(running_cluster(**named))
        except BadCluster as error:
            raise _marker_fault(str(error)) from None
        request.node.stash[_CLUSTER] = cluster
        yield cluster


def _marker_fault(message: str) -> BaseException:
    return pytest.fail.Exception(f"marker {MARKER}: {message}", pytrace=False)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Where a test fails, show what its cluster looks like."""
    cluster = item.stash.get(_CLUSTER, None)
    if cluster is not None and call.excinfo is not None and not item.config.getoption("fulltrace"):
        _end_in_the_test(call.excinfo.value)
    report = yield
    if cluster is not None and report.when == "call" and call.excinfo is not None and report.failed:
        is_shown = getattr(call.excinfo.value, "shows_cluster", False)
        if not is_shown:
            report.sections.append(("the cluster", cluster.describe()))
    return report


def _end_in_the_test(error: BaseException) -> None:
    """Where the server refuses something, show who asked for it, and not how the question went through our client."""
    from dralloc.primitives.errors import ApiError

    if not isinstance(error, ApiError):
        return
    inner = (str(Path(__file__).parents[1]), sysconfig.get_path("stdlib"))
    last, step = None, error.__traceback__
    while step is not None:
        if not step.tb_frame.f_code.co_filename.startswith(inner):
            last = step
        step = step.tb_next
    if last is not None:
        last.tb_next = None
