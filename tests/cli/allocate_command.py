"""Runs `dralloc allocate` in this process, and what it is asked about."""

from __future__ import annotations

from pathlib import Path

from typer.testing import CliRunner, Result

from dralloc.cli.main import app

CASES = Path(__file__).parents[1] / "cases" / "explain"
CLUSTER, CLAIMS = str(CASES / "cluster.yaml"), str(CASES / "claims.yaml")

NODES = """\
apiVersion: v1
kind: Node
metadata: {name: n1, labels: {zone: a}}
---
apiVersion: v1
kind: Node
metadata: {name: n2, labels: {zone: b}}
spec: {taints: [{key: reserved, effect: NoSchedule}]}
"""

POD = """\
apiVersion: v1
kind: Pod
metadata: {{name: p, namespace: ml, uid: uid-of-p}}
spec:
  containers: [{{name: c, image: i}}]
  resourceClaims: [{{name: own, resourceClaimTemplateName: eight}}]
{more}
"""


def run(*arguments: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(app, ["allocate", *arguments], input=stdin)


def rows(result: Result) -> list[list[str]]:
    return [line.split() for line in result.stdout.splitlines() if "/" in line.split(" ", 1)[0]]
