"""Options of a server about identities, with the names that kube-apiserver gives them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from dralloc.cli.output import fail

if TYPE_CHECKING:
    from dralloc.apiserver.http.oidc_tokens import OidcSettings

DEFAULT_ISSUER: Final = "https://kubernetes.default.svc"

TokenIssuer = Annotated[
    str,
    typer.Option(
        metavar="URL",
        show_default=False,
        help="The issuer that tokens of service accounts name; default: that of Kubernetes.",
    ),
]
IssuerUrl = Annotated[
    str, typer.Option(metavar="URL", help="An identity provider (OpenID Connect) whose tokens are accepted.")
]
ClientId = Annotated[str, typer.Option(help="The audience that tokens of the provider must have.")]
UsernameClaim = Annotated[str, typer.Option(help="The claim of the provider's tokens that names the user.")]
UsernamePrefix = Annotated[
    str, typer.Option(help="Put before the names of such users; default: the issuer and #, - for nothing.")
]
GroupsClaim = Annotated[str, typer.Option(help="The claim that lists the groups of such users.")]
GroupsPrefix = Annotated[str, typer.Option(help="Put before the names of such groups.")]
RequiredClaims = Annotated[
    list[str] | None, typer.Option(metavar="KEY=VALUE", help="A claim that tokens must have; may be repeated.")
]
SigningAlgorithms = Annotated[
    str, typer.Option(help="Algorithms that may sign tokens of the provider, separated by commas.")
]
ProviderKeys = Annotated[
    str, typer.Option(metavar="FILE|URL", help="The provider's keys (JWKS); default: as the issuer announces.")
]
ProviderAuthority = Annotated[
    Path | None, typer.Option(help="The certificate authority of the provider; default: those of this machine.")
]


def oidc_settings(issuer: str, *, required_claims: list[str], algorithms: str, **settings: Any) -> OidcSettings | None:
    """The identity provider that the options describe, or `None`; fails if they contradict each other."""
    from dralloc.apiserver.http.oidc_tokens import BadOidcSettings, OidcSettings

    if not issuer:
        if settings["client_id"] or settings["jwks"]:
            fail("--oidc-client-id and --oidc-jwks need --oidc-issuer-url")
        return None
    claims: dict[str, str] = {}
    for text in required_claims:
        name, separator, value = text.partition("=")
        if not name or not separator:
            fail(f"--oidc-required-claim: {text!r} is not KEY=VALUE")
        claims[name] = value
    names = tuple(name.strip() for name in algorithms.split(",") if name.strip())
    try:
        return OidcSettings(issuer=issuer, required_claims=claims, algorithms=names, **settings)
    except BadOidcSettings as error:
        fail(str(error))
