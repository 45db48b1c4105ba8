"""Tokens of an identity provider: a real one on loopback, with keys that it changes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import jwt
import pytest
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

from dralloc.access.users import User
from dralloc.apiserver.http.oidc_tokens import REFRESH_MAX, REFRESH_MIN, BadOidcSettings, OidcSettings, OidcTokens
from tests.support.local_api import FixedClock

KEYS = {name: rsa.generate_private_key(65537, 2048) for name in ("k1", "k2")}
CURVE = ec.generate_private_key(ec.SECP256R1())


class Provider:
    """Announces its keys, counts how often it is asked, and signs tokens."""

    def __init__(self, clock: FixedClock) -> None:
        self.clock = clock
        self.issuer = ""
        self.published = ["k1"]
        self.asked = 0
        self.works = True

    def jwks(self) -> dict[str, Any]:
        keys = [{**RSAAlgorithm.to_jwk(KEYS[name].public_key(), as_dict=True), "kid": name} for name in self.published]
        curve = {**ECAlgorithm.to_jwk(CURVE.public_key(), as_dict=True), "kid": "curve", "alg": "ES256"}
        return {"keys": [*keys, curve, {"kty": "oct", "k": "c2VjcmV0", "kid": "shared"}, {"kty": "RSA", "kid": "bad"}]}

    def token(self, *, key: str = "k1", alg: str = "RS256", header: dict[str, Any] | None = None, **claims: Any) -> str:
        now = int(self.clock.time.timestamp())
        payload = {"iss": self.issuer, "sub": "ann", "aud": "dralloc", "exp": now + 60, **claims}
        signer: Any = CURVE if key == "curve" else KEYS[key]
        payload = {name: value for name, value in payload.items() if value is not None}
        return jwt.encode(payload, signer, algorithm=alg, headers={"kid": key} if header is None else header)

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        async def configuration(_: web.Request) -> web.Response:
            return web.json_response({"issuer": self.issuer, "jwks_uri": f"{self.issuer}/keys"})

        async def keys(_: web.Request) -> web.Response:
            self.asked += 1
            return web.json_response(self.jwks()) if self.works else web.Response(status=500)

        application = web.Application()
        application.router.add_get("/.well-known/openid-configuration", configuration)
        application.router.add_get("/keys", keys)
        runner = web.AppRunner(application)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0][:2]
        self.issuer = f"http://{host}:{port}"
        try:
            yield
        finally:
            await runner.cleanup()


@asynccontextmanager
async def provided(**settings: Any) -> AsyncIterator[tuple[Provider, OidcTokens]]:
    provider = Provider(FixedClock())
    async with provider.serving():
        chosen = OidcSettings(issuer=provider.issuer, client_id="dralloc", **settings)
        yield provider, OidcTokens(chosen, clock=provider.clock, audiences=("api",))


async def user_of(tokens: OidcTokens, token: str) -> User | None:
    verified = await tokens.verify(token)
    return verified.user if verified else None


def test_a_token_names_a_user_and_groups() -> None:
    async def main() -> None:
        async with provided(groups_claim="groups", groups_prefix="idp:") as (provider, tokens):
            user = await user_of(tokens, provider.token(groups=["devs", "ops"]))
            assert user == User(name=f"{provider.issuer}#ann", groups=("idp:devs", "idp:ops", "system:authenticated"))
            one = await user_of(tokens, provider.token(groups="devs"))
            assert one is not None
            assert one.groups == ("idp:devs", "system:authenticated")
            assert await user_of(tokens, provider.token(groups=[1])) is None
            assert await user_of(tokens, provider.token(aud=["x", "dralloc"])) is not None

    asyncio.run(main())


def test_an_email_address_must_be_verified() -> None:
    async def main() -> None:
        async with provided(username_claim="email") as (provider, tokens):
            assert await user_of(tokens, provider.token(email="a@x", email_verified=False)) is None
            assert await user_of(tokens, provider.token(email="a@x", email_verified="true")) is None
            verified = await user_of(tokens, provider.token(email="a@x", email_verified=True))
            assert verified is not None
            assert verified.name == "a@x"

    asyncio.run(main())


BAD: list[dict[str, Any]] = [
    {"aud": "other"},
    {"aud": None},
    {"exp": None},
    {"exp": "soon"},
    {"exp": 1},
    {"nbf": 2**33},
    {"iss": "https://other"},
    {"iss": None},
    {"sub": ""},
    {"sub": 7},
    {"hd": "elsewhere"},
    {"alg": "RS512"},
    {"key": "k2"},
    {"key": "k2", "header": {"kid": "k1"}},
    {"key": "k2", "header": {}},
    {"header": {"kid": "bad"}},
]


@pytest.mark.parametrize("change", BAD, ids=str)
def test_a_token_that_is_not_exactly_right_is_refused(change: dict[str, Any]) -> None:
    async def main() -> None:
        async with provided(required_claims={"hd": "here"}) as (provider, tokens):
            assert await user_of(tokens, provider.token(hd="here")) is not None
            assert await user_of(tokens, provider.token(**{"hd": "here", **change})) is None

    asyncio.run(main())


def test_keys_are_no_secrets_and_unsigned_tokens_are_refused() -> None:
    async def main() -> None:
        async with provided() as (provider, tokens):
            claims = {"iss": provider.issuer, "sub": "ann", "aud": "dralloc", "exp": 2**33}
            public = RSAAlgorithm.to_jwk(KEYS["k1"].public_key(), as_dict=True)["n"]
            for forged in (
                jwt.encode(claims, "", algorithm="none", headers={"kid": "k1"}),
                jwt.encode(claims, public, algorithm="HS256", headers={"kid": "k1"}),
                jwt.encode(claims, "secret" * 8, algorithm="HS256", headers={"kid": "shared"}),
                "a.b.c",
                "",
            ):
                assert await user_of(tokens, forged) is None

    asyncio.run(main())


@pytest.mark.parametrize("settings", [{"username_prefix": "-"}, {"groups_claim": "groups"}])
def test_a_provider_gives_no_names_of_the_system(settings: dict[str, Any]) -> None:
    async def main() -> None:
        async with provided(**settings) as (provider, tokens):
            assert await user_of(tokens, provider.token()) is not None
            bad = provider.token(sub="system:node:n1", groups=["system:masters"])
            assert await user_of(tokens, bad) is None

    asyncio.run(main())


def test_other_algorithms_must_be_chosen() -> None:
    async def main() -> None:
        async with provided(algorithms=("RS256", "ES256")) as (provider, tokens):
            assert await user_of(tokens, provider.token(key="curve", alg="ES256")) is not None
            assert await user_of(tokens, provider.token(header={})) is not None
        async with provided() as (provider, tokens):
            assert await user_of(tokens, provider.token(key="curve", alg="ES256")) is None

    asyncio.run(main())


def test_keys_are_cached_and_read_again_for_a_new_one() -> None:
    async def main() -> None:
        async with provided() as (provider, tokens):
            for _ in range(3):
                assert await user_of(tokens, provider.token()) is not None
            assert provider.asked == 1
            provider.published = ["k2"]
            # An unknown key asks the provider, but not more often than is polite.
            assert await user_of(tokens, provider.token(key="k2")) is None
            provider.clock.time += REFRESH_MIN
            assert await user_of(tokens, provider.token(key="k2")) is not None
            assert provider.asked == 2
            assert await user_of(tokens, provider.token()) is None

    asyncio.run(main())


def test_a_withdrawn_key_is_forgotten_and_a_silent_provider_changes_nothing() -> None:
    async def main() -> None:
        async with provided() as (provider, tokens):
            assert await user_of(tokens, provider.token()) is not None
            provider.works = False
            provider.clock.time += REFRESH_MAX + timedelta(seconds=1)
            assert await user_of(tokens, provider.token()) is not None
            provider.works, provider.published = True, []
            provider.clock.time += REFRESH_MIN
            assert await user_of(tokens, provider.token()) is None

    asyncio.run(main())


def test_keys_come_from_a_file(tmp_path: Path) -> None:
    async def main() -> None:
        provider = Provider(FixedClock())
        provider.issuer = "https://login.example.com"
        (tmp_path / "keys").write_text(json.dumps(provider.jwks()))
        settings = OidcSettings(issuer=provider.issuer, client_id="dralloc", jwks=str(tmp_path / "keys"))
        tokens = OidcTokens(settings, clock=provider.clock, audiences=("api",))
        assert await user_of(tokens, provider.token()) is not None
        assert await tokens.verify(provider.token(), ("other",)) is None
        verified = await tokens.verify(provider.token(), ("api", "other"))
        assert verified is not None
        assert verified.audiences == ("api",)

    asyncio.run(main())


@pytest.mark.parametrize(
    "settings",
    [
        {"issuer": "http://login.example.com", "client_id": "x"},
        {"issuer": "login", "client_id": "x"},
        {"issuer": "https://login.example.com", "client_id": ""},
        {"issuer": "https://login.example.com", "client_id": "x", "algorithms": ("HS256",)},
        {"issuer": "https://login.example.com", "client_id": "x", "algorithms": ("none",)},
        {"issuer": "https://login.example.com", "client_id": "x", "jwks": "http://keys.example.com"},
    ],
)
def test_unsafe_settings_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(BadOidcSettings):
        OidcSettings(**settings)
