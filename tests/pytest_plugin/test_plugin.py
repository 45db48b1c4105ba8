"""The plugin in pytest: markers, reports of failed tests, and no cost where it is not used."""

from __future__ import annotations

import pytest

# Imported here, because a run inside this process forgets its imports afterwards.

pytest_plugins = ["pytester"]
pytestmark = pytest.mark.slow

POD = """
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p"},
    "spec": {"containers": [{"name": "app", "image": "app:1"}]},
}
"""


def run(pytester: pytest.Pytester, source: str, *arguments: str) -> pytest.RunResult:
    """In this process, with warnings as errors."""
    pytester.makepyfile(POD + source)
    return pytester.runpytest_inprocess("-W", "error", "-p", "no:xdist", "-p", "no:cacheprovider", *arguments)


def test_a_test_gets_a_cluster_of_its_own_as_its_marker_says(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
import pytest

def test_plain(dra_cluster):
    dra_cluster.apply(POD)
    assert dra_cluster.wait_until_running("p").spec.node_name in ("gpu-0", "nic-0")

@pytest.mark.dra_cluster(nodes={"mig": 1}, virtual_time=True)
class TestWithPartitions:
    def test_class_marker(self, dra_cluster):
        dra_cluster.apply(POD)
        assert dra_cluster.wait_until_running("p").spec.node_name == "mig-0"
        dra_cluster.advance(3600)

    @pytest.mark.dra_cluster(nodes={})
    def test_closest_marker_wins(self, dra_cluster):
        dra_cluster.apply(POD)
        assert dra_cluster.wait_until_pending("p") == "no nodes are available"
""",
        "--strict-markers",
    )
    result.assert_outcomes(passed=3)


def test_the_marker_is_explained(pytester: pytest.Pytester) -> None:
    run(pytester, "", "--markers").stdout.fnmatch_lines(["@pytest.mark.dra_cluster(nodes=*virtual_time=*"])
    run(pytester, "", "--fixtures").stdout.fnmatch_lines(["dra_cluster*", "    A cluster in this process,*"])


@pytest.mark.parametrize(
    ("marker", "message"),
    [
        (
            "nodes={'gpus': 1}",
            "marker dra_cluster: no profile 'gpus': No such file or directory; use a file, or one of cpu, gpu,*",
        ),
        ("feature_gates='X=true'", "marker dra_cluster: *X*"),
        ("node=1", "marker dra_cluster: got an unexpected keyword argument 'node'; it accepts nodes=, virtual_time=,*"),
        ("{'gpu': 1}", "marker dra_cluster: too many positional arguments; it accepts nodes=,*"),
    ],
)
def test_an_invalid_marker_is_a_one_line_error(pytester: pytest.Pytester, marker: str, message: str) -> None:
    result = run(
        pytester, f"import pytest\n\n@pytest.mark.dra_cluster({marker})\ndef test_x(dra_cluster):\n    assert False\n"
    )
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines([message])
    result.stdout.no_fnmatch_line("*Traceback*")
    result.stdout.no_fnmatch_line("*During handling*")


def test_a_failed_test_shows_its_cluster(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
import pytest

@pytest.mark.dra_cluster(nodes={"gpu": 1}, virtual_time=True)
def test_x(dra_cluster):
    dra_cluster.apply(POD)
    dra_cluster.wait_until_running("p")
    assert dra_cluster.pod("p").spec.node_name == "gpu-7"
""",
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "E   *AssertionError: assert 'gpu-0' == 'gpu-7'",
            "*- the cluster -*",
            "pods:",
            "  default/p   Running   gpu-0*",
        ]
    )


@pytest.mark.parametrize("virtual_time", [False, True])
def test_a_refused_request_is_shown_at_the_line_of_the_test(pytester: pytest.Pytester, virtual_time: bool) -> None:
    test = f"""
import pytest

@pytest.mark.dra_cluster(nodes={{}}, virtual_time={virtual_time})
def test_x(dra_cluster):
    dra_cluster.apply({{"apiVersion": "v1", "kind": "Namespace", "metadata": {{"name": "No Name"}}}})
"""
    result = run(pytester, test)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([">   *dra_cluster.apply(*", "E  *Invalid*", "*test_*.py:*: Invalid"])
    result.stdout.no_fnmatch_line("*calls.py*")
    result.stdout.no_fnmatch_line("*cluster.py*")
    run(pytester, test, "--full-trace").stdout.fnmatch_lines(["*calls.py*"])


def test_a_timed_out_wait_is_shown_at_the_line_of_the_test(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
import pytest

@pytest.mark.dra_cluster(nodes={}, virtual_time=True)
def test_x(dra_cluster):
    dra_cluster.apply(POD)
    dra_cluster.wait_until_running("p")
""",
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            '>       dra_cluster.wait_until_running("p")',
            "E  *WaitFailed: timed out after 30 s waiting until Pod default/p runs",
            "E       nodes: none",
            "E         default/p   Pending   -      no nodes are available",
        ]
    )
    result.stdout.no_fnmatch_line("*cluster.py:*")
    result.stdout.no_fnmatch_line("*- the cluster -*")


def test_a_component_that_dies_fails_the_test(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
async def explode():
    raise ZeroDivisionError("out of order")

async def start(cluster):
    cluster._cluster.components.start("thing", explode)

def test_seen(dra_cluster):
    dra_cluster.run(start(dra_cluster))
    dra_cluster.wait_until_running("p")

def test_unseen(dra_cluster):
    dra_cluster.run(start(dra_cluster))
""",
    )
    result.assert_outcomes(failed=1, passed=1, errors=1)
    result.stdout.fnmatch_lines(["E  *ComponentDied: the thing died: ZeroDivisionError: out of order"])


def test_a_project_without_the_fixture_imports_nothing(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
import sys

def test_x():
    ours = {name for name in sys.modules if name.partition(".")[0] == "dralloc"}
    assert ours == {"dralloc", "dralloc.pytest_plugin"}
    assert not {"msgspec", "yaml", "grpc", "aiohttp", "asyncio", "typer"} & set(sys.modules)

def test_asserts_stay_as_they_are():
    from dralloc.primitives import names
    assert type(names.__loader__).__name__ == "SourceFileLoader"
"""
    )
    # Imports of other plugins do not count.
    without = ("xdist", "xdist.looponfail", "hypothesispytest", "anyio", "timeout")
    result = pytester.runpytest_subprocess(*(f"-pno:{name}" for name in without))
    result.assert_outcomes(passed=2)


def test_tests_share_nothing_when_they_run_side_by_side(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        POD
        + """
import pytest

@pytest.mark.parametrize("number", range(4))
def test_x(dra_cluster, number):
    dra_cluster.apply(POD)
    dra_cluster.wait_until_running("p")
    assert dra_cluster.kubeconfig().exists()
"""
    )
    pytester.runpytest_subprocess("-n", "2").assert_outcomes(passed=4)
