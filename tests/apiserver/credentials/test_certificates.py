"""The certificate authority and the server certificate in the data directory."""

from __future__ import annotations

import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509

from dralloc.apiserver.credentials.certificates import ensure_certificates

NOW = datetime(2026, 6, 1, tzinfo=UTC)


def test_certificates_are_created_once(tmp_path: Path) -> None:
    files = ensure_certificates(tmp_path, ["127.0.0.1"], NOW)
    before = (files.authority_pem, files.certificate.read_bytes())
    assert ensure_certificates(tmp_path, ["127.0.0.1"], NOW + timedelta(days=1)) == files
    assert (files.authority_pem, files.certificate.read_bytes()) == before
    assert stat.S_IMODE(files.key.stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "ca.key").stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("host", "later"), [("10.1.2.3", timedelta()), ("127.0.0.1", timedelta(days=340))], ids=["new address", "old"]
)
def test_the_server_certificate_is_renewed_under_the_same_authority(
    tmp_path: Path, host: str, later: timedelta
) -> None:
    files = ensure_certificates(tmp_path, ["127.0.0.1"], NOW)
    authority, first = files.authority_pem, files.certificate.read_bytes()
    ensure_certificates(tmp_path, [host], NOW + later)
    assert files.certificate.read_bytes() != first
    assert files.authority_pem == authority
    renewed = x509.load_pem_x509_certificate(files.certificate.read_bytes())
    renewed.verify_directly_issued_by(x509.load_pem_x509_certificate(authority))
