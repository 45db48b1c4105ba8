"""The page acts with the rights of the user who looks at it: what it may not show is named, and it uses exactly its own role."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from dralloc import connect
from dralloc.primitives.features import FeatureGates
from dralloc.scheduler.report.fragmentation import FragmentationHistory
from dralloc.system_clock import SystemClock
from dralloc.testing.cluster import ClusterSettings, components_on, fleet
from dralloc.testing.component_rights import ComponentAccount, component_manifests
from dralloc.web.explain_endpoint import ExplainEndpoint
from dralloc.web.page import device_page
from tests.support.api_server import TOKEN
from tests.support.browser import Page, browser_page
from tests.support.rights import grants_of, guarded_server
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


def test_the_page_uses_exactly_its_permissions() -> None:
    user, role = ComponentAccount.WEB_PAGE.user.name, tuple(component_manifests(ComponentAccount.WEB_PAGE))
    granted = grants_of(user, role)
    gates, history = FeatureGates.parse("DRAPreemption=true"), FragmentationHistory()
    nodes = (fleet("gpu", 3), fleet("nic", 2), fleet("mig", 1))
    settings = ClusterSettings(gates=gates, fleets=nodes, fragmentation=history)
    served = partial(guarded_server, pages=device_page(), extensions=(ExplainEndpoint(gates, history),))

    async def main() -> None:
        async with (
            served(SystemClock(), {user: role}, gates) as application,
            components_on(application, TOKEN, settings) as cluster,
            browser_page() as page,
        ):
            await cluster.components.guard(cluster.nodes_ready.wait())
            for document in scene():
                await cluster.client.create(document)
            await page.open(f"{await cluster.listen()}/ui/#token={user}")
            await page.until(LIVE)
            assert await page.run("document.querySelector('.denied')") is None
            await page.go("#/pods/research/giant")
            await page.sees("insufficient")
            for _ in range(120):
                if application.used[user] >= granted:
                    break
                await asyncio.sleep(0.5)
        assert sorted(map(str, granted - application.used[user])) == []
        assert application.refused == {}

    asyncio.run(main())
