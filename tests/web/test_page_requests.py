"""The page's files over HTTP: headers, caching, paths, and protection against other sites."""

from __future__ import annotations

import http.client
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from dralloc.web.page import CONTENT_TYPES, FIRST
from tests.support.server_process import ServerProcess, server_process

STATIC = Path(__file__).parents[2] / "src" / "dralloc" / "web" / "static"

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True)
class Browser:
    """Sends paths without normalization."""

    server: ServerProcess

    def ask(self, path: str, method: str = "GET", **headers: str) -> Answer:
        connection = http.client.HTTPConnection(urlsplit(self.server.url).netloc, timeout=30)
        try:
            connection.request(method, path, headers={name.replace("_", "-"): value for name, value in headers.items()})
            response = connection.getresponse()
            return Answer(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read())
        finally:
            connection.close()


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with server_process(tmp_path_factory.mktemp("server"), "--insecure-http", "--store", "memory://") as server:
        yield Browser(server)


def test_every_file_is_served_with_its_type_and_kept_by_its_content(browser: Browser) -> None:
    files = [path for path in STATIC.rglob("*") if path.suffix in CONTENT_TYPES]
    assert len(files) > 20
    for path in files:
        place = path.relative_to(STATIC).as_posix()
        url = "/ui/" if place == FIRST else f"/ui/{place}"
        answer = browser.ask(url)
        assert (answer.status, answer.body) == (200, path.read_bytes())
        assert answer.headers["content-type"] == CONTENT_TYPES[path.suffix]
        assert browser.ask(url, if_none_match=answer.headers["etag"]).status == 304


def test_a_page_may_run_and_reach_itself_only(browser: Browser) -> None:
    headers = browser.ask("/ui/").headers
    policy = dict(part.strip().partition(" ")[::2] for part in headers["content-security-policy"].split(";"))
    assert policy["default-src"] == "'none'"
    assert {policy[kind] for kind in ("script-src", "style-src", "img-src", "connect-src")} == {"'self'"}
    assert policy["frame-ancestors"] == policy["base-uri"] == "'none'"
    assert policy["require-trusted-types-for"] == "'script'"
    assert headers["x-content-type-options"] == "nosniff"
    assert not any(name.startswith("access-control") for name in headers)


@dataclass(frozen=True)
class Case:
    id: str
    path: str
    status: int
    method: str = "GET"
    headers: Mapping[str, str] = field(default_factory=dict)
    leads_to: str | None = None


CASES = [
    Case("the folder without its slash", "/ui", 302, leads_to="/ui/"),
    Case("a browser at the root", "/", 302, headers={"accept": "text/html,*/*;q=0.8"}, leads_to="/ui/"),
    Case("kubectl at the root", "/", 200, headers={"accept": "application/json, */*"}),
    Case("anybody at the root", "/", 200, headers={"accept": "*/*"}),
    Case("a longer name", "/uiii", 404),
    Case("no such file", "/ui/nothing.mjs", 404),
    Case("a folder", "/ui/views/", 404),
    Case("a file of another type", "/ui/vendor/LICENSE-htm.txt", 404),
    Case("upwards", "/ui/../page.py", 404),
    Case("upwards, escaped", "/ui/%2e%2e/page.py", 404),
    Case("upwards, escaped slash", "/ui/..%2fpage.py", 404),
    Case("upwards, twice escaped", "/ui/%252e%252e/page.py", 404),
    Case("upwards, backslash", "/ui/..\\page.py", 404),
    Case("far upwards", "/ui/../../../../../../etc/passwd", 404),
    Case("an absolute path", "/ui//etc/passwd", 404),
    Case("a null byte", "/ui/main.mjs%00.html", 404),
    Case("a write", "/ui/", 405, method="POST"),
    Case("a removal", "/ui/main.mjs", 405, method="DELETE"),
    Case("only the head", "/ui/main.mjs", 200, method="HEAD"),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_paths(browser: Browser, case: Case) -> None:
    answer = browser.ask(case.path, case.method, **case.headers)
    assert answer.status == case.status
    assert answer.headers.get("location") == case.leads_to


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"origin": "@SERVER@"}, 200),
        ({"host": "localhost:8642"}, 200),
        ({"host": "[::1]:8642", "origin": "http://[::1]:8642"}, 200),
        ({"origin": "https://elsewhere.example"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "http://127.0.0.1:1"}, 403),
        ({"host": "elsewhere.example:8642"}, 403),
        ({"host": "elsewhere.example:8642", "origin": "http://elsewhere.example:8642"}, 403),
    ],
)
def test_pages_of_other_sites_reach_nothing(browser: Browser, headers: dict[str, str], status: int) -> None:
    """Every client of a server without tokens is its administrator, so pages of other sites must be refused."""
    sent = {name: value.replace("@SERVER@", browser.server.url) for name, value in headers.items()}
    assert browser.ask("/api/v1/namespaces", **sent).status == status
    explained = browser.ask("/dralloc/v1/explain/pods/default/none", **sent)
    assert explained.status == (404 if status == 200 else status), "there is no such pod"
    written = browser.ask("/api/v1/namespaces", "POST", **sent)
    assert (written.status == 403) is (status == 403), "the body is no object, but that is looked at later"


def test_a_page_needs_no_token_and_the_api_does(tmp_path: Path) -> None:
    import ssl
    import urllib.error
    import urllib.request

    # Certificates are tested elsewhere.
    context = ssl._create_unverified_context()
    with server_process(tmp_path, "--store", "memory://") as server:
        with urllib.request.urlopen(f"{server.url}/ui/", context=context) as response:
            assert response.status == 200
        for path in ("/api/v1/pods", "/dralloc/v1/explain/pods/default/none"):
            with pytest.raises(urllib.error.HTTPError) as refused:
                urllib.request.urlopen(f"{server.url}{path}", context=context)
            assert refused.value.code == 401
            refused.value.close()
