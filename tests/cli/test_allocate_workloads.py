"""`dralloc allocate` for jobs, deployments and other workloads: it serves the pods that they would have."""

from __future__ import annotations

import pytest

from tests.cli.allocate_command import CLUSTER, POD, rows, run

JOB = """\
apiVersion: batch/v1
kind: Job
metadata: {{name: sweep, namespace: ml, annotations: {{{annotations}}}}}
spec:
  parallelism: {pods}
  {more}
  template:
    spec:
      restartPolicy: Never
      containers: [{{name: c, image: i}}]
      resourceClaims: [{{name: own, {source}}}]
---
"""

TEMPLATE = """\
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: eight, namespace: ml}
spec: {spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu}}]}}}
"""


@pytest.mark.parametrize(
    ("job", "claims"),
    [
        ({"pods": 2}, ["ml/sweep-0-own", "ml/sweep-1-own"]),
        ({"pods": 2, "more": "completions: 1"}, ["ml/sweep-0-own"]),
        ({"pods": 2, "more": "suspend: true"}, []),
        (
            {"pods": 2, "annotations": "dralloc.io/shared-claims: shared=eight", "source": "resourceClaimName: shared"},
            ["ml/shared"],
        ),
    ],
    ids=["a claim each", "no more than there is to do", "suspended", "one claim for all"],
)
def test_a_job_is_its_pods(job: dict[str, object], claims: list[str]) -> None:
    source = JOB.format(**{"more": "", "annotations": "", "source": "resourceClaimTemplateName: eight", **job})
    result = run("-f", CLUSTER, "-f", "-", stdin=source + TEMPLATE)
    assert [row[0] for row in rows(result)] == claims
    assert ("note: job ml/sweep: counted as " in result.stderr) == bool(claims)


DEPLOYMENT = """\
apiVersion: apps/v1
kind: {kind}
metadata: {{name: serve, namespace: ml}}
spec:
  {more}
  selector: {{matchLabels: {{app: serve}}}}
  template:
    metadata: {{labels: {{app: serve}}}}
    spec:
      containers: [{{name: c, image: i}}]
      resourceClaims: [{{name: own, resourceClaimTemplateName: eight}}]
---
"""


@pytest.mark.parametrize(
    ("kind", "more", "claims", "note"),
    [
        ("Deployment", "replicas: 2", ["ml/serve-0-own", "ml/serve-1-own"], "counted as 2 pods"),
        ("Deployment", "", ["ml/serve-0-own"], "counted as 1 pod"),
        ("DaemonSet", "", [], "ignored; the pods of DaemonSets are not simulated"),
    ],
)
def test_a_deployment_is_its_pods(kind: str, more: str, claims: list[str], note: str) -> None:
    result = run("-f", CLUSTER, "-f", "-", stdin=DEPLOYMENT.format(kind=kind, more=more) + TEMPLATE)
    assert [row[0] for row in rows(result)] == claims
    assert f"note: {kind.lower()} ml/serve: {note}" in result.stderr


@pytest.mark.parametrize(
    ("annotation", "said"),
    [
        ("nonsense", "job ml/sweep: annotation dralloc.io/shared-claims: 'nonsense' is not of the form claim=template"),
        ("shared=none", "job ml/sweep: claim shared: template ml/none does not exist"),
    ],
)
def test_a_job_whose_claims_cannot_be_told_is_refused(annotation: str, said: str) -> None:
    source = JOB.format(
        more="", pods=1, annotations=f"dralloc.io/shared-claims: {annotation}", source="resourceClaimName: x"
    )
    result = run("-f", CLUSTER, "-f", "-", stdin=source)
    assert (result.exit_code, said in result.stderr) == (2, True)


@pytest.mark.parametrize(
    ("workload", "owner"),
    [
        (
            JOB.format(more="", pods=2, annotations="", source="resourceClaimTemplateName: eight"),
            "kind: Job, name: sweep",
        ),
        (DEPLOYMENT.format(kind="Deployment", more="replicas: 2"), "kind: ReplicaSet, name: serve-5d8f"),
    ],
    ids=["job", "deployment"],
)
def test_the_pods_that_a_workload_has_count_and_not_the_workload(workload: str, owner: str) -> None:
    """As in what kubectl printed of a cluster."""
    owners = f"ownerReferences: [{{apiVersion: x/v1, {owner}, uid: u, controller: true}}]"
    pod = POD.format(more="").replace("uid: uid-of-p", f"uid: uid-of-p, {owners}")
    result = run("-f", CLUSTER, "-f", "-", stdin=f"{pod}---\n{workload}{TEMPLATE}")
    assert [row[0] for row in rows(result)] == ["ml/p-own"]
