"""The page acts with the rights of the user who looks at it: what it may not show is named, and it uses exactly its own role."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from dralloc import connect
from dralloc.assembly.component_rights import ComponentAccount, component_manifests
from tests.support.browser import Page
from tests.support.cluster_process import cluster_process
from tests.support.rights import Grant, Right, grants_of
from tests.support.server_process import server_process
from tests.support.web_scene import scene
from tests.support.web_window import LIVE, window

ROOT = Path(__file__).parents[2]
TOKENS = 'of-alice,alice,1,"team-a"\nof-bob,bob,2\n'
RBAC = "rbac.authorization.k8s.io"
TEAM = f"""
- {{apiVersion: v1, kind: Namespace, metadata: {{name: team-a}}}}
- {{apiVersion: v1, kind: Node, metadata: {{name: secret-node}}}}
- apiVersion: {RBAC}/v1
  kind: ClusterRole
  metadata: {{name: see-devices}}
  rules: [{{apiGroups: [resource.k8s.io], resources: [deviceclasses, resourceslices], verbs: [list, watch]}}]
- apiVersion: {RBAC}/v1
  kind: ClusterRoleBinding
  metadata: {{name: see-devices}}
  roleRef: {{apiGroup: {RBAC}, kind: ClusterRole, name: see-devices}}
  subjects: [{{apiGroup: {RBAC}, kind: Group, name: team-a}}]
- apiVersion: {RBAC}/v1
  kind: RoleBinding
  metadata: {{name: team-a, namespace: team-a}}
  roleRef: {{apiGroup: {RBAC}, kind: ClusterRole, name: view}}
  subjects: [{{apiGroup: {RBAC}, kind: Group, name: team-a}}]
"""

pytestmark = [pytest.mark.slow, pytest.mark.real]


def pod_of(namespace: str, name: str) -> dict[str, Any]:
    containers = [{"name": "c", "image": "registry.example/c:1"}]
    metadata = {"namespace": namespace, "name": name}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": containers}}


def test_what_the_user_may_not_see_is_named_and_the_rest_is_shown(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.csv"
    tokens.write_text(TOKENS)

    async def look(page: Page, url: str) -> None:
        await page.open(f"{url}/ui/#token=of-alice")
        await page.until(LIVE)
        said = await page.text(".denied")
        for kind in ("nodes", "device taint rules", "resource claims", "pods"):
            assert kind in said
        for kind in ("device classes", "resource slices"):
            assert kind not in said
        assert "Devices look free, because claims are not counted." in said
        await page.go("#/pods")
        await page.sees("You may not see pods.")
        # The permissions in one namespace are of use as soon as it is chosen.
        await page.fill("#namespace", "team-a")
        await page.press("Enter")
        await page.sees("team-a/ours")
        assert "default/theirs" not in await page.text()
        assert "secret-node" not in await page.text()
        # Another user, and nothing of the first one is left.
        await page.go("#/sign-in")
        await page.fill("#token", "of-bob")
        await page.press("Enter")
        await page.sees("Access denied")
        assert "team-a/ours" not in await page.text()
        assert await page.run("localStorage.length + document.cookie.length") == 0

    options = ("--token-file", str(tokens))
    with server_process(tmp_path / "data", *options) as server, window("--ignore-certificate-errors") as shown:
        with connect(server.kubeconfig) as client:
            for document in yaml.safe_load(TEAM):
                client.create(document)
            client.create(pod_of("team-a", "ours"))
            client.create(pod_of("default", "theirs"))
        shown.run(lambda page: look(page, server.url))
        assert {sent.method for sent in shown.page.sent} == {"GET"}


def test_the_page_uses_exactly_its_permissions(tmp_path: Path) -> None:
    """With the link that `dralloc up` prints; the audit log says what the page asked for."""
    policy, log = tmp_path / "policy.yaml", tmp_path / "audit.log"
    policy.write_text("{apiVersion: audit.k8s.io/v1, kind: Policy, rules: [{level: Metadata}]}")
    account = ComponentAccount.WEB_PAGE
    granted = grants_of(account.user.name, component_manifests(account))

    async def look(page: Page, link: str) -> None:
        await page.open(link)
        await page.until(LIVE)
        assert await page.run("document.querySelector('.denied')") is None
        await page.go("#/pods/research/giant")
        await page.sees("insufficient")

        def has_used_everything() -> bool:
            return used_by(log, account.user.name)[0] >= granted

        for _ in range(120):
            if has_used_everything():
                return
            await page.run("new Promise((resolve) => setTimeout(resolve, 500))")

    options = ("--audit-policy-file", str(policy), "--audit-log-path", str(log))
    with cluster_process("--ephemeral", "--nodes", "gpu=3,nic=2,mig=1", *options) as cluster, window() as shown:
        with connect(cluster.kubeconfig) as client:
            for document in scene():
                client.create(document)
        found = re.search(r"http\S+/ui/#token=\S+", cluster.said)
        assert found is not None
        shown.run(lambda page: look(page, found[0]))
    used, refused = used_by(log, account.user.name)
    assert sorted(map(str, granted - used)) == []
    assert refused == []


def used_by(log: Path, user: str) -> tuple[frozenset[Grant], list[str]]:
    """What the user did, and what it was refused."""
    used: set[Grant] = set()
    refused: list[str] = []
    for line in log.read_text().splitlines():
        event = json.loads(line)
        if event["user"].get("username") != user or "objectRef" not in event:
            continue
        about = event["objectRef"]
        right = Right(event["verb"], about.get("apiGroup", ""), about["resource"])
        # What is read by name is granted by name.
        is_named = right.verb == "get"
        namespace = about.get("namespace", "") if is_named and right.resource != "namespaces" else ""
        used.add(Grant(right, namespace, about.get("name", "") if is_named else ""))
        if event.get("responseStatus", {}).get("code") == 403:
            refused.append(event["requestURI"])
    return frozenset(used), refused
