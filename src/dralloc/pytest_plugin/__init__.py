"""A pytest plugin: a test with the fixture `dra_cluster` gets a running cluster of its own.

    @pytest.mark.dra_cluster(nodes={"gpu": 2}, virtual_time=True)
    def test_two_pods_share_a_card(dra_cluster):
        dra_cluster.apply("manifests/")
        assert dra_cluster.wait_until_running("inference").spec.node_name == "gpu-0"

pytest loads this module in every project that has dralloc installed, so the rest of dralloc is imported by the fixture.
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
    """Adds no option: this is the earliest hook, used to keep pytest from rewriting the asserts of dralloc.

    pytest rewrites the asserts of every package that contains a plugin, which costs seconds at the first import. It has no
    public way to switch that off. If a later pytest renames the attribute, the import is only slower.
    """
    getattr(pluginmanager.rewrite_hook, "_must_rewrite", set()).discard("dralloc")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        f"{MARKER}(nodes=…, virtual_time=False, feature_gates='', controllers=…): the cluster of this test; "
        "nodes maps profiles (gpu, nic, mig, cpu, tpu or a file) to counts, such as {'gpu': 2}",
    )


@pytest.fixture
def dra_cluster(request: pytest.FixtureRequest) -> Generator[DraCluster, None, None]:
    """A cluster in this process, with the settings of the marker `dra_cluster`."""
    from dralloc.pytest_plugin.cluster import BadCluster, running_cluster

    marker = request.node.get_closest_marker(MARKER)
    positional, named = (marker.args, marker.kwargs) if marker is not None else ((), {})
    known = inspect.signature(running_cluster)
    with ExitStack() as stack:
        try:
            known.bind(*positional, **named)
        except TypeError as error:
            raise _marker_error(f"{error}; it accepts {', '.join(f'{name}=' for name in known.parameters)}") from None
        try:
            cluster = stack.enter_context(running_cluster(**named))
        except BadCluster as error:
            raise _marker_error(str(error)) from None
        request.node.stash[_CLUSTER] = cluster
        yield cluster


def _marker_error(message: str) -> BaseException:
    return pytest.fail.Exception(f"marker {MARKER}: {message}", pytrace=False)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Adds the state of the cluster to the report of a failed test."""
    cluster = item.stash.get(_CLUSTER, None)
    if cluster is not None and call.excinfo is not None and not item.config.getoption("fulltrace"):
        _cut_traceback(call.excinfo.value)
    report = yield
    if cluster is not None and report.when == "call" and call.excinfo is not None and report.failed:
        is_shown = getattr(call.excinfo.value, "shows_cluster", False)
        if not is_shown:
            report.sections.append(("the cluster", cluster.describe()))
    return report


def _cut_traceback(error: BaseException) -> None:
    """If the API server refused a request, end the traceback at the line of the test, not inside the client."""
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
