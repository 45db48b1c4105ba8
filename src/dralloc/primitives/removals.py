"""What earlier versions had and this one does not have: who still asks for it is told in one line since when, and what to use instead.

Users ask for it as a command, as an option, as a kind or as a subresource. Each has a table here, and the module that would say
"unknown" looks there first.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple


class Removal(NamedTuple):
    """What something was for, the version since which it is gone, and what to do instead, as a sentence without its end."""

    purpose: str
    since: str
    instead: str
    # What users typed for a kind, besides its plural and its singular name.
    short_name: str = ""

    def told_of(self, name: str) -> str:
        """The line for those who ask for it by name."""
        return f"{name} ({self.purpose}) is gone since {self.since}; {self.instead}"


# By the name of the command, as it is typed: "rotate", "top devices".
COMMANDS: Final[Mapping[str, Removal]] = {
    "rotate": Removal(
        "new certificates, authorities and signing keys for a running server",
        "0.2.0",
        "stop the server, move DIR/tls or DIR/service-accounts away, start it again, and give clients the new DIR/tls/ca.crt",
    ),
}

# By the option's name with its dashes, of whichever command had it: "--audit-log-path".
OPTIONS: Final[Mapping[str, Removal]] = {
    **{
        f"--oidc-{name}": Removal(
            "users of an identity provider, by OpenID Connect",
            "0.2.0",
            "give users a token with --token-file, or run kube-apiserver, which has OpenID Connect, with the parts of dralloc on it",
        )
        for name in (
            "issuer-url",
            "client-id",
            "username-claim",
            "username-prefix",
            "groups-claim",
            "groups-prefix",
            "required-claim",
            "signing-algs",
            "jwks",
            "ca-file",
        )
    },
    **{
        f"--audit-{name}": Removal(
            "the audit log",
            "0.2.0",
            "watch objects and events, or run kube-apiserver, which has an audit log, with the parts of dralloc on it",
        )
        for name in ("policy-file", "log-path", "log-maxsize", "log-maxbackup", "log-maxage")
    },
}

# By resource and group, as the keys of the store have them: "certificatesigningrequests.certificates.k8s.io".
KINDS: Final[Mapping[str, Removal]] = {
    "certificatesigningrequests.certificates.k8s.io": Removal(
        "CertificateSigningRequest: client certificates that the server signed on request",
        "0.2.0",
        "give users a token with --token-file, sign with the key in DIR/tls/ca.key, or run kube-apiserver with the parts of dralloc on it",
        short_name="csr",
    ),
}

_REAL: Final = "run the pod on a cluster with a container runtime, such as one of kind"
# By resource and subresource: "pods/exec".
SUBRESOURCES: Final[Mapping[str, Removal]] = {
    "pods/attach": Removal(
        "input and output of a container", "0.2.0", f"read its output with kubectl logs, or {_REAL}"
    ),
    "pods/exec": Removal("commands in containers, also for kubectl cp", "0.2.0", _REAL),
    "pods/portforward": Removal("ports of pods", "0.2.0", f"connect to the port on the node itself, or {_REAL}"),
}


def removed_kind(group: str, word: str) -> str:
    """The line about a kind that is gone, by any of its names in any case, in the group or in any; empty if there was none."""
    for name, removal in KINDS.items():
        plural, _, owner = name.partition(".")
        if group in ("", owner) and word.lower() in (plural, plural.removesuffix("s"), removal.short_name or plural):
            return removal.told_of(name)
    return ""
