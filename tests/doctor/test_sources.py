"""Where facts beside objects come from: options of pods, published gates, requests for certificates, checkpoints."""

from __future__ import annotations

from base64 import b64encode
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from dralloc.answers.doctor.cluster_facts import read_records
from dralloc.answers.doctor.live_facts import certificate_request, gates_of_pods, published_gates
from dralloc.kube.core_v1 import ConfigMap
from dralloc.kube.meta_v1 import ObjectMeta
from dralloc.primitives.features import GATES, FeatureGates, parse_settings
from dralloc.primitives.metrics import exposition, gate_metric, gates_in

GATE = "DRAConsumableCapacity"
NEWEST = "v1.37.2"


def pod(*command: str, args: tuple[str, ...] = (), name: str = "p") -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"containers": [{"command": list(command), "args": list(args)}]}}


@pytest.mark.parametrize(
    ("found", "want"),
    [
        (pod("kube-scheduler", f"--feature-gates={GATE}=false,Other=true"), {GATE: False, "Other": True}),
        (pod("/usr/local/bin/kube-scheduler", "--feature-gates", f"{GATE}=True"), {GATE: True}),
        (pod("kube-controller-manager", args=(f"--feature-gates={GATE}=false",)), {GATE: False}),
        (pod("kube-scheduler", "--v=2"), {}),
        (pod("kube-scheduler", "--feature-gates=A=true", "--feature-gates=B=false"), {"A": True, "B": False}),
        (pod("kube-scheduler", "--feature-gates=nonsense"), {}),
        (pod("kube-proxy", f"--feature-gates={GATE}=false"), None),
        (pod("sh", "-c", "kube-scheduler-helper"), None),
        ({"metadata": None, "spec": None}, None),
        ({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "no command"}]}}, None),
    ],
)
def test_gates_of_components_that_run_as_pods(found: dict[str, Any], want: dict[str, bool] | None) -> None:
    told = list(gates_of_pods([found], "v1.34.1"))
    assert [each.gates for each in told] == ([] if want is None else [want])


def test_what_no_option_sets_has_the_default_of_the_release_that_we_know() -> None:
    (known,) = gates_of_pods([pod("kube-scheduler", f"--feature-gates={GATE}=false")], NEWEST)
    assert known.gates == {name: gate.default for name, gate in GATES.items()} | {GATE: False}


def test_gates_are_the_same_however_a_component_tells_them() -> None:
    gates = FeatureGates.parse("DRAAdminAccess=false,GenericWorkload=true")
    metrics = gates_in(exposition([gate_metric(gates)]))
    assert metrics == {name: name in gates for name in GATES}
    text = ",".join(f"{name}={str(on).lower()}" for name, on in metrics.items())
    assert parse_settings(text) == metrics
    published = ConfigMap(metadata=ObjectMeta(name="c"), data={"schedulerName": "s", "featureGates": text})
    (told,) = published_gates([published, ConfigMap(data={"schedulerName": "earlier"})])
    assert (told.component, told.gates) == ("scheduler s", metrics)


def issued(days: float) -> str:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "system:node:n")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), 1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=days))
        .sign(key, hashes.SHA256())
    )
    return b64encode(made.public_bytes(serialization.Encoding.PEM)).decode()


def request(**status: Any) -> dict[str, Any]:
    metadata = {"name": "csr", "creationTimestamp": "2026-01-01T00:00:00Z"}
    return {"metadata": metadata, "spec": {"signerName": "s"}, "status": status}


@pytest.mark.parametrize("kind", ["Denied", "Failed", "Approved"])
def test_a_decided_request_without_a_certificate_is_nothing_to_tell(kind: str) -> None:
    assert certificate_request(request(conditions=[{"type": kind}])) is None


def test_requests_that_wait_and_certificates_that_were_issued() -> None:
    waiting = certificate_request(request())
    assert waiting is not None
    assert (waiting.name, waiting.signer, waiting.not_after) == ("csr", "s", None)
    done = certificate_request(request(conditions=[{"type": "Approved"}], certificate=issued(9)))
    assert done is not None
    assert done.subject == "CN=system:node:n"
    assert done.not_before is not None
    assert done.not_after is not None
    assert done.not_before < done.not_after
    assert certificate_request(request(certificate="bm8=")) is None
    assert certificate_request(request(certificate="?")) is None


@pytest.mark.parametrize("content", [b"", b"{}", b"[1]", b'{"Data":"{}","Checksum":1}', b"\xff\xfe"])
def test_a_file_that_is_no_checkpoint_is_refused_with_both_reasons(content: bytes) -> None:
    with pytest.raises(ValueError, match=r"neither the checkpoint of a kubelet or node agent .* nor of a driver"):
        read_records("f", content)
