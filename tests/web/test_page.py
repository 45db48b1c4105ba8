"""The page in a real browser, on a cluster of `dralloc up` with objects of every kind."""

from __future__ import annotations

import asyncio
import json
import sys
from asyncio.subprocess import PIPE
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from dralloc import connect
from dralloc.cli.main import app
from dralloc.client.blocking_client import Client
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.resource_v1 import ResourceClaim
from dralloc.testing import builders as build
from tests.support.accessibility import accessibility_violations
from tests.support.browser import Page, PageFailed, browser_windows
from tests.support.cluster_process import ClusterProcess
from tests.support.ports import free_port
from tests.support.server_process import ServerProcess, server_process
from tests.support.web_scene import SHARES, with_own_claim
from tests.support.web_window import LIVE, Window, window
from tests.support.workloads import Document, claim_template, pod, quota, template

HOSTILE = "<img src=x onerror='window.taken=1'><script>window.taken=1</script>"

pytestmark = [pytest.mark.slow, pytest.mark.real]


# --- What is there ------------------------------------------------------------------------------------------------


def test_devices_are_bars_of_capacity_by_claim(opened: Window, cluster: ClusterProcess) -> None:
    # Which partitions are without counters depends on the order in which pods were scheduled.
    told = CliRunner().invoke(app, ["top", "devices", "-o", "json", "--kubeconfig", str(cluster.kubeconfig)])
    states = Counter(each["state"] for pool in json.loads(told.stdout)["pools"] for each in pool["devices"])

    async def look(page: Page) -> None:
        await page.go("#/")
        await page.sees("gpu.example.com")
        said = await page.text(".totals")
        assert "82" in said, "3 x 8 cards, 2 x 3 interfaces, 52 partitions"
        assert states["blocked"] > 1, "a tainted card, and partitions without counters"
        assert f"{states['free']} free, {states['blocked']} blocked" in said
        shares = json.loads(
            await page.run("""JSON.stringify([...document.querySelectorAll('.bar a.segment')].map((segment) => ({
                said: segment.title,
                part: segment.getBoundingClientRect().width / segment.parentElement.getBoundingClientRect().width,
                colour: getComputedStyle(segment).backgroundColor,
            })))""")
        )
        chat = {share["said"]: share for share in shares if "chat" in share["said"]}
        assert set(chat) == {"serving/chat-0: 40Gi of memory", "serving/chat-1: 40Gi of memory"}
        assert all(0.48 < share["part"] < 0.52 for share in chat.values()), "half a card each"
        assert len({share["colour"] for share in chat.values()}) == 2

    opened.run(look)


@pytest.mark.parametrize(("by", "parts"), [("", "hardware"), ("driver", "drivers")])
def test_totals_are_those_of_the_command_line(cluster: ClusterProcess, opened: Window, by: str, parts: str) -> None:
    command = ["top", "devices", "--summary", "-o", "json", "--kubeconfig", str(cluster.kubeconfig)]
    told = json.loads(CliRunner().invoke(app, command).stdout)
    expected = {
        " ".join(filter(None, (group["driver"], group.get("product")))): {
            "devices": f"{group['devices']} devices",
            "states": {state: f"{count:,}" for state, count in group["states"].items() if count},
            "hardware": {
                name: f"{amount['used']} of {amount['value']} used, {amount['available']} available"
                for name, amount in group["hardware"].items()
            },
            "largest": {
                name: largest for name, largest in group["largestRequest"].items() if name in group["hardware"]
            },
        }
        for group in told[parts]
    }

    async def look(page: Page) -> None:
        await page.go(f"#/?by={by}")
        await page.sees("gpu.example.com")
        await page.click(".tile summary")
        seen = json.loads(
            await page.run("""JSON.stringify(Object.fromEntries([...document.querySelectorAll('.tile:not(.fragmentation)')].map((tile) => {
                const sums = [...tile.querySelectorAll('.sum')].map((sum) => ({
                    name: sum.querySelector('.sum-name').innerText,
                    amount: sum.querySelector('.amount').title,
                    largest: /largest request (.*)$/.exec(sum.querySelector('.sum-said').innerText)?.[1],
                }));
                return [tile.querySelector('h3').innerText, {
                    devices: tile.querySelector('p').innerText.split(' in ')[0],
                    states: Object.fromEntries([...tile.querySelectorAll('.legend li')].map((each) => each.innerText.trim().split(' ').reverse())),
                    hardware: Object.fromEntries(sums.map(({ name, amount }) => [name, amount])),
                    largest: Object.fromEntries(sums.filter(({ largest }) => largest).map(({ name, largest }) => [name, largest])),
                }];
            })))""")
        )
        assert seen == expected
        assert seen["mig.example.com"]["hardware"]["memory"].startswith("30Gi of 160Gi used")
        assert ("gpu.example.com x80" in seen) is (by == ""), "the model of the cards"

    opened.run(look)


def test_a_kind_of_hardware_selects_its_nodes(opened: Window) -> None:
    async def look(page: Page) -> None:
        await page.go("#/")
        await page.until("document.querySelector('.tile button')?.innerText === 'gpu.example.com x80'")
        await page.click(".tile button")
        await page.until("document.querySelector('.found').innerText === '3 nodes'")
        assert await page.run("location.hash") == "#/?driver=gpu.example.com&product=x80"
        await page.click(".tile button")
        await page.until("document.querySelector('.found').innerText === '6 nodes'")

    opened.run(look)


def test_a_claims_story_says_what_was_asked_rounded_and_given(opened: Window) -> None:
    async def look(page: Page) -> None:
        await page.go("#/claims/research/fine-tune")
        await page.sees("rounded up")
        row = await page.text(".amounts tbody tr")
        assert row.split("\t") == [
            "memory",
            "50500Mi",
            "at least 1Gi, in steps of 1Gi, default 80Gi",
            "50Gi rounded up",
            "80Gi",
        ]
        await page.go("#/claims/research/benchmark")
        await page.sees("default, nothing requested")
        await page.go("#/claims/research/sweep")
        await page.sees("Reserved for jobs/sweep")
        await page.sees("24 pods")

    opened.run(look)


def test_alternatives_show_which_was_chosen(opened: Window) -> None:
    async def look(page: Page) -> None:
        await page.go("#/claims/research/flexible")
        await page.sees("the first of 3 alternatives")
        fates = await page.run("[...document.querySelectorAll('.wish')].map((wish) => wish.dataset.fate)")
        assert fates == ["passed over", "chosen", "not needed"]

    opened.run(look)


def test_a_waiting_pod_says_why_in_parts(opened: Window) -> None:
    async def look(page: Page) -> None:
        await page.go("#/pods")
        await page.sees("0 of 6 nodes available")
        reasons = await page.run("[...document.querySelectorAll('.reason')].map((reason) => reason.innerText.trim())")
        assert [reason.split("\n")[-1] for reason in reasons] == [
            "insufficient memory: requested 96Gi, the largest device has 80Gi",
            "no device of class gpu.example.com",
        ]
        await page.go("#/pods/research/giant")
        await page.sees("It would fit if you")
        await page.sees("FailedScheduling")

    opened.run(look)


# --- The explanation is that of the command ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Stuck:
    """An object that the page and `dralloc explain` explain, and a part of what both say."""

    id: str
    kind: str
    key: str
    says: str
    documents: tuple[Document, ...] = ()


def _pod(name: str, claims: Mapping[str, Document], namespace: str = "explained", **spec: Any) -> Document:
    document = pod(name, claims, namespace=namespace)
    return {**document, "spec": {**document["spec"], **spec}}


def _template(name: str, namespace: str = "explained") -> Document:
    return claim_template(name, build.request("gpu", device_class="gpu.example.com"), namespace=namespace)


def _namespace(name: str) -> Document:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


OF_TEMPLATE = {"gpu": template("gpu")}


STUCK = [
    Stuck(
        "a gated pod",
        "pod",
        "explained/gated",
        "example.com/paid",
        (
            _namespace("explained"),
            _template("gpu"),
            _pod("gated", OF_TEMPLATE, schedulingGates=[{"name": "example.com/paid"}]),
        ),
    ),
    Stuck(
        "a pod of another scheduler",
        "pod",
        "explained/foreign",
        "elsewhere",
        (_pod("foreign", OF_TEMPLATE, schedulerName="elsewhere"),),
    ),
    Stuck(
        "a pod whose claim the quota refuses",
        "pod",
        "bounded/refused",
        "quota",
        (
            _namespace("bounded"),
            quota("none", {"count/resourceclaims.resource.k8s.io": "0"}, namespace="bounded"),
            _template("gpu", "bounded"),
            _pod("refused", OF_TEMPLATE, "bounded"),
        ),
    ),
    Stuck(
        "a gang that does not fit",
        "podgroup",
        "research/gang",
        "pod group research/gang does not fit: minCount (4) cannot be satisfied",
    ),
    Stuck("a member of it", "pod", "research/gang-0", "pod group research/gang does not fit"),
    Stuck("a pod that does not fit", "pod", "research/giant", "insufficient memory: requested 96Gi"),
    Stuck("its claim", "claim", "research/giant", "insufficient memory: requested 96Gi"),
    Stuck("a pod that runs", "pod", "serving/chat-0", "is on node gpu-"),
    Stuck("a claim with devices", "claim", "serving/chat-0", "has its devices already"),
]


@pytest.mark.usefixtures("gang")
@pytest.mark.parametrize("case", STUCK, ids=lambda case: case.id)
def test_the_explanation_is_that_of_the_command(
    opened: Window, cluster: ClusterProcess, client: Client, case: Stuck
) -> None:
    for document in case.documents:
        client.create(document)
    command = ["explain", case.kind, case.key, "--kubeconfig", str(cluster.kubeconfig)]

    async def run_command() -> tuple[str, bool]:
        """What it prints, and whether something blocks the object."""
        process = await asyncio.create_subprocess_exec(sys.executable, "-m", "dralloc", *command, stdout=PIPE)
        printed, _ = await process.communicate()
        return printed.decode().removesuffix("\n"), process.returncode != 0

    async def look(page: Page) -> None:
        await page.go(f"#/{case.kind}s/{case.key}")
        # The cluster may still change, so both are compared until they agree.
        for _ in range(5):
            said, is_blocked = await run_command()
            shown = f"document.querySelector('.explanation-text').textContent === {json.dumps(said)}"
            with suppress(PageFailed):
                await page.until(shown, 5)
                break
        else:
            assert await page.run("document.querySelector('.explanation-text').textContent") == said
        headline = said.splitlines()[0]
        assert case.says in headline
        assert await page.text(".answer") == headline
        assert await page.run("document.querySelector('.answer').classList.contains('fault')") is is_blocked

    opened.run(look)


@pytest.mark.usefixtures("gang")
def test_a_gangs_page_shows_members_what_is_missing_and_what_would_do(opened: Window) -> None:
    async def look(page: Page) -> None:
        await page.go("#/pods/research/gang-0")
        await page.click("a[href='#/podgroups/research/gang']")
        await page.sees("4 pods")
        await page.until("document.querySelectorAll('.members li').length === 4")
        states = "[...document.querySelectorAll('.members li')].map((row) => row.dataset.state)"
        shown = await page.run(states)
        assert shown == sorted(shown), "those that would fit, then those that are missing"
        assert shown[-1] == "Missing"
        if "Fits" in shown:
            await page.sees(f"set spec.schedulingPolicy.gang.minCount to {shown.count('Fits')}")
        await page.sees("Nodes for the first pod that is missing")

    opened.run(look)


def test_lists_are_searched_and_paged(opened: Window) -> None:
    async def look(page: Page) -> None:
        await page.go("#/claims")
        await page.fill("#filter", "notebook")
        await page.until("document.querySelector('.found').innerText === '3 claims'")
        assert await page.run("location.hash") == "#/claims?q=notebook"
        await page.go("#/pods")
        await page.fill("#filter", "sweep")
        await page.until("document.querySelector('.found').innerText === '24 pods'")
        await page.go("#/?state=blocked")
        await page.until("document.querySelector('.found').innerText === '2 nodes'")
        await page.go("#/?by=fake.dralloc.io/profile&sort=most")
        await page.until("document.querySelector('.tile h3').innerText === 'gpu'")
        assert (await page.text(".node h3")).startswith("gpu-")
        await page.click(".tile:nth-child(3) button")
        await page.until("document.querySelector('.found').innerText === '2 nodes'")
        await page.go("#/nowhere/at/all")
        await page.sees("Page not found")

    opened.run(look)


def test_a_node_shows_counters_and_everything_of_its_devices(opened: Window) -> None:
    async def look(page: Page) -> None:
        await page.go("#/nodes/mig-0")
        await page.sees("40 counters shared by devices")
        await page.sees("serving/small-0")
        await page.sees("none: blocked by counters: insufficient counter card-0/")
        await page.go("#/nodes/gpu-2")
        await page.sees("example.com/too-hot:NoSchedule")
        await page.go("#/pools/nic.example.com/nic-0")
        await page.sees("2500M of bandwidth")

    opened.run(look)


# --- Live ---------------------------------------------------------------------------------------------------------


def test_what_happens_shows_by_itself(opened: Window, client: Client) -> None:
    async def arrives(page: Page) -> None:
        await page.go("#/claims/serving/late")
        await page.sees("There is no claim serving/late")
        wish = {"exactly": {"deviceClassName": "nic.example.com", "capacity": {"requests": {"bandwidth": "7G"}}}}
        for document in with_own_claim("serving", "late", wish):
            client.create(document)
        await page.sees("7G as requested")

    async def goes(page: Page) -> None:
        client.delete(Pod, "late", namespace="serving")
        client.delete(ResourceClaim, "late", namespace="serving")
        await page.sees("There is no claim serving/late")

    opened.run(arrives)
    opened.run(goes)


def test_new_devices_appear_and_their_texts_stay_texts(opened: Window, client: Client) -> None:
    device = {"name": "odd", "attributes": {"note": {"string": HOSTILE[:64]}}}
    document: dict[str, Any] = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": "odd"},
        "spec": {
            "driver": "odd.example.com",
            "nodeName": "odd-node",
            "pool": {"name": "odd", "generation": 1, "resourceSliceCount": 1},
            "devices": [device],
        },
    }

    async def look(page: Page) -> None:
        await page.go("#/nodes/odd-node")
        await page.sees("There is no node odd-node")
        client.create(document)
        await page.sees(HOSTILE[:64])
        assert await page.run("document.querySelectorAll('main img, main script').length") == 0
        assert await page.run("window.taken") is None

    opened.run(look)


def test_three_windows_are_live_at_once(cluster: ClusterProcess, client: Client) -> None:
    """A browser has six connections to a server, so endless watches would block the third window."""

    async def main() -> None:
        async with browser_windows(3) as pages:
            for page in pages:
                await page.open(f"{cluster.url}/ui/#/claims")
            for page in pages:
                await page.until(LIVE)
            request = {"name": "device", "exactly": {"deviceClassName": "gpu.example.com"}}
            claim = {"metadata": {"name": "seen-by-all"}, "spec": {"devices": {"requests": [request]}}}
            client.create({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", **claim})
            for page in pages:
                await page.sees("seen-by-all", deadline_s=60)
        client.delete(ResourceClaim, "seen-by-all")

    asyncio.run(main())


def test_idle_devices_and_what_strands_them_are_charted_over_time(opened: Window) -> None:
    async def look(page: Page) -> None:
        await page.go("#/")
        await page.until("document.querySelectorAll('.fragmentation polyline').length === 3")
        said = await page.text(".fragmentation[data-driver='mig.example.com']")
        assert "idle" in said
        await page.go("#/?driver=nic.example.com")
        await page.until("document.querySelectorAll('.fragmentation').length === 1")

    opened.run(look)


# --- Coming and going of the server -----------------------------------------------------------------------------------


def token_of(server: ServerProcess) -> str:
    token: str = yaml.safe_load(server.kubeconfig.read_text())["users"][0]["user"]["token"]
    return token


def test_a_token_is_asked_for_and_a_server_that_comes_back_is_found(tmp_path: Path) -> None:
    connected = "document.querySelector('.connection')?.dataset.phase"

    async def sign_in(page: Page, server: ServerProcess) -> None:
        await page.open(f"{server.url}/ui/")
        await page.sees("Sign in")
        await page.fill("#token", "wrong")
        await page.press("Enter")
        await page.sees("The server rejected this token")
        assert await accessibility_violations(page) == []
        await page.fill("#token", f'"{token_of(server)}"')
        await page.press("Enter")
        await page.sees("dralloc node --fake 3 --profile gpu")
        assert await accessibility_violations(page) == []
        await page.go("#/claims")
        await page.sees("There is no device class yet")
        with connect(server.kubeconfig) as client:
            client.create(
                {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "rare"}, "spec": {}}
            )
        await page.sees("exactly: {deviceClassName: rare}")
        await page.go("#/")

    async def lose(page: Page) -> None:
        await page.until(f"{connected} === 'reconnecting'")
        assert "No devices yet" in await page.text(), "what was known stays"
        await page.sees("This is the last known state")
        assert await accessibility_violations(page) == []

    async def find(page: Page, server: ServerProcess) -> None:
        with connect(server.kubeconfig) as client:
            client.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "newcomer"}})
        await page.until(f"{connected} === 'live'")
        await page.sees("There is 1 node")

    async def come_with_token(page: Page, server: ServerProcess) -> None:
        await page.run("sessionStorage.clear()")
        await page.open("about:blank")
        await page.open(f"{server.url}/ui/#token={token_of(server)}")
        await page.until(LIVE)
        assert await page.run("location.hash") == "#/"

    port = ("--port", str(free_port()))
    with window("--ignore-certificate-errors") as shown:
        with server_process(tmp_path, *port) as server:
            shown.run(lambda page: sign_in(page, server))
            server.process.kill()
            shown.run(lose)
        with server_process(tmp_path, *port) as again:
            shown.run(lambda page: find(page, again))
            shown.run(lambda page: come_with_token(page, again))


def test_the_scene_is_what_these_tests_say() -> None:
    assert {name for _, name, _, _ in SHARES} >= {"chat-0", "chat-1", "fine-tune", "benchmark"}
