"""Tokens of an identity provider that speaks OpenID Connect.

Options and meaning are those of kube-apiserver. The provider's keys come from a file or a URL, by default from the one that the issuer
announces; they are cached, and read again for a key that is not known.
"""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from dralloc.access.users import User, authenticated
from dralloc.apiserver.credentials.signed_tokens import (
    Claims,
    UnusableToken,
    check_time,
    unverified_token,
    verified_claims,
)
from dralloc.apiserver.http.authentication import VerifiedToken
from dralloc.apiserver.http.site_guard import is_loopback
from dralloc.primitives.clock import Clock

if TYPE_CHECKING:
    from jwt import PyJWK

# Only these: a provider's public key must not be usable as the secret of a symmetric algorithm.
ALGORITHMS: Final = ("RS256", "RS384", "RS512", "ES256", "ES384", "ES512", "PS256", "PS384", "PS512")
# Bounds how often a token with an unknown key makes us ask the provider.
REFRESH_MIN: Final = timedelta(seconds=10)
# A key that the provider withdraws is not accepted for longer than this.
REFRESH_MAX: Final = timedelta(minutes=15)
FETCH_TIMEOUT_S: Final = 10
FETCHED_BYTES_MAX: Final = 1024 * 1024
RESERVED: Final = "system:"

_logger = logging.getLogger(__name__)


class BadOidcSettings(ValueError):
    """Settings of an identity provider that cannot be used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OidcSettings:
    issuer: str
    client_id: str
    username_claim: str = "sub"
    # Default: the issuer, unless the name is an e-mail address; `-` for none.
    username_prefix: str = ""
    groups_claim: str = ""
    groups_prefix: str = ""
    required_claims: Mapping[str, str] = field(default_factory=dict)
    algorithms: tuple[str, ...] = ("RS256",)
    # A file or URL with the provider's keys; default: what the issuer announces.
    jwks: str = ""
    authority: Path | None = None

    def __post_init__(self) -> None:
        for option, url in (("--oidc-issuer-url", self.issuer), ("--oidc-jwks", self.jwks)):
            parts = urlsplit(url)
            if parts.scheme == "http" and not is_loopback(parts.hostname or ""):
                raise BadOidcSettings(f"{option}: {url} must be an https URL: anyone on the way could replace the keys")
        if urlsplit(self.issuer).scheme not in ("http", "https"):
            raise BadOidcSettings(f"--oidc-issuer-url: {self.issuer!r} is not a URL")
        if not self.client_id:
            raise BadOidcSettings(
                "--oidc-issuer-url needs --oidc-client-id: tokens for other programs must not work here"
            )
        if unknown := [name for name in self.algorithms if name not in ALGORITHMS]:
            raise BadOidcSettings(f"--oidc-signing-algs: {unknown[0]!r} is not one of {', '.join(ALGORITHMS)}")

    @property
    def name_prefix(self) -> str:
        if self.username_prefix:
            return "" if self.username_prefix == "-" else self.username_prefix
        return "" if self.username_claim == "email" else f"{self.issuer}#"


class OidcTokens:
    """Verifies the tokens of one provider."""

    def __init__(self, settings: OidcSettings, *, clock: Clock, audiences: Sequence[str] = ()) -> None:
        self._settings = settings
        self._clock = clock
        self._audiences = tuple(audiences)
        self._keys = _ProviderKeys(settings, clock)

    async def verify(self, token: str, audiences: Sequence[str] = ()) -> VerifiedToken | None:
        """The user that the provider names. Such tokens are for this server only."""
        meant = tuple(audience for audience in self._audiences if not audiences or audience in audiences)
        if audiences and not meant:
            return None
        try:
            return VerifiedToken(_user_of(await self._verified(token), self._settings), meant)
        except UnusableToken as error:
            _logger.info("a token of %s is refused: %s", self._settings.issuer, error)
            return None

    async def _verified(self, token: str) -> Claims:
        settings = self._settings
        header, unverified = unverified_token(token)
        # Tokens of others must not make us ask the provider.
        if unverified.get("iss") != settings.issuer or header.get("alg") not in settings.algorithms:
            raise UnusableToken("another issuer or algorithm")
        refusal: UnusableToken | None = None
        for key in await self._keys.candidates(str(header.get("kid") or "")):
            if key.names_algorithm and key.jwk.algorithm_name != header["alg"]:
                refusal = UnusableToken("the key is for another algorithm")
                continue
            try:
                claims = verified_claims(
                    token,
                    key.jwk.key,
                    algorithms=(header["alg"],),
                    issuer=settings.issuer,
                    audiences=(settings.client_id,),
                )
            except UnusableToken as error:
                refusal = error
                continue
            check_time(claims, self._clock.now())
            return claims
        raise refusal or UnusableToken("no key of the provider signed it")


@dataclass(frozen=True, slots=True)
class _ProviderKey:
    jwk: PyJWK
    # Without a name, the type of the key still limits the algorithms.
    names_algorithm: bool


class _ProviderKeys:
    """The provider's keys by ID."""

    def __init__(self, settings: OidcSettings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._keys: dict[str, _ProviderKey] = {}
        self._tried_at: datetime | None = None
        self._read_at: datetime | None = None
        self._reading = asyncio.Lock()

    async def candidates(self, key_id: str) -> list[_ProviderKey]:
        """The key with the ID, or all keys if the token names none."""
        if self._is_old() or (key_id and key_id not in self._keys):
            async with self._reading:
                if self._is_old() or (key_id and key_id not in self._keys):
                    await self._refresh()
        if not key_id:
            return list(self._keys.values())
        return [self._keys[key_id]] if key_id in self._keys else []

    def _is_old(self) -> bool:
        return self._read_at is None or self._clock.now() - self._read_at > REFRESH_MAX

    async def _refresh(self) -> None:
        """Read the keys again. If that fails, the keys stay that were read before."""
        now = self._clock.now()
        if self._tried_at is not None and now - self._tried_at < REFRESH_MIN:
            return
        self._tried_at = now
        try:
            self._keys = _read_keys(await self._document())
        # A document of any other form than that of a key set.
        except (OSError, ValueError, TimeoutError, UnusableToken, LookupError, TypeError, AttributeError) as error:
            _logger.warning("cannot read the keys of %s: %s", self._settings.issuer, error)
            return
        self._read_at = now

    async def _document(self) -> bytes:
        place = self._settings.jwks
        if place and urlsplit(place).scheme not in ("http", "https"):
            return await asyncio.to_thread(Path(place).read_bytes)
        if not place:
            issuer = self._settings.issuer
            announced = json.loads(await self._fetch(f"{issuer.rstrip('/')}/.well-known/openid-configuration"))
            if announced.get("issuer") != issuer:
                raise UnusableToken(f"the provider calls itself {announced.get('issuer')!r}")
            place = str(announced.get("jwks_uri"))
            parts = urlsplit(place)
            if parts.scheme != "https" and not (parts.scheme == "http" and is_loopback(parts.hostname or "")):
                raise UnusableToken(f"{place} is not an https URL")
        return await self._fetch(place)

    async def _fetch(self, url: str) -> bytes:
        # Slow to import, and only needed here.
        import aiohttp

        authority = self._settings.authority
        trust = ssl.create_default_context(cafile=str(authority) if authority else None)
        timeout = aiohttp.ClientTimeout(total=FETCH_TIMEOUT_S)
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout) as session,
                session.get(url, ssl=trust, allow_redirects=False) as answer,
            ):
                if answer.status != 200:
                    raise UnusableToken(f"{url} answers {answer.status}")
                content = b""
                async for piece in answer.content.iter_any():
                    content += piece
                    if len(content) > FETCHED_BYTES_MAX:
                        raise UnusableToken(f"{url} answers with more than {FETCHED_BYTES_MAX} bytes")
                return content
        except aiohttp.ClientError as error:
            raise UnusableToken(f"{url}: {error}") from None


def _read_keys(document: bytes) -> dict[str, _ProviderKey]:
    """The public keys of a JSON Web Key Set; others in it are skipped."""
    import jwt

    keys: dict[str, _ProviderKey] = {}
    for position, entry in enumerate(json.loads(document)["keys"]):
        if entry.get("use", "sig") != "sig" or entry.get("kty") not in ("RSA", "EC"):
            continue
        try:
            keys[entry.get("kid") or f"#{position}"] = _ProviderKey(jwt.PyJWK(entry), "alg" in entry)
        except (jwt.PyJWTError, ValueError, TypeError) as error:
            _logger.warning("a key of the provider is skipped: %s", error)
    return keys


def _user_of(claims: Claims, settings: OidcSettings) -> User:
    name = claims.get(settings.username_claim)
    if not isinstance(name, str) or not name:
        raise UnusableToken(f"it has no claim {settings.username_claim}")
    if settings.username_claim == "email" and claims.get("email_verified", True) is not True:
        raise UnusableToken("the e-mail address is not verified")
    for claim, value in settings.required_claims.items():
        if claims.get(claim) != value:
            raise UnusableToken(f"its claim {claim} is not {value}")
    groups = tuple(f"{settings.groups_prefix}{group}" for group in _groups_of(claims, settings.groups_claim))
    user = User(name=f"{settings.name_prefix}{name}", groups=groups)
    if any(reserved.startswith(RESERVED) for reserved in (user.name, *user.groups)):
        raise UnusableToken(f"a provider may not give names that start with {RESERVED}")
    return authenticated(user)


def _groups_of(claims: Claims, claim: str) -> Sequence[str]:
    found: Any = claims.get(claim) if claim else None
    if found is None:
        return ()
    listed = [found] if isinstance(found, str) else found
    if not isinstance(listed, list) or not all(isinstance(group, str) for group in listed):
        raise UnusableToken(f"its claim {claim} is neither a text nor a list of texts")
    return listed
