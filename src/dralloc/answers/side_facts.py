"""What `dralloc doctor` reads of a cluster beside objects, as it is in the header of a dump: dates and gates, never keys."""

from __future__ import annotations

from msgspec import field

from dralloc.kube.wire import Time, Wire, printed


class CertificateDates(Wire):
    """How long a certificate is valid. `holder` is `server`, `client` or `authority`."""

    holder: str = printed("")
    subject: str = ""
    not_before: Time = printed("")
    not_after: Time = printed("")


class CertificateRequest(Wire):
    """A CertificateSigningRequest: since when it waits for a decision, or how long its certificate is valid."""

    name: str = printed("")
    signer: str = printed("")
    subject: str = ""
    created: Time | None = None
    not_before: Time | None = None
    not_after: Time | None = None


class ComponentGates(Wire):
    """The feature gates of a component, as far as they are known, and how they are known."""

    component: str = printed("")
    known_from: str = printed("")
    gates: dict[str, bool] = field(default_factory=dict)


class UnreadFact(Wire):
    """What could not be read, and why. `expected`: there is nothing to be read."""

    what: str = printed("")
    why: str = printed("")
    expected: bool = False


class SideFacts(Wire):
    certificates: tuple[CertificateDates, ...] = ()
    certificate_requests: tuple[CertificateRequest, ...] = ()
    components: tuple[ComponentGates, ...] = ()
    unread: tuple[UnreadFact, ...] = ()
