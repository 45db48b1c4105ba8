"""Every example does what the tables of its README say, offline and on a running cluster.

A table has a pod, its node and its devices, or `pending` and a part of the reason.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner, Result

from dralloc.cli.main import app
from dralloc.kube.batch_v1 import Job
from dralloc.kube.meta_v1 import ApiObject
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.resource_v1 import DeviceTaintRule, ResourceClaim
from dralloc.primitives.errors import Forbidden
from dralloc.pytest_plugin.cluster import DraCluster
from dralloc.pytest_plugin.cluster_report import describe_results

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("[0-9][0-9]-*"))
# They use features that are off by default.
GATED = [path for path in EXAMPLES if path.name >= "13"]
# Beta features, which AllAlpha leaves off.
OF_GROUPS = [path for path in GATED if path.name == "21-gang"]
# Too many pods for a table.
OF_A_JOB = "12-one-claim-for-a-job"

HEADER = "| pod | node | what it gets, or why it waits |"
PENDING = "pending"

every_example = pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)


@dataclass(frozen=True, slots=True)
class Expectation:
    """One row of a table."""

    pod: str
    node: str
    gets: str

    @property
    def is_pending(self) -> bool:
        return self.node == PENDING


@dataclass(frozen=True, slots=True)
class Step:
    """A command, if any, and the expected rows after it."""

    command: str
    expected: tuple[Expectation, ...]


def steps(example: Path) -> Iterator[Step]:
    command, rows = "", []
    for line in [*(example / "README.md").read_text().splitlines(), ""]:
        if match := re.fullmatch(r"After `(.+)`:", line):
            command = match[1]
        elif line.startswith("| ") and line != HEADER:
            rows.append(Expectation(*(cell.strip() for cell in line.strip("|").split("|"))))
        elif not line and rows:
            yield Step(command, tuple(rows))
            command, rows = "", []


def commands(example: Path) -> list[list[str]]:
    """The commands of the README, without `dralloc`."""
    lines = re.findall(r"^\$ dralloc (.*?)(?:\s+#.*)?$", (example / "README.md").read_text(), flags=re.MULTILINE)
    return [line.split() for line in lines]


def gates(example: Path) -> str:
    """The feature gates that the example needs, as its README states them."""
    found = re.findall(r"--feature-gates (\S+?)[`\s]", (example / "README.md").read_text())
    assert len(set(found)) <= 1, "one setting for all commands"
    return found[0] if found else ""


def run(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> Result:
    monkeypatch.chdir(ROOT)
    return CliRunner().invoke(app, arguments)


def pod_of(claim: str, example: Path) -> str:
    """The pod that uses the claim."""
    for document in yaml.safe_load_all((example / "workload.yaml").read_text()):
        if document["kind"] == "Pod":
            metadata = document["metadata"]
            for entry in document["spec"]["resourceClaims"]:
                name = entry.get("resourceClaimName") or f"{metadata['name']}-{entry['name']}"
                if claim == f"{metadata['namespace']}/{name}":
                    return f"{metadata['namespace']}/{metadata['name']}"
    raise AssertionError(f"no pod uses {claim}")


def qualified(pod: str) -> str:
    return pod if "/" in pod else f"default/{pod}"


@every_example
def test_an_example_is_complete(example: Path) -> None:
    assert {path.name for path in example.iterdir()} == {"README.md", "cluster.yaml", "workload.yaml"}
    assert next(steps(example)).expected
    assert f"]({example.name}/README.md)" in (ROOT / "examples" / "README.md").read_text(), "the index names it"


def test_examples_can_be_tried_together() -> None:
    """No two examples have an object of the same name."""
    owners: dict[tuple[str, ...], str] = {}
    for example in EXAMPLES:
        for file in ("cluster.yaml", "workload.yaml"):
            for document in yaml.safe_load_all((example / file).read_text()):
                metadata = document["metadata"]
                key = (document["kind"], metadata.get("namespace", ""), metadata["name"])
                assert key not in owners, f"{example.name} and {owners[key]} have {'/'.join(key)}"
                owners[key] = example.name


@every_example
def test_an_example_is_valid(example: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = run(["validate", str(example), "--feature-gates", gates(example)], monkeypatch)
    assert result.exit_code == 0, result.output
    assert "0 errors, 0 warnings" in result.output


@pytest.mark.parametrize("example", GATED, ids=lambda path: path.name)
def test_an_example_needs_the_gate_that_it_names(example: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = gates(example).removesuffix("=true")
    result = run(["validate", str(example)], monkeypatch)
    assert f"the feature gate {gate}" in result.output


@pytest.mark.parametrize("example", [each for each in EXAMPLES if each.name != OF_A_JOB], ids=lambda path: path.name)
def test_without_a_cluster_an_example_gets_what_its_table_says(example: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = next(steps(example)).expected
    command = ["allocate", "-f", f"examples/{example.name}"]
    if needed := gates(example):
        command += ["--feature-gates", needed]
    assert command in commands(example)
    result = run(command, monkeypatch)
    assert result.exit_code == any(each.is_pending for each in expected), result.output
    given: dict[str, list[tuple[str, str]]] = {}
    for line in result.stdout.splitlines():
        if re.match(r"[a-z-]+/", line):
            claim, request, node, device, consumed = re.split(r" {2,}", line.strip())
            took = "the whole device" if consumed == "-" else consumed.replace(",", ", ")
            entry = node, f"{request}: {device.rpartition('/')[2]}, {took}"
            given.setdefault(pod_of(claim, example), []).append(entry)
    for each in expected:
        name = qualified(each.pod)
        if each.is_pending:
            refusal = next(line for line in result.stdout.splitlines() if line.startswith(f"pod {name} does not fit"))
            assert each.gets in refusal
        else:
            entries = given.pop(name)
            assert {node for node, _ in entries} == {each.node}
            assert "; ".join(text for _, text in entries) == each.gets
    assert not given, "every pod with devices is in the table"


def test_without_a_cluster_a_job_gets_its_one_claim(monkeypatch: pytest.MonkeyPatch) -> None:
    result = run(["allocate", "-f", f"examples/{OF_A_JOB}"], monkeypatch)
    assert result.exit_code == 0, result.output
    (row,) = (line.split() for line in result.stdout.splitlines() if line.startswith("default/"))
    assert row == ["default/sweep-gpu", "gpu", "node-12", "whole-gpu.example.com/node-12/gpu-0", "-"]
    assert "job default/sweep: counted as 300 pods" in result.stderr


# --- On a cluster ---------------------------------------------------------------------------------------------------


def expect(cluster: DraCluster, expected: Expectation) -> None:
    if match := re.fullmatch(r"(\d+) pods of job (\S+)", expected.pod):
        expect_job(cluster, expected, name=match[2], count=int(match[1]))
        return
    namespace, _, name = qualified(expected.pod).partition("/")
    if expected.is_pending:
        assert expected.gets in cluster.wait_until_pending(name, expected.gets, namespace=namespace)
        return
    assert cluster.wait_until_running(name, namespace=namespace).spec.node_name == expected.node
    claims = cluster.claims_of(name, namespace=namespace).values()
    assert "; ".join(text for claim in claims for text in describe_results(claim)) == expected.gets


def expect_job(cluster: DraCluster, expected: Expectation, *, name: str, count: int) -> None:
    cluster.wait_until(Job, name, lambda job: job.status.active == count, what=f"has {count} pods")
    pods = cluster.client.list(Pod, labels=f"batch.kubernetes.io/job-name={name}")
    assert len(pods) == count
    running = [cluster.wait_until_running(pod.metadata.name) for pod in pods]
    assert {pod.spec.node_name for pod in running} == {expected.node}
    (claim,) = cluster.client.list(ResourceClaim)
    assert "; ".join(describe_results(claim)) == expected.gets
    assert [(user.resource, user.name) for user in claim.status.reserved_for] == [("jobs", name)]
    assert claim.status.allocation is not None
    assert claim.status.allocation.reserved_for_any_pod


def do(cluster: DraCluster, command: str) -> None:
    """The effect of `dralloc delete`."""
    match = re.fullmatch(r"dralloc delete (pod|devicetaintrule) (\S+)(?: -n (\S+))?", command)
    assert match is not None, f"cannot do {command}"
    kinds: dict[str, type[ApiObject]] = {"pod": Pod, "devicetaintrule": DeviceTaintRule}
    cluster.delete(kinds[match[1]], match[2], namespace=match[3] or "default")


@pytest.mark.slow
@pytest.mark.parametrize("example", [each for each in EXAMPLES if each not in GATED], ids=lambda path: path.name)
@pytest.mark.dra_cluster(nodes={})
def test_on_a_cluster_an_example_does_what_its_tables_say(example: Path, dra_cluster: DraCluster) -> None:
    check_on_cluster(example, dra_cluster)


@pytest.mark.slow
@pytest.mark.parametrize("example", OF_GROUPS, ids=lambda path: path.name)
@pytest.mark.dra_cluster(nodes={}, feature_gates="GenericWorkload=true")
def test_on_a_cluster_with_groups_an_example_does_what_its_tables_say(example: Path, dra_cluster: DraCluster) -> None:
    check_on_cluster(example, dra_cluster)


@pytest.mark.slow
@pytest.mark.parametrize("example", [each for each in GATED if each not in OF_GROUPS], ids=lambda path: path.name)
@pytest.mark.dra_cluster(nodes={}, feature_gates="AllAlpha=true")
def test_on_a_cluster_with_all_features_an_example_does_what_its_tables_say(
    example: Path, dra_cluster: DraCluster
) -> None:
    check_on_cluster(example, dra_cluster)


def check_on_cluster(example: Path, dra_cluster: DraCluster) -> None:
    dra_cluster.apply(example)
    for step in steps(example):
        if step.command:
            do(dra_cluster, step.command)
        for expected in step.expected:
            expect(dra_cluster, expected)
    text = (example / "README.md").read_text()
    for manifest, message in re.findall(r"refused:\n\n```yaml\n(.*?)```\n\n```\n(.*?)\n```", text, flags=re.DOTALL):
        with pytest.raises(Forbidden, match=re.escape(message)):
            dra_cluster.apply(manifest)
