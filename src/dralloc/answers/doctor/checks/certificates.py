"""Certificates that have expired, expire soon or are not valid yet, and requests for certificates that wait for a decision."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from dralloc.answers.doctor.check import Finding, HealthCheck, Observation, kubectl
from dralloc.answers.doctor.cluster_facts import ClusterFacts, Fact, span
from dralloc.answers.side_facts import CertificateDates, CertificateRequest
from dralloc.kube.diagnostics import Severity
from dralloc.kube.timestamps import stated_time

# Where our own server keeps its certificates.
_TLS: Final = "${DATA_DIR:-$HOME/.dralloc}/tls"
_READ_CLIENT: Final = """\
kubectl config view --minify --raw -o jsonpath='{.users[0].user.client-key-data}' | base64 -d > client.key
kubectl config view --minify --raw -o jsonpath='{.users[0].user.client-certificate-data}' | base64 -d > client.crt
openssl x509 -x509toreq -in client.crt -signkey client.key -out client.csr"""
_WRITE_CLIENT: Final = """\
kubectl config set-credentials "$(kubectl config view --minify -o jsonpath='{.users[0].name}')" \\
  --client-certificate=client.crt --client-key=client.key --embed-certs"""
# Asks for a new certificate for the key and the name of the current user, with that user's own rights.
_RENEW_CLIENT: Final = f"""\
{_READ_CLIENT}
kubectl create -f - <<END
{{"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": {{"name": "renew-client"}},
 "spec": {{"signerName": "kubernetes.io/kube-apiserver-client", "usages": ["client auth"], "request": "$(base64 -w0 < client.csr)"}}}}
END
kubectl certificate approve renew-client
until kubectl get csr renew-client -o jsonpath='{{.status.certificate}}' | grep -q .; do sleep 1; done
kubectl get csr renew-client -o jsonpath='{{.status.certificate}}' | base64 -d > client.crt
{_WRITE_CLIENT}
kubectl delete csr renew-client"""
# Our own server signs nothing on request.
_SIGN_CLIENT: Final = f"""\
{_READ_CLIENT}
TLS="{_TLS}"
openssl x509 -req -in client.csr -CA "$TLS/ca.crt" -CAkey "$TLS/ca.key" -set_serial "0x$(openssl rand -hex 16)" -days 365 -out client.crt
{_WRITE_CLIENT}"""


def _look(facts: ClusterFacts) -> Iterator[Observation]:
    for fact in (Fact.CERTIFICATES, Fact.REQUESTS):
        if (unread := facts.unread(fact)) is not None:
            yield unread
    for each in facts.beside.certificates:
        yield from _certificate(facts, each)
    for request in facts.beside.certificate_requests:
        yield from _request(facts, request)


def _state(facts: ClusterFacts, not_before: str | None, not_after: str | None) -> tuple[Severity, str] | None:
    """What is wrong with a certificate at this time; None if nothing is."""
    begin, end = stated_time(not_before), stated_time(not_after)
    if begin is not None and begin > facts.now:
        return Severity.ERROR, f"is not valid before {begin:%Y-%m-%dT%H:%M:%SZ}, in {span(begin - facts.now)}"
    if end is None or end - facts.now > facts.expires_within:
        return None
    if end <= facts.now:
        return Severity.ERROR, f"expired {facts.ago(end)}"
    return Severity.WARNING, f"expires {end:%Y-%m-%dT%H:%M:%SZ}, in {span(end - facts.now)}"


def _certificate(facts: ClusterFacts, dates: CertificateDates) -> Iterator[Finding]:
    state = _state(facts, dates.not_before, dates.not_after)
    if state is None:
        return
    severity, text = state
    advice, commands = _renewal(facts, dates, is_early="not valid before" in text)
    yield Finding(
        subject=f"certificate of the {dates.holder}",
        severity=severity,
        message=text,
        evidence=(
            *((f"subject {dates.subject}",) if dates.subject else ()),
            f"valid from {dates.not_before} to {dates.not_after}; now it is {facts.now:%Y-%m-%dT%H:%M:%SZ}",
        ),
        advice=advice,
        commands=commands,
    )


def _renewal(facts: ClusterFacts, dates: CertificateDates, *, is_early: bool) -> tuple[str, tuple[str, ...]]:
    """Advice and commands for a certificate."""
    clock = "Compare the clocks of both machines first. " if is_early else ""
    # An unreachable server does not tell its release; its certificate does.
    is_ours = "dralloc" in facts.objects.server_version or "dralloc" in dates.subject
    match dates.holder:
        case "server" | "authority" if is_ours:
            return (
                f"{clock}Start the server again: it renews its certificate to the end of its authority. If that ends, too, stop the server, move its "
                "certificates away with the command, start it again, which makes a new authority, and give every client the new ca.crt.",
                (f'mv "{_TLS}" "{_TLS}.$(date +%s)"',),
            )
        case "server":
            return (
                f"{clock}On the control plane of a cluster made with kubeadm; then restart kube-apiserver. Elsewhere, ask the provider.",
                ("kubeadm certs renew apiserver",),
            )
        case "authority":
            return (
                f"{clock}Replace the authority by hand, as the Kubernetes page on manual rotation of CA certificates says. This shows when "
                "each certificate expires:",
                ("kubeadm certs check-expiration",),
            )
        case "client" if is_ours:
            return f"{clock}On the machine of the server, with its data directory and your kubeconfig:", (_SIGN_CLIENT,)
        case _:
            return (
                f"{clock}Before it expires, a user who may approve requests renews it with the commands. Afterwards, get a new kubeconfig from "
                "an administrator (kubeadm certs renew admin.conf); so do members of system:masters, for whom no server signs.",
                (_RENEW_CLIENT,),
            )


def _request(facts: ClusterFacts, request: CertificateRequest) -> Iterator[Finding]:
    created = stated_time(request.created)
    if request.not_after is None:
        if not facts.is_lasting(created):
            return
        assert created is not None, "what lasts has a beginning"
        yield Finding(
            subject=f"certificatesigningrequest {request.name}",
            severity=Severity.WARNING,
            message="it waits for a decision",
            evidence=(f"created {facts.ago(created)} for signer {request.signer}", *_subject(request)),
            advice="Look at the request first: kubectl describe csr. To refuse it: kubectl certificate deny.",
            commands=(kubectl("certificate", "approve", request.name),),
        )
        return
    state = _state(facts, request.not_before, request.not_after)
    if state is None or _is_renewed(facts, request):
        return
    severity, text = state
    yield Finding(
        subject=f"certificatesigningrequest {request.name}",
        severity=severity if "not valid" in text else Severity.WARNING,
        message=f"the certificate that it issued {text}",
        evidence=(f"signer {request.signer}", *_subject(request)),
        advice="Renew it at its holder first: a kubelet or agent does that by itself, a user needs a new request. The command forgets "
        "this request; it takes nothing from the holder.",
        commands=(kubectl("delete", "csr", request.name),),
    )


def _subject(request: CertificateRequest) -> tuple[str, ...]:
    return (f"subject {request.subject}",) if request.subject else ()


def _is_renewed(facts: ClusterFacts, request: CertificateRequest) -> bool:
    """True if the same subject has a certificate of the same signer that lasts longer."""
    mine = str(request.not_after)
    return any(
        other.subject == request.subject and other.signer == request.signer and str(other.not_after or "") > mine
        for other in facts.beside.certificate_requests
        if request.subject
    )


CERTIFICATES: Final = HealthCheck(
    id="certificate",
    title="certificates that expire or are not valid",
    why="A server, component or user without a valid certificate is shut out.",
    look=_look,
    facts=(Fact.CERTIFICATES, Fact.REQUESTS),
)
