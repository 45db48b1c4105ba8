"""Certificate signing requests: who requests, who may approve and sign, and the certificates of approved requests.

The server signs for the signers of Kubernetes whose certificates it trusts itself; other signers are other programs.
"""

from __future__ import annotations

import binascii
import logging
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator
from typing import Any, Final, Protocol, Self

from msgspec.structs import replace

from dralloc.access.access_request import AccessRequest
from dralloc.access.authorizer import Decision
from dralloc.access.users import ADMINS, User
from dralloc.api.meta_v1 import ApiObject
from dralloc.api.registry import CERTIFICATE_SIGNING_REQUEST
from dralloc.api.timestamps import print_timestamp
from dralloc.api.unstructured_object import UnstructuredObject
from dralloc.apiserver.documents.json_documents import Document
from dralloc.apiserver.http.statuses import forbidden, invalid
from dralloc.apiserver.objects.api_resources import name_of, prefix_of
from dralloc.apiserver.objects.change_loop import ChangeLoop
from dralloc.apiserver.objects.request_bodies import SentObject
from dralloc.apiserver.objects.store_view import RecordIndex, StoreView
from dralloc.apiserver.objects.stored_form import read_document
from dralloc.apiserver.objects.write_target import WriteTarget
from dralloc.apiserver.objects.writer import Writer
from dralloc.primitives.clock import Clock
from dralloc.primitives.errors import ApiError
from dralloc.primitives.field_errors import FieldError, FieldPath, required
from dralloc.primitives.field_errors import forbidden as forbidden_field
from dralloc.primitives.field_errors import invalid as invalid_field
from dralloc.store.interface import Store
from dralloc.store.records import Record

GROUP: Final = CERTIFICATE_SIGNING_REQUEST.group
PLURAL: Final = CERTIFICATE_SIGNING_REQUEST.plural
_CLIENT: Final = "kubernetes.io/kube-apiserver-client"
_DECISIONS: Final = ("Approved", "Denied")
_SPEC: Final = FieldPath.of("spec")
_CONDITIONS: Final = FieldPath.of("status", "conditions")
_SECONDS_MIN: Final = 600

_logger = logging.getLogger(__name__)


def with_requester(sent: SentObject, user: User) -> SentObject:
    """The request with its author, regardless of what the author wrote."""
    assert isinstance(sent.object, UnstructuredObject), "requests are modelled in part"
    spec = {**sent.object.member("spec"), "username": user.name, "uid": user.uid, "groups": list(user.groups)}
    spec["extra"] = {name: list(values) for name, values in user.extra}
    kept = {name: value for name, value in spec.items() if value}
    content = {**sent.object.content, "spec": kept}
    return replace(sent, object=replace(sent.object, content=content))


class CertificateRequestCheck:
    """Refuses malformed requests, and decisions and certificates by users without the right to them."""

    def __init__(self, decide: Callable[[AccessRequest], Decision]) -> None:
        self._decide = decide

    async def check(self, target: WriteTarget, sent: SentObject, old: ApiObject | None, work: int) -> None:  # noqa: ARG002
        new = sent.object
        assert isinstance(new, UnstructuredObject), "requests are modelled in part"
        if old is None:
            self._check_new(new)
            return
        assert isinstance(old, UnstructuredObject), "requests are modelled in part"
        if target.subresource != "status":
            return
        before, after = old.member("status"), new.member("status")
        if faults := list(_faults_of_change(before, after)):
            raise invalid(GROUP, CERTIFICATE_SIGNING_REQUEST.kind, old.metadata.name, faults)
        signer = str(old.member("spec").get("signerName", ""))
        if _decisions(before) != _decisions(after):
            self._require("approve", target, signer)
        if _rest(before) != _rest(after):
            self._require("sign", target, signer)

    def _check_new(self, new: UnstructuredObject) -> None:
        spec = new.member("spec")
        faults = list(_faults_of_request(spec))
        if faults:
            raise invalid(GROUP, CERTIFICATE_SIGNING_REQUEST.kind, new.metadata.name, faults)
        # Slow to import, and only needed here.
        from dralloc.apiserver.credentials.certificate_signer import groups_of, load_request

        if spec["signerName"] == _CLIENT and ADMINS in groups_of(load_request(b64decode(spec["request"]))):
            why = f"use of {_CLIENT} signer with {ADMINS} group is not allowed"
            raise forbidden(GROUP, PLURAL, new.metadata.name, why)

    def _require(self, verb: str, target: WriteTarget, signer: str) -> None:
        if ADMINS in target.user.groups:
            return
        for name in (signer, f"{signer.partition('/')[0]}/*"):
            asked = AccessRequest(user=target.user, verb=verb, group=GROUP, version="v1", resource="signers", name=name)
            if self._decide(asked).allowed:
                return
        why = f'user not permitted to {verb} requests with signerName "{signer}"'
        raise forbidden(GROUP, PLURAL, target.name, why)


def _faults_of_request(spec: Document) -> Iterator[FieldError]:
    from dralloc.apiserver.credentials.certificate_signer import UnsignableRequest, load_request

    try:
        load_request(b64decode(str(spec.get("request") or ""), validate=True))
    except (binascii.Error, UnsignableRequest) as error:
        yield invalid_field(_SPEC.child("request"), spec.get("request"), str(error))
    if not spec.get("signerName"):
        yield required(_SPEC.child("signerName"))
    elif "/" not in str(spec["signerName"]):
        yield invalid_field(_SPEC.child("signerName"), spec["signerName"], "must be a domain and a path")
    if not spec.get("usages"):
        yield required(_SPEC.child("usages"))
    seconds = spec.get("expirationSeconds")
    if isinstance(seconds, int) and seconds < _SECONDS_MIN:
        why = "may not specify a duration less than 600 seconds (10 minutes)"
        yield invalid_field(_SPEC.child("expirationSeconds"), seconds, why)


def _faults_of_change(before: Document, after: Document) -> Iterator[FieldError]:
    types = {each.get("type") for each in after.get("conditions") or ()}
    for each in before.get("conditions") or ():
        if each.get("type") in (*_DECISIONS, "Failed") and each["type"] not in types:
            yield forbidden_field(_CONDITIONS, f'updates may not remove a condition of type "{each["type"]}"')
    if types >= set(_DECISIONS):
        yield invalid_field(_CONDITIONS, "Denied", "Approved and Denied conditions are mutually exclusive")


def _decisions(status: Document) -> list[Any]:
    return [each for each in status.get("conditions") or () if each.get("type") in _DECISIONS]


def _rest(status: Document) -> tuple[Any, list[Any]]:
    others = [each for each in status.get("conditions") or () if each.get("type") not in _DECISIONS]
    return status.get("certificate"), others


class RequestSigner(Protocol):
    """Signs requests (`credentials.certificate_signer`)."""

    def sign(self, pem: bytes, signer: str, usages: list[str], lifetime_s: int | None) -> bytes | None:
        """The certificate; None if the signer is another one. Raises ValueError."""
        ...


class CertificateIssuer:
    """Writes the certificates of approved requests."""

    def __init__(self, store: Store, writer: Writer, clock: Clock, signer: RequestSigner) -> None:
        self._writer = writer
        self._clock = clock
        self._signer = signer
        self._loop = ChangeLoop(self._issue_all, does="issue certificates")
        prefix = prefix_of(CERTIFICATE_SIGNING_REQUEST)
        self._requests = StoreView(store, (prefix,), lambda: _ApprovedRequests(self._loop.wake))

    async def start(self) -> None:
        await self._requests.ready()
        self._loop.start()

    async def stop(self) -> None:
        await self._loop.stop()
        await self._requests.stop()

    async def _issue_all(self) -> None:
        for key in sorted(self._requests.index.keys):
            await self._issue(key)

    async def _issue(self, key: str) -> None:
        try:
            await self._writer.edit(CERTIFICATE_SIGNING_REQUEST, key, self._issued)
        except ApiError as error:
            _logger.warning("cannot issue the certificate of %s: %s", name_of(key), error)
        self._requests.index.keys.discard(key)

    def _issued(self, request: Document) -> Document:
        status, spec = request.get("status") or {}, request.get("spec") or {}
        if not _is_waiting(status):
            return request
        try:
            pem = b64decode(spec["request"])
            made = self._signer.sign(pem, spec["signerName"], spec.get("usages") or [], spec.get("expirationSeconds"))
        except ValueError as error:
            now = print_timestamp(self._clock.now())
            failed = {"type": "Failed", "status": "True", "reason": "SignerValidationFailure", "message": str(error)}
            failed |= {"lastUpdateTime": now, "lastTransitionTime": now}
            return {**request, "status": {**status, "conditions": [*status["conditions"], failed]}}
        if made is None:
            return request
        return {**request, "status": {**status, "certificate": b64encode(made).decode()}}


class _ApprovedRequests(RecordIndex):
    """The keys of the requests that wait for their certificates."""

    def __init__(self, added: Callable[[], None]) -> None:
        self.keys: set[str] = set()
        self._added = added

    def replace(self, earlier: Self, revision: int, *, is_restored: bool) -> None:
        super().replace(earlier, revision, is_restored=is_restored)
        self._added()

    def _put(self, key: str, record: Record | None) -> None:
        self.keys.discard(key)
        if record is not None and _is_waiting(read_document(record.value).get("status") or {}):
            self.keys.add(key)
            self._added()


def _is_waiting(status: Document) -> bool:
    """True for a request that is approved, and has neither a certificate nor failed."""
    types = {each.get("type") for each in status.get("conditions") or ()}
    return "Approved" in types and "Failed" not in types and not status.get("certificate")
