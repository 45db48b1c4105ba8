"""Tokens of service accounts: what they prove, to whom, and for how long."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import jwt
import pytest

from dralloc.primitives.features import FeatureGates
from dralloc.server.identity.signing_keys import SigningKeys
from dralloc.server.server import ApiServer
from dralloc.server.store.memory import MemoryStore
from dralloc.server.write.service_account_tokens import ISSUER, LIFETIME_MAX, ServiceAccountTokens
from tests.support.local_api import PODS, FixedClock, LocalApi, pod_document, refusal

ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"
TOKEN = f"{ACCOUNTS}/web/token"


class Site:
    """A server with the account `web`, whose clock a test sets."""

    def __init__(self, api: LocalApi, tokens: ServiceAccountTokens, clock: FixedClock, keys: SigningKeys) -> None:
        self.api = api
        self.tokens = tokens
        self.clock = clock
        self.keys = keys

    async def token(self, **spec: Any) -> str:
        answer = await self.api.create(TOKEN, {"spec": spec})
        return str(answer["status"]["token"])

    async def holds(self, token: str, *audiences: str) -> bool:
        return await self.tokens.verify(token, audiences) is not None


@asynccontextmanager
async def site(directory: Path | None = None) -> AsyncIterator[Site]:
    clock = FixedClock()
    keys = SigningKeys(directory)
    async with MemoryStore() as store:
        tokens = ServiceAccountTokens(store, keys, clock=clock)
        server = ApiServer(store, clock=clock, gates=FeatureGates.defaults(), accounts=tokens)
        await server.start()
        api = LocalApi(server)
        await api.create(ACCOUNTS, {"metadata": {"name": "web"}})
        try:
            yield Site(api, tokens, clock, keys)
        finally:
            await server.stop()


def test_a_token_proves_its_account_until_it_expires() -> None:
    async def main() -> None:
        async with site() as here:
            answer = await here.api.create(TOKEN, {"spec": {"expirationSeconds": 600}})
            assert answer["status"]["expirationTimestamp"] == "2026-01-01T00:10:00Z"
            assert answer["spec"]["audiences"] == [ISSUER]
            token = answer["status"]["token"]
            verified = await here.tokens.verify(token)
            assert verified is not None
            assert verified.user.name == "system:serviceaccount:default:web"
            assert verified.user.groups == (
                "system:serviceaccounts",
                "system:serviceaccounts:default",
                "system:authenticated",
            )
            assert verified.user.uid == (await here.api.get(f"{ACCOUNTS}/web"))["metadata"]["uid"]
            here.clock.time += timedelta(seconds=599)
            assert await here.holds(token)
            here.clock.time += timedelta(seconds=1)
            assert not await here.holds(token)

    asyncio.run(main())


def test_a_token_is_for_its_audiences_only() -> None:
    async def main() -> None:
        async with site() as here:
            token = await here.token(audiences=["vault", "db"])
            assert not await here.holds(token)
            verified = await here.tokens.verify(token, ("db", "other"))
            assert verified is not None
            assert verified.audiences == ("db",)
            assert not await here.holds(token, "other")

    asyncio.run(main())


@pytest.mark.parametrize("gone", ["account", "account again", "pod", "pod again", "namespace"])
def test_a_token_is_void_as_soon_as_its_account_or_pod_is_gone(gone: str) -> None:
    async def main() -> None:
        async with site() as here:
            api = here.api
            pod = pod_document("p")
            pod["spec"]["serviceAccountName"] = "web"
            uid = (await api.create(PODS, pod))["metadata"]["uid"]
            token = await here.token(boundObjectRef={"kind": "Pod", "apiVersion": "v1", "name": "p", "uid": uid})
            verified = await here.tokens.verify(token)
            assert verified is not None
            assert dict(verified.user.extra)["authentication.kubernetes.io/pod-uid"] == (uid,)
            if gone.startswith("account"):
                await api.delete(f"{ACCOUNTS}/web")
                if gone.endswith("again"):
                    await api.create(ACCOUNTS, {"metadata": {"name": "web"}})
            else:
                await api.delete(f"{PODS}/p", {"gracePeriodSeconds": 0})
                if gone.endswith("again"):
                    await api.create(PODS, pod)
            assert not await here.holds(token)

    asyncio.run(main())


def test_a_token_is_bound_to_a_secret_or_a_node() -> None:
    async def main() -> None:
        async with site() as here:
            secrets = "/api/v1/namespaces/default/secrets"
            await here.api.create(secrets, {"metadata": {"name": "s"}})
            await here.api.create("/api/v1/nodes", {"metadata": {"name": "n"}})
            by_secret = await here.token(boundObjectRef={"kind": "Secret", "name": "s"})
            by_node = await here.token(boundObjectRef={"kind": "Node", "name": "n"})
            verified = await here.tokens.verify(by_node)
            assert verified is not None
            assert dict(verified.user.extra)["authentication.kubernetes.io/node-name"] == ("n",)
            await here.api.delete(f"{secrets}/s")
            await here.api.delete("/api/v1/nodes/n")
            assert not await here.holds(by_secret)
            assert not await here.holds(by_node)

    asyncio.run(main())


def test_a_bad_request_for_a_token_is_refused() -> None:
    async def main() -> None:
        async with site() as here:

            async def code(path: str = TOKEN, **spec: Any) -> int:
                return (await refusal(here.api.create(path, {"spec": spec}))).code

            assert await code(f"{ACCOUNTS}/none/token") == 404
            assert await code(expirationSeconds=599) == 422
            assert await code(expirationSeconds=2**33) == 422
            assert await code(boundObjectRef={"kind": "Pod", "name": "none"}) == 404
            assert await code(boundObjectRef={"kind": "Job", "apiVersion": "batch/v1", "name": "j"}) == 400
            await here.api.create(PODS, pod_document("p"))
            assert await code(boundObjectRef={"kind": "Pod", "name": "p"}) == 400
            assert await code(f"{ACCOUNTS}/web/token", boundObjectRef={"kind": "Pod", "name": "p", "uid": "x"}) == 409
            answer = await here.api.create(TOKEN, {"spec": {"expirationSeconds": 2**32}})
            assert answer["spec"]["expirationSeconds"] == LIFETIME_MAX.total_seconds()

    asyncio.run(main())


def test_forged_tokens_are_refused() -> None:
    async def main() -> None:
        async with site() as here:
            token = await here.token()
            key = here.keys.current()
            claims = jwt.decode(token, options={"verify_signature": False})
            head, body, signature = token.split(".")
            flipped = ("A" if signature[5] != "A" else "B").join((signature[:5], signature[6:]))
            other = SigningKeys().current()
            secret = key.jwk()["x"]
            for forged in (
                f"{head}.{body}.{flipped}",
                f"{head}.{body}.",
                jwt.encode(claims, "", algorithm="none", headers={"kid": key.id}),
                jwt.encode(claims, other.private, algorithm="ES256", headers={"kid": key.id}),
                jwt.encode(claims, other.private, algorithm="ES256", headers={"kid": other.id}),
                jwt.encode(claims, secret, algorithm="HS256", headers={"kid": key.id}),
                jwt.encode({**claims, "iss": "https://other"}, key.private, algorithm="ES256", headers={"kid": key.id}),
                jwt.encode(claims, key.private, algorithm="ES256", headers={"kid": "../../" + key.id}),
                jwt.encode({**claims, "kubernetes.io": {}}, key.private, algorithm="ES256", headers={"kid": key.id}),
                "a.b.c",
                "",
                "é",
            ):
                assert not await here.holds(forged), forged
            assert await here.holds(token)

    asyncio.run(main())


def test_the_key_of_a_directory_is_made_once(tmp_path: Path) -> None:
    first = SigningKeys(tmp_path).current()
    again = SigningKeys(tmp_path)
    assert (again.current().id, list(again.all())) == (first.id, [first.id])
    assert all(path.stat().st_mode & 0o77 == 0 for path in tmp_path.iterdir())


def test_of_the_keys_of_an_earlier_release_the_newest_signs_and_all_verify(tmp_path: Path) -> None:
    """It replaced its key every month, and on demand."""

    async def main() -> None:
        async with site(tmp_path) as here:
            claims = jwt.decode(await here.token(), options={"verify_signature": False})
            newest, earlier = here.keys.current(), SigningKeys(tmp_path / "earlier").current()
            path = tmp_path / f"{earlier.id}.pem"
            (tmp_path / "earlier" / path.name).rename(path)
            os.utime(path, (0, 0))
            assert await here.holds(jwt.encode(claims, earlier.private, algorithm="ES256", headers={"kid": earlier.id}))
            for keys in (here.keys, SigningKeys(tmp_path)):
                assert (keys.current().id, set(keys.all())) == (newest.id, {newest.id, earlier.id})

    asyncio.run(main())


def test_tokens_are_void_when_the_file_of_their_key_is_deleted(tmp_path: Path) -> None:
    async def main() -> None:
        async with site(tmp_path) as here:
            token = await here.token()
            assert await here.holds(token)
            for path in tmp_path.iterdir():
                path.unlink()
            assert not await here.holds(token)
            assert await here.holds(await here.token())

    asyncio.run(main())


def test_a_file_that_is_no_key_does_no_harm(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        (tmp_path / f"{'a' * 32}.pem").write_text("nonsense")
        async with site(tmp_path) as here:
            assert await here.holds(await here.token())
            claims = jwt.encode({"iss": ISSUER}, "x" * 32, algorithm="HS256", headers={"kid": "a" * 32})
            assert not await here.holds(claims)
            assert "not used as a key" in caplog.text

    asyncio.run(main())


def test_others_find_the_keys() -> None:
    async def main() -> None:
        async with site() as here:
            token = await here.token(audiences=["vault"])
            found = await here.api.get("/.well-known/openid-configuration")
            assert found["issuer"] == ISSUER
            answer = await here.api.call("GET", "/openid/v1/jwks", accept="*/*")
            keys = jwt.PyJWKSet.from_json(answer.document)
            kid = jwt.get_unverified_header(token)["kid"]
            options: Any = {"verify_exp": False, "verify_nbf": False, "verify_iat": False}
            claims = jwt.decode(token, keys[kid], algorithms=["ES256"], audience="vault", options=options)
            assert claims["sub"] == "system:serviceaccount:default:web"
            assert (await here.api.call("GET", "/openid/v1/jwks")).code == 406

    asyncio.run(main())


def test_a_token_review_says_whose_token_it_is() -> None:
    async def main() -> None:
        async with site() as here:
            reviews = "/apis/authentication.k8s.io/v1/tokenreviews"
            token = await here.token()
            status = (await here.api.create(reviews, {"spec": {"token": token}}))["status"]
            assert status["authenticated"] is True
            assert status["user"]["username"] == "system:serviceaccount:default:web"
            assert status["audiences"] == [ISSUER]
            wrong = (await here.api.create(reviews, {"spec": {"token": token, "audiences": ["x"]}}))["status"]
            assert not wrong.get("authenticated")
            assert (await refusal(here.api.create(reviews, {"spec": {}}))).code == 400

    asyncio.run(main())
