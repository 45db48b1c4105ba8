"""Tokens of service accounts: issued by TokenRequests, bound to an object, and void as soon as that object or the account is gone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any, Final

from dralloc.kube.authentication_v1 import GROUP, BoundObjectReference, TokenRequest, TokenRequestSpec
from dralloc.kube.kind import Kind
from dralloc.kube.meta_v1 import ObjectMeta
from dralloc.kube.registry import NODE, POD, SECRET, SERVICE_ACCOUNT
from dralloc.kube.timestamps import parse_timestamp, print_timestamp
from dralloc.primitives.clock import Clock
from dralloc.primitives.errors import BadRequest
from dralloc.primitives.field_errors import FieldError, FieldPath
from dralloc.primitives.field_errors import invalid as invalid_value
from dralloc.server.access.users import (
    AUTHENTICATED,
    CREDENTIAL_ID,
    NODE_NAME,
    NODE_UID,
    POD_NAME,
    POD_UID,
    User,
    service_account_groups,
    service_account_user_name,
)
from dralloc.server.documents.json_documents import Document
from dralloc.server.http.authentication import VerifiedToken
from dralloc.server.http.statuses import conflict, invalid, not_found
from dralloc.server.identity.signing_keys import ALGORITHM, SigningKeys
from dralloc.server.read.api_resources import key_of
from dralloc.server.read.stored_form import read_document, read_metadata
from dralloc.server.store.interface import Store
from dralloc.server.store.records import Record
from dralloc.server.write.object_admission import random_uid

ISSUER: Final = "https://kubernetes.default.svc"
LIFETIME_S: Final = 3600
LIFETIME_MIN_S: Final = 600
# Longer requests are shortened to this: a token that others have seen ends.
LIFETIME_MAX: Final = timedelta(days=7)
VERIFIED_MAX: Final = 1024
# A pod that is being deleted can use its token until this long after its grace period.
DELETION_LEEWAY: Final = timedelta(seconds=60)
# Tokens of a server on the same store whose clock is ahead are accepted a little early.
EARLY_S: Final = 10

_PRIVATE: Final = "kubernetes.io"
_BINDABLE: Final = {"Pod": POD, "Secret": SECRET, "Node": NODE}
_EXPIRATION: Final = FieldPath.of("spec", "expirationSeconds")

Claims = Mapping[str, Any]


class UnusableToken(Exception):
    """A token that no key of this server signed, or that is not valid now."""


class ServiceAccountTokens:
    """Issues and verifies the tokens of the service accounts in a store."""

    def __init__(
        self,
        store: Store,
        keys: SigningKeys | None = None,
        *,
        clock: Clock,
        issuer: str = ISSUER,
        new_id: Callable[[], str] = random_uid,
    ) -> None:
        self._store = store
        self._keys = keys or SigningKeys()
        self._clock = clock
        self._new_id = new_id
        self.issuer = issuer
        # Claims by digest of the token: verifying a signature takes longer than serving most requests.
        self._verified: dict[bytes, Claims] = {}

    # --- issue ----------------------------------------------------------------------------------------------

    async def issue(self, namespace: str, name: str, request: TokenRequest) -> Document:
        """The answered request, with a token in its status."""
        _check_names(request.metadata, namespace, name)
        spec = request.spec
        if faults := list(_faults_of(spec)):
            raise invalid(GROUP, "TokenRequest", "", faults)
        account = await self._existing(SERVICE_ACCOUNT, namespace, name)
        bound = await self._bound_objects(namespace, name, spec.bound_object_ref)
        now = self._clock.now()
        lifetime = min(timedelta(seconds=spec.expiration_seconds or LIFETIME_S), LIFETIME_MAX)
        audiences = spec.audiences or (self.issuer,)
        account_uid = read_metadata(account.value).uid
        claims: Document = {
            "aud": list(audiences),
            "exp": int((now + lifetime).timestamp()),
            "iat": int(now.timestamp()),
            "iss": self.issuer,
            "jti": self._new_id(),
            _PRIVATE: {"namespace": namespace, "serviceaccount": {"name": name, "uid": account_uid}, **bound},
            "nbf": int(now.timestamp()),
            "sub": service_account_user_name(namespace, name),
        }
        return {
            "kind": "TokenRequest",
            "apiVersion": f"{GROUP}/v1",
            "metadata": {"name": name, "namespace": namespace, "creationTimestamp": print_timestamp(now)},
            "spec": {
                "audiences": list(audiences),
                "expirationSeconds": int(lifetime.total_seconds()),
                "boundObjectRef": spec.bound_object_ref,
            },
            "status": {
                "token": self._signed(claims),
                "expirationTimestamp": print_timestamp(datetime.fromtimestamp(claims["exp"], UTC)),
            },
        }

    def _signed(self, claims: Document) -> str:
        import jwt

        key = self._keys.current()
        return jwt.encode(claims, key.private, algorithm=ALGORITHM, headers={"kid": key.id})

    async def _bound_objects(self, namespace: str, account: str, reference: BoundObjectReference | None) -> Document:
        """The claims about the object that the token is bound to; for a pod also its node."""
        if reference is None:
            return {}
        kind = _BINDABLE.get(reference.kind)
        if kind is None or reference.api_version not in ("", "v1"):
            group, _, version = reference.api_version.rpartition("/")
            described = f"{group}/{version}, Kind={reference.kind}"
            raise BadRequest(f"cannot bind token to object of type {described}")
        record = await self._existing(kind, namespace if kind.namespaced else "", reference.name)
        uid = read_metadata(record.value).uid
        if reference.uid and reference.uid != uid:
            why = f"the UID in the bound object reference ({reference.uid}) does not match the UID in record. The object might have been deleted and then recreated"
            raise conflict("", reference.kind, reference.name, why)
        bound: Document = {reference.kind.lower(): {"name": reference.name, "uid": uid}}
        if kind is not POD:
            return bound
        spec = read_document(record.value).get("spec") or {}
        if (spec.get("serviceAccountName") or "default") != account:
            raise BadRequest(
                f'cannot bind token for serviceaccount "{account}" to pod running with different serviceaccount name.'
            )
        if node := spec.get("nodeName"):
            found = await self._store.get(key_of(NODE, "", node))
            bound["node"] = {"name": node, **({"uid": read_metadata(found.value).uid} if found else {})}
        return bound

    async def _existing(self, kind: Kind, namespace: str, name: str) -> Record:
        record = await self._store.get(key_of(kind, namespace, name))
        if record is None:
            raise not_found(kind.group, kind.plural, name)
        return record

    # --- verify ---------------------------------------------------------------------------------------------

    async def verify(self, token: str, audiences: Sequence[str] = ()) -> VerifiedToken | None:
        """What the token proves, if its account and the object that it is bound to still exist."""
        asked = tuple(audiences) or (self.issuer,)
        try:
            claims = self._claims(token)
            _check_time(claims, self._clock.now())
            meant = tuple(audience for audience in asked if audience in claims["aud"])
            if not meant or not await self._is_alive(claims[_PRIVATE]):
                return None
            return VerifiedToken(_user_of(claims), meant)
        except (UnusableToken, KeyError, TypeError, AttributeError):
            return None

    def _claims(self, token: str) -> Claims:
        """The claims of a token that one of the keys signed."""
        digest = sha256(token.encode("utf-8", "surrogateescape")).digest()
        if (known := self._verified.get(digest)) is not None:
            if self._keys.find(known["kid"]) is None:
                raise UnusableToken("the key that signed the token is gone")
            return known
        claims, key_id = self._signed_claims(token)
        if len(self._verified) >= VERIFIED_MAX:
            del self._verified[next(iter(self._verified))]
        self._verified[digest] = {**claims, "kid": key_id}
        return claims

    def _signed_claims(self, token: str) -> tuple[Claims, str]:
        """The claims of the token, and the ID of the key that signed it."""
        import jwt

        try:
            key = self._keys.find(str(jwt.get_unverified_header(token).get("kid") or ""))
            if key is None:
                raise UnusableToken("no key of this server signed the token")
            claims = jwt.decode(
                token,
                key.public,
                algorithms=[ALGORITHM],
                issuer=self.issuer,
                options={
                    "require": ["iss", "sub", "aud", "exp"],
                    # Audience and time are checked later, also of claims that were verified before; the time on the server's clock.
                    "verify_aud": False,
                    "verify_exp": False,
                    "verify_nbf": False,
                    "verify_iat": False,
                },
            )
        except (jwt.PyJWTError, ValueError, TypeError, RecursionError) as error:
            raise UnusableToken(str(error)) from None
        return claims, key.id

    async def _is_alive(self, private: Document) -> bool:
        namespace = private["namespace"]
        if not await self._has(SERVICE_ACCOUNT, namespace, private["serviceaccount"]):
            return False
        # The node of a pod is stated for information; a token that is bound to a node has no pod.
        for kind in (POD, SECRET) if "pod" in private else (SECRET, NODE):
            reference = private.get(kind.singular)
            if reference is not None and not await self._has(kind, namespace if kind.namespaced else "", reference):
                return False
        return True

    async def _has(self, kind: Kind, namespace: str, reference: Document) -> bool:
        """True if the object exists, is the same one as then, and its deletion is not over."""
        record = await self._store.get(key_of(kind, namespace, reference["name"]))
        if record is None:
            return False
        metadata = read_metadata(record.value)
        if metadata.uid != reference["uid"]:
            return False
        deleted = metadata.deletion_timestamp
        return deleted is None or parse_timestamp(deleted) + DELETION_LEEWAY > self._clock.now()

    # --- discovery ------------------------------------------------------------------------------------------

    def openid_configuration(self) -> Document:
        """The document with which others verify these tokens."""
        return {
            "issuer": self.issuer,
            "jwks_uri": f"{self.issuer}/openid/v1/jwks",
            "response_types_supported": ["id_token"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": [ALGORITHM],
        }

    def public_keys(self) -> Document:
        self._keys.current()
        return {"keys": [key.jwk() for key in self._keys.all().values()]}


def _check_time(claims: Claims, now: datetime) -> None:
    """Refuse a token that has expired or is not valid yet."""
    moment = now.timestamp()
    if moment >= claims["exp"]:
        raise UnusableToken("the token has expired")
    if moment + EARLY_S < claims["nbf"]:
        raise UnusableToken("the token is not valid yet")


def _user_of(claims: Claims) -> User:
    private = claims[_PRIVATE]
    namespace, account = private["namespace"], private["serviceaccount"]
    extra: list[tuple[str, tuple[str, ...]]] = [(CREDENTIAL_ID, (f"JTI={claims['jti']}",))]
    for member, keys in (("node", (NODE_NAME, NODE_UID)), ("pod", (POD_NAME, POD_UID))):
        reference: dict[str, Any] = private.get(member) or {}
        extra += [
            (key, (reference[part],)) for key, part in zip(keys, ("name", "uid"), strict=True) if part in reference
        ]
    return User(
        name=service_account_user_name(namespace, account["name"]),
        uid=account["uid"],
        groups=(*service_account_groups(namespace), AUTHENTICATED),
        extra=tuple(sorted(extra)),
    )


def _check_names(metadata: ObjectMeta, namespace: str, name: str) -> None:
    if metadata.name and metadata.name != name:
        raise BadRequest("name in URL does not match name in token request metadata")
    if metadata.namespace and metadata.namespace != namespace:
        raise BadRequest("namespace in URL does not match namespace in token request metadata")


def _faults_of(spec: TokenRequestSpec) -> list[FieldError]:
    seconds = spec.expiration_seconds
    if seconds is None:
        return []
    if seconds < LIFETIME_MIN_S:
        return [invalid_value(_EXPIRATION, seconds, "may not specify a duration less than 10 minutes")]
    if seconds > 1 << 32:
        return [invalid_value(_EXPIRATION, seconds, "may not specify a duration larger than 2^32 seconds")]
    return []
