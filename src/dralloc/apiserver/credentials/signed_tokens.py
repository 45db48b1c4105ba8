"""Checks of signed tokens (JSON Web Tokens) that all issuers share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

# Tokens of issuers whose clock is ahead are accepted a little early.
EARLY_S: Final = 10

Claims = Mapping[str, Any]


class UnusableToken(Exception):
    """A token that is not signed by the key, or not meant for us, or not valid now."""


def unverified_token(token: str) -> tuple[Claims, Claims]:
    """Header and claims of a token whose signature is not checked yet."""
    import jwt

    try:
        read = jwt.decode_complete(token, options={"verify_signature": False})
    except (jwt.InvalidTokenError, ValueError, RecursionError) as error:
        raise UnusableToken(str(error)) from None
    return read["header"], read["payload"]


def verified_claims(
    token: str, key: Any, *, algorithms: Sequence[str], issuer: str, audiences: Sequence[str] | None = None
) -> Claims:
    """The claims of a token that the key signed, for one of the audiences if there are any. `check_time` checks its time."""
    import jwt

    try:
        claims: Claims = jwt.decode(
            token,
            key,
            algorithms=list(algorithms),
            issuer=issuer,
            audience=audiences,
            options={
                "require": ["iss", "sub", "aud", "exp"],
                "verify_aud": audiences is not None,
                # Checked by `check_time`, on the server's clock, also for claims that were verified before.
                "verify_exp": False,
                "verify_nbf": False,
                "verify_iat": False,
            },
        )
    except (jwt.PyJWTError, ValueError, TypeError, RecursionError) as error:
        raise UnusableToken(str(error)) from None
    return claims


def check_time(claims: Claims, now: datetime) -> None:
    """Refuse a token that has expired or is not valid yet."""
    moment = now.timestamp()
    if moment >= _number(claims.get("exp")):
        raise UnusableToken("the token has expired")
    if moment + EARLY_S < _number(claims.get("nbf", 0)):
        raise UnusableToken("the token is not valid yet")


def meant_for(claims: Claims, audiences: Sequence[str]) -> tuple[str, ...]:
    """Those of the audiences that the token names."""
    named = claims.get("aud")
    listed = [named] if isinstance(named, str) else named if isinstance(named, list) else []
    return tuple(audience for audience in audiences if audience in listed)


def _number(value: object) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    raise UnusableToken("exp and nbf must be numbers")
