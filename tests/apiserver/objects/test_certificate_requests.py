"""Certificate signing requests: author, approval, certificate, and who may decide."""

from __future__ import annotations

import asyncio
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from dralloc.access.users import User
from dralloc.apiserver.credentials.certificate_signer import CertificateSigner
from dralloc.apiserver.credentials.certificates import ensure_certificates
from dralloc.apiserver.server import ApiServer
from dralloc.primitives.features import FeatureGates
from dralloc.store.memory import MemoryStore
from dralloc.system_clock import SystemClock
from tests.support.local_api import MERGE_PATCH, LocalApi

PATH = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
CLIENT = "kubernetes.io/kube-apiserver-client"
NODE_CLIENT = "kubernetes.io/kube-apiserver-client-kubelet"
KEY = ec.generate_private_key(ec.SECP256R1())


def pem_request(name: str, *groups: str) -> str:
    attributes = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    subject = x509.Name([*attributes, x509.NameAttribute(NameOID.COMMON_NAME, name)])
    made = x509.CertificateSigningRequestBuilder().subject_name(subject).sign(KEY, hashes.SHA256())
    return b64encode(made.public_bytes(serialization.Encoding.PEM)).decode()


def request_document(request: str, *, signer: str = CLIENT, **spec: Any) -> dict[str, Any]:
    fields = {"request": request, "signerName": signer, "usages": ["client auth"], **spec}
    return {"metadata": {"name": "r"}, "spec": fields}


def decision(*types: str) -> dict[str, Any]:
    return {"status": {"conditions": [{"type": each, "status": "True", "reason": "Test"} for each in types]}}


@asynccontextmanager
async def signing_api(directory: Path) -> AsyncIterator[LocalApi]:
    clock = SystemClock()
    ensure_certificates(directory, [], clock.now())
    signer = CertificateSigner(directory, clock.now)
    async with MemoryStore() as store:
        gates = FeatureGates.defaults()
        server = ApiServer(store, clock=clock, gates=gates, enforces_roles=True, signer=signer)
        await server.start()
        try:
            yield LocalApi(server)
        finally:
            await server.stop()


async def wait_for(api: LocalApi, member: str) -> Any:
    async with asyncio.timeout(20):
        while True:
            status = (await api.get(f"{PATH}/r")).get("status", {})
            types = {each["type"]: each for each in status.get("conditions", ())}
            if found := status.get(member) or types.get(member):
                return found
            await asyncio.sleep(0)


def test_an_approved_request_gets_a_certificate(tmp_path: Path) -> None:
    async def main() -> None:
        async with signing_api(tmp_path) as api:
            sent = request_document(pem_request("ann", "devs"), username="somebody else", expirationSeconds=3600)
            created = await api.create(PATH, sent)
            assert created["spec"]["username"] == "dralloc-admin"
            assert created["spec"]["groups"] == ["system:masters", "system:authenticated"]
            changed = await api.call("PATCH", f"{PATH}/r", {"spec": {"signerName": "a/b"}}, content_type=MERGE_PATCH)
            assert changed.document["spec"]["signerName"] == CLIENT
            approved = await api.call("PATCH", f"{PATH}/r/approval", decision("Approved"), content_type=MERGE_PATCH)
            assert approved.code == 200
            certificate = x509.load_pem_x509_certificate(b64decode(await wait_for(api, "certificate")))
            authority = x509.load_pem_x509_certificate((tmp_path / "ca.crt").read_bytes())
            certificate.verify_directly_issued_by(authority)
            assert certificate.subject.rfc4514_string() == "CN=ann,O=devs"
            assert certificate.public_key() == KEY.public_key()
            assert (certificate.not_valid_after_utc - certificate.not_valid_before_utc).total_seconds() < 2 * 3600 + 60
            usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
            assert list(usage) == [ExtendedKeyUsageOID.CLIENT_AUTH]
            assert not certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
            denied = await api.call("PATCH", f"{PATH}/r/approval", decision("Denied"), content_type=MERGE_PATCH)
            assert denied.code == 422

    asyncio.run(main())


@pytest.mark.parametrize(
    ("document", "code", "words"),
    [
        (request_document("bm90IGEgcmVxdWVzdA=="), 422, "spec.request"),
        (request_document("!"), 400, "spec.request: illegal base64 data"),
        (request_document(pem_request("ann", "system:masters")), 403, "system:masters"),
        (request_document(pem_request("ann"), expirationSeconds=10), 422, "expirationSeconds"),
        (request_document(pem_request("ann"), usages=[]), 422, "spec.usages"),
        (request_document(pem_request("ann"), signer=""), 422, "spec.signerName"),
    ],
)
def test_a_malformed_request_is_refused(tmp_path: Path, document: dict[str, Any], code: int, words: str) -> None:
    async def main() -> None:
        async with signing_api(tmp_path) as api:
            refused = await api.call("POST", PATH, document)
            assert refused.code == code
            assert words in refused.document["message"]

    asyncio.run(main())


@pytest.mark.parametrize(
    "document",
    [
        request_document(pem_request("system:node:n", "system:masters"), signer=NODE_CLIENT),
        request_document(pem_request("ann", "system:nodes"), signer=NODE_CLIENT),
        request_document(pem_request("ann"), usages=["server auth"]),
        request_document(pem_request("ann"), usages=["client auth", "cert sign"]),
    ],
)
def test_what_a_signer_does_not_sign_fails(tmp_path: Path, document: dict[str, Any]) -> None:
    async def main() -> None:
        async with signing_api(tmp_path) as api:
            await api.create(PATH, document)
            await api.call("PATCH", f"{PATH}/r/approval", decision("Approved"), content_type=MERGE_PATCH)
            assert (await wait_for(api, "Failed"))["reason"] == "SignerValidationFailure"
            assert "certificate" not in (await api.get(f"{PATH}/r"))["status"]

    asyncio.run(main())


def test_only_users_with_the_right_approve_and_sign(tmp_path: Path) -> None:
    async def main() -> None:
        async with signing_api(tmp_path) as api:
            await api.create(PATH, request_document(pem_request("ann")))
            rules = [
                {
                    "apiGroups": ["certificates.k8s.io"],
                    "resources": [f"certificatesigningrequests/{part}"],
                    "verbs": ["*"],
                }
                for part in ("approval", "status")
            ]
            roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
            bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
            await api.create(roles, {"metadata": {"name": "writer"}, "rules": rules})
            bob = {"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "bob"}

            async def bind(role: str) -> None:
                ref = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role}
                await api.create(bindings, {"metadata": {"name": role}, "roleRef": ref, "subjects": [bob]})

            await bind("writer")
            as_bob = LocalApi(api.server, User(name="bob", groups=("system:authenticated",)))
            for part, sent in (("approval", decision("Approved")), ("status", {"status": {"certificate": "eA=="}})):
                refused = await as_bob.call("PATCH", f"{PATH}/r/{part}", sent, content_type=MERGE_PATCH)
                assert (refused.code, "not permitted to" in refused.document["message"]) == (403, True)
            await bind("system:certificates.k8s.io:kube-apiserver-client-approver")
            allowed = await as_bob.call("PATCH", f"{PATH}/r/approval", decision("Approved"), content_type=MERGE_PATCH)
            assert allowed.code == 200

    asyncio.run(main())
