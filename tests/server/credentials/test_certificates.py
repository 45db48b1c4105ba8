"""The certificate authority of the server and what it signs, in the data directory; also in one of an earlier release."""

from __future__ import annotations

import codecs
import stat
from base64 import b64decode, b64encode
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from dralloc.server.identity.certificates import (
    AUTHORITY_LIFETIME,
    TlsFiles,
    UnusableCertificates,
    ensure_certificates,
)
from tests.support.earlier_certificates import earlier_certificates
from tests.support.limited_files import files_of_at_most

NOW = datetime(2026, 6, 1, tzinfo=UTC)
ALL = ("ca.crt", "ca.key", "server.crt", "server.key", "kubelet-client.crt", "kubelet-client.key")


def contents(directory: Path) -> dict[str, bytes]:
    return {name: (directory / name).read_bytes() for name in ALL}


def certificates(files: TlsFiles) -> tuple[list[x509.Certificate], x509.Certificate]:
    """The trusted authorities, and the server certificate."""
    return (
        x509.load_pem_x509_certificates(files.authority_pem),
        x509.load_pem_x509_certificate(files.certificate.read_bytes()),
    )


def test_certificates_are_made_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    files = ensure_certificates(tmp_path, ["127.0.0.1"], NOW)
    before = contents(tmp_path)
    for host, later in (("127.0.0.1", timedelta(days=1)), ("0:0::1", timedelta()), ("", timedelta(days=3000))):
        assert ensure_certificates(tmp_path, [host] if host else [], NOW + later) == files
        assert contents(tmp_path) == before
    for key in ("ca.key", "server.key", "kubelet-client.key"):
        assert stat.S_IMODE((tmp_path / key).stat().st_mode) == 0o600
    assert caplog.text == ""


def test_what_the_authority_signs_lasts_as_long_as_itself(tmp_path: Path) -> None:
    """A server may run for years, and renews nothing meanwhile."""
    files = ensure_certificates(tmp_path, [], NOW)
    (authority,), server = certificates(files)
    assert authority.not_valid_after_utc == server.not_valid_after_utc == NOW + AUTHORITY_LIFETIME
    client = x509.load_pem_x509_certificate(files.client_certificate.read_bytes())
    assert client.not_valid_after_utc == server.not_valid_after_utc
    for certificate in (server, client):
        certificate.verify_directly_issued_by(authority)


def test_a_new_address_is_covered_under_the_same_authority(tmp_path: Path) -> None:
    files = ensure_certificates(tmp_path, ["127.0.0.1"], NOW)
    before = contents(tmp_path)
    ensure_certificates(tmp_path, ["10.1.2.3"], NOW)
    (authority,), server = certificates(files)
    changed = {name for name, content in contents(tmp_path).items() if content != before[name]}
    assert changed == {"server.crt", "server.key"}
    server.verify_directly_issued_by(authority)


def test_a_certificate_that_is_not_valid_yet_is_replaced(tmp_path: Path) -> None:
    """As one that was made while the clock was ahead."""
    files = ensure_certificates(tmp_path, [], NOW)
    ensure_certificates(tmp_path, ["10.1.2.3"], NOW + timedelta(days=10))
    ensure_certificates(tmp_path, [], NOW)
    assert certificates(files)[1].not_valid_before_utc <= NOW


@pytest.mark.parametrize("name", ["server", "kubelet-client"])
@pytest.mark.parametrize("damage", ["empty", "half", "of another certificate", "of another encoding", "encrypted"])
def test_a_certificate_whose_key_does_not_fit_is_replaced(tmp_path: Path, name: str, damage: str) -> None:
    """As after a renewal that ended between its two files."""
    files = ensure_certificates(tmp_path, [], NOW)
    key, certificate = tmp_path / f"{name}.key", tmp_path / f"{name}.crt"
    before, authority = certificate.read_bytes(), files.authority_pem
    other = "kubelet-client" if name == "server" else "server"
    texts = {
        "empty": b"",
        "half": key.read_bytes()[:100],
        "of another certificate": (tmp_path / f"{other}.key").read_bytes(),
        "of another encoding": codecs.BOM_UTF16 + key.read_bytes(),
        "encrypted": encrypted(key.read_bytes()),
    }
    key.write_bytes(texts[damage])
    ensure_certificates(tmp_path, [], NOW)
    made = x509.load_pem_x509_certificate(certificate.read_bytes())
    private = serialization.load_pem_private_key(key.read_bytes(), password=None)
    assert (made.public_key(), certificate.read_bytes() != before) == (private.public_key(), True)
    assert files.authority_pem == authority


@pytest.mark.parametrize("damage", ["missing", "empty", "half", "of another encoding", "without names"])
def test_a_server_certificate_that_cannot_be_used_is_replaced(tmp_path: Path, damage: str) -> None:
    files = ensure_certificates(tmp_path, [], NOW)
    whole = files.certificate.read_bytes()
    texts = {
        "missing": b"",
        "empty": b"",
        "half": whole[:200],
        "of another encoding": codecs.BOM_UTF16 + whole,
        "without names": files.client_certificate.read_bytes(),
    }
    files.certificate.write_bytes(texts[damage])
    if damage == "missing":
        files.certificate.unlink()
    if damage == "without names":
        files.key.write_bytes(files.client_key.read_bytes())
    ensure_certificates(tmp_path, [], NOW)
    (authority,), server = certificates(files)
    server.verify_directly_issued_by(authority)


@pytest.mark.parametrize("days", [-1, 3650])
def test_an_authority_that_is_not_valid_now_is_reported(tmp_path: Path, days: int) -> None:
    """The clock may be wrong, so nothing is replaced."""
    files = ensure_certificates(tmp_path, [], NOW)
    before = contents(tmp_path)
    with pytest.raises(UnusableCertificates, match=r"is valid now, at 20.*set the clock.*, or move .* away") as said:
        ensure_certificates(tmp_path, [], NOW + timedelta(days=days))
    assert contents(tmp_path) == before
    assert f"give {files.authority} to every client" in str(said.value)


def test_the_last_year_of_an_authority_is_announced(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    ensure_certificates(tmp_path, [], NOW)
    before = contents(tmp_path)
    ensure_certificates(tmp_path, [], NOW + AUTHORITY_LIFETIME - timedelta(days=364))
    assert contents(tmp_path) == before
    assert f"certificates in {tmp_path} end on 2036-05-29: before that, move " in caplog.text


def encrypted(key: bytes) -> bytes:
    private = serialization.load_pem_private_key(key, password=None)
    return private.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.BestAvailableEncryption(b"secret")
    )


def make_unusable(key: Path, form: str) -> None:
    """Makes the file one that the server cannot use, and must not lose."""
    of_rsa = rsa.generate_private_key(65537, 2048).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    content = key.read_bytes()
    texts = {
        "half": content[:100],
        "empty": b"\n",
        "other text": b"\xff?",
        "encrypted": encrypted(content),
        "RSA": of_rsa,
        "on another curve": on_another_curve(content),
    }
    key.unlink()
    if form == "unreadable":
        key.mkdir()
    elif form != "missing":
        key.write_bytes(texts[form])


@pytest.mark.parametrize(
    "form", ["missing", "empty", "half", "other text", "encrypted", "RSA", "on another curve", "unreadable"]
)
def test_a_key_that_cannot_be_used_is_kept_and_reported_when_it_is_needed(tmp_path: Path, form: str) -> None:
    key = tmp_path / "ca.key"
    ensure_certificates(tmp_path, [], NOW)
    make_unusable(key, form)
    content = key.read_bytes() if key.is_file() else None
    before = {path: path.read_bytes() for path in tmp_path.glob("*.crt")}
    ensure_certificates(tmp_path, [], NOW)
    with pytest.raises(
        UnusableCertificates, match=r"server\.crt must be renewed, and .*ca\.key has no key .*restore it"
    ):
        ensure_certificates(tmp_path, ["10.1.2.3"], NOW)
    assert (key.read_bytes() if key.is_file() else None) == content
    assert {path: path.read_bytes() for path in tmp_path.glob("*.crt")} == before


def test_a_key_without_its_certificate_is_kept(tmp_path: Path) -> None:
    """The certificate may be restored later; and a first start may have ended between the two."""
    files = ensure_certificates(tmp_path, [], NOW)
    first, key = files.authority_pem, (tmp_path / "ca.key").read_bytes()
    files.authority.unlink()
    ensure_certificates(tmp_path, [], NOW)
    (authority,), server = certificates(files)
    server.verify_directly_issued_by(authority)
    assert (files.authority_pem != first, (tmp_path / "ca.key").read_bytes().endswith(key)) == (True, True)
    files.authority.write_bytes(first)
    ensure_certificates(tmp_path, [], NOW)
    (authority,), server = certificates(files)
    server.verify_directly_issued_by(authority)


def test_a_key_behind_one_that_was_cut_off_is_used(tmp_path: Path) -> None:
    key = tmp_path / "ca.key"
    ensure_certificates(tmp_path, [], NOW)
    key.write_bytes(key.read_bytes()[:100] + b"\n" + key.read_bytes())
    ensure_certificates(tmp_path, ["10.1.2.3"], NOW)


def test_an_authority_that_was_cut_off_is_reported(tmp_path: Path) -> None:
    files = ensure_certificates(tmp_path, [], NOW)
    whole = files.authority_pem
    # TLS libraries do not find the certificate behind a mark of another encoding, or not all of them.
    for damaged in (b"", whole[:200], whole + whole[:200], whole[:200] + whole, codecs.BOM_UTF16 + whole):
        files.authority.write_bytes(damaged)
        with pytest.raises(
            UnusableCertificates,
            match=r"ca\.crt has a certificate that cannot be read, none, or bytes that are not ASCII",
        ):
            ensure_certificates(tmp_path, [], NOW)


def on_another_curve(pem: bytes) -> bytes:
    """A certificate or key on a curve that the library does not know."""
    begin, *lines, end = pem.decode().strip().splitlines()
    der = b64decode("".join(lines))
    other = der.replace(bytes.fromhex("2a8648ce3d030107"), bytes.fromhex("2a8648ce3d03017f"))
    assert other != der
    return "\n".join((begin, b64encode(other).decode(), end, "")).encode()


def test_authorities_and_keys_of_other_kinds_are_ignored(tmp_path: Path) -> None:
    """They may be trusted for client certificates."""
    files = ensure_certificates(tmp_path, [], NOW)
    key = tmp_path / "ca.key"
    files.authority.write_bytes(files.authority_pem + on_another_curve(files.authority_pem))
    key.write_bytes(on_another_curve(key.read_bytes()) + key.read_bytes())
    for path in (files.certificate, files.key, files.client_key):
        path.write_bytes(on_another_curve(path.read_bytes()))
    ensure_certificates(tmp_path, [], NOW)
    (authority, _), server = certificates(files)
    server.verify_directly_issued_by(authority)


def test_servers_that_start_at_the_same_time_agree(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda _: ensure_certificates(tmp_path, [], NOW), range(8)))
    files = ensure_certificates(tmp_path, [], NOW)
    (authority,), server = certificates(files)
    server.verify_directly_issued_by(authority)
    private = serialization.load_pem_private_key(files.key.read_bytes(), password=None)
    assert server.public_key() == private.public_key()


# --- a directory of an earlier release ------------------------------------------------------------------------------


def test_a_certificate_of_an_earlier_release_is_renewed_to_the_end_of_its_authority(tmp_path: Path) -> None:
    """It was valid for a year, because the server renewed it while it ran."""
    files = earlier_certificates(tmp_path, NOW)
    authority, before = files.authority_pem, certificates(files)[1]
    assert before.not_valid_after_utc == NOW + timedelta(days=365)
    ensure_certificates(tmp_path, [], NOW + timedelta(days=300))
    (trusted,), server = certificates(files)
    assert (files.authority_pem, server.not_valid_after_utc) == (authority, trusted.not_valid_after_utc)
    server.verify_directly_issued_by(trusted)


def test_of_several_authorities_all_stay_trusted_and_the_earliest_signs(tmp_path: Path) -> None:
    """As in the middle of a replacement: clients may not have the newest yet."""
    files = earlier_certificates(tmp_path, NOW, authorities=3)
    authorities, keys = files.authority_pem, (tmp_path / "ca.key").read_bytes()
    for host in ("10.1.2.3", "10.1.2.4"):
        ensure_certificates(tmp_path, [host], NOW + timedelta(days=1))
        trusted, server = certificates(files)
        server.verify_directly_issued_by(trusted[-1])
    assert (files.authority_pem, (tmp_path / "ca.key").read_bytes()) == (authorities, keys)


def test_an_authority_of_an_earlier_release_that_has_ended_is_passed_over(tmp_path: Path) -> None:
    files = earlier_certificates(tmp_path, NOW, authorities=2, years_apart=5)
    ensure_certificates(tmp_path, [], NOW + timedelta(days=365 * 11))
    (newest, ended), server = certificates(files)
    assert ended.not_valid_after_utc < NOW + timedelta(days=365 * 11)
    server.verify_directly_issued_by(newest)


def test_without_the_key_of_an_authority_its_certificate_serves_to_its_end(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files = earlier_certificates(tmp_path, NOW)
    (tmp_path / "ca.key").unlink()
    before = certificates(files)
    ensure_certificates(tmp_path, [], NOW + timedelta(days=364))
    assert certificates(files) == before
    assert f"certificates in {tmp_path} end on 2027-06-01: before that, move " in caplog.text
    with pytest.raises(UnusableCertificates, match=r"server\.crt must be renewed"):
        ensure_certificates(tmp_path, [], NOW + timedelta(days=366))


def test_a_full_disk_does_not_prevent_a_start(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    files = earlier_certificates(tmp_path, NOW)
    before = certificates(files)
    with files_of_at_most(10):
        ensure_certificates(tmp_path, [], NOW)
        with pytest.raises(OSError, match=r"File too large.*server\.key"):
            ensure_certificates(tmp_path, ["10.1.2.3"], NOW)
    assert certificates(files) == before
    assert "server.crt is not renewed: [Errno 27] File too large" in caplog.text
