"""The certificate authority and the server certificate in the data directory."""

from __future__ import annotations

import codecs
import stat
from base64 import b64decode, b64encode
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from dralloc.apiserver.credentials.certificate_authorities import (
    AUTHORITY_LIFETIME,
    AuthorityFiles,
    UnusableCertificates,
)
from dralloc.apiserver.credentials.certificates import (
    TlsFiles,
    ensure_certificates,
    retire_authorities,
    rotate_authority,
    rotate_server_certificate,
    signing_authority,
)
from dralloc.apiserver.credentials.tls_context import ServedTls

NOW = datetime(2026, 6, 1, tzinfo=UTC)


def test_certificates_are_created_once(tmp_path: Path) -> None:
    files = ensure_certificates(tmp_path, ["127.0.0.1"], NOW)
    before = (files.authority_pem, files.certificate.read_bytes())
    assert ensure_certificates(tmp_path, ["127.0.0.1"], NOW + timedelta(days=1)) == files
    assert (files.authority_pem, files.certificate.read_bytes()) == before
    assert ensure_certificates(tmp_path, ["0:0::1"], NOW) == files
    assert files.certificate.read_bytes() == before[1], "::1 is covered"
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


def certificates(files: TlsFiles) -> tuple[list[x509.Certificate], x509.Certificate]:
    """The trusted authorities, and the server certificate."""
    return (
        x509.load_pem_x509_certificates(files.authority_pem),
        x509.load_pem_x509_certificate(files.certificate.read_bytes()),
    )


def test_a_certificate_does_not_outlive_its_authority(tmp_path: Path) -> None:
    ensure_certificates(tmp_path, [], NOW)
    late = NOW + AUTHORITY_LIFETIME - timedelta(days=100)
    rotate_server_certificate(tmp_path, late)
    (authority,), server = certificates(ensure_files(tmp_path))
    assert server.not_valid_after_utc == authority.not_valid_after_utc


def ensure_files(directory: Path) -> TlsFiles:
    names = ("ca.crt", "server.crt", "server.key", "kubelet-client.crt", "kubelet-client.key")
    return TlsFiles(*(directory / name for name in names))


def test_a_certificate_that_is_not_valid_yet_is_replaced(tmp_path: Path) -> None:
    files = ensure_certificates(tmp_path, [], NOW)
    rotate_server_certificate(tmp_path, NOW + timedelta(days=10))
    ensure_certificates(tmp_path, [], NOW)
    assert certificates(files)[1].not_valid_before_utc <= NOW


@pytest.mark.parametrize("name", ["server", "kubelet-client"])
@pytest.mark.parametrize("damage", ["empty", "half", "of another certificate", "of another encoding"])
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
    }
    key.write_bytes(texts[damage])
    ensure_certificates(tmp_path, [], NOW)
    made = x509.load_pem_x509_certificate(certificate.read_bytes())
    private = serialization.load_pem_private_key(key.read_bytes(), password=None)
    assert (made.public_key(), certificate.read_bytes() != before) == (private.public_key(), True)
    assert files.authority_pem == authority


def test_an_authority_that_is_not_valid_yet_is_reported(tmp_path: Path) -> None:
    ensure_certificates(tmp_path, [], NOW)
    with pytest.raises(UnusableCertificates, match=r"not valid before 2026-05-31 23:00 UTC.*clock"):
        ensure_certificates(tmp_path, [], NOW - timedelta(days=1))


def test_clients_have_eleven_months_to_learn_the_next_authority(tmp_path: Path) -> None:
    files = ensure_certificates(tmp_path, [], NOW)
    (first,), _ = certificates(files)
    end = first.not_valid_after_utc
    for host, left_days in (("10.0.0.1", 364), ("10.0.0.2", 300), ("10.0.0.3", 100), ("10.0.0.4", 31)):
        ensure_certificates(tmp_path, [host], end - timedelta(days=left_days))
        (newest, earlier), server = certificates(files)
        assert (earlier, newest.not_valid_after_utc > end) == (first, True)
        for certificate in (server, x509.load_pem_x509_certificate(files.client_certificate.read_bytes())):
            certificate.verify_directly_issued_by(first)
    ensure_certificates(tmp_path, ["10.0.0.4"], end - timedelta(days=29))
    authorities, server = certificates(files)
    assert authorities == [newest, first]
    server.verify_directly_issued_by(newest)


@pytest.mark.parametrize("damage", ["missing", "empty", "of another authority"])
def test_without_its_key_an_authority_stays_trusted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, damage: str
) -> None:
    files = ensure_certificates(tmp_path, [], NOW)
    (first,), before = certificates(files)
    key = tmp_path / "ca.key"
    ensure_certificates(tmp_path / "other", [], NOW)
    other = (tmp_path / "other" / "ca.key").read_bytes()
    texts = {"missing": b"", "empty": b"\n", "of another authority": other}
    key.write_bytes(texts[damage])
    if damage == "missing":
        key.unlink()
    caplog.clear()
    ensure_certificates(tmp_path, [], NOW)
    (newest, earlier), server = certificates(files)
    assert (earlier, server) == (first, before)
    # It may be restored with its certificate.
    assert (other in key.read_bytes()) == (damage == "of another authority")
    assert f"{key} has no key of the authority that signed" in caplog.text
    assert "to every client before 2027-05-02" in caplog.text
    ensure_certificates(tmp_path, ["10.1.2.3"], NOW)
    certificates(files)[1].verify_directly_issued_by(newest)
    caplog.clear()
    ensure_certificates(tmp_path, ["10.1.2.3"], NOW)
    assert caplog.text == ""


@pytest.mark.parametrize("years", [9.5, 20, 200], ids=["the authority ends soon", "it has ended", "far ahead"])
def test_a_clock_that_was_ahead_changes_nothing_for_clients(tmp_path: Path, years: float) -> None:
    files = ensure_certificates(tmp_path, [], NOW)
    (first,), _ = certificates(files)
    ahead = NOW + timedelta(days=365 * years)
    for now in (ahead, NOW, ahead, NOW):
        ensure_certificates(tmp_path, [], now)
    server = certificates(files)[1]
    server.verify_directly_issued_by(first)
    assert server.not_valid_before_utc <= NOW
    assert signing_authority(tmp_path, NOW).certificate == first
    assert len(certificates(files)[0]) == 2
    assert retire_authorities(tmp_path, NOW) == 1
    assert certificates(files)[0] == [first]


@pytest.mark.parametrize("years", [9, 11], ids=["ends soon", "has ended"])
def test_authorities_alone_are_enough_to_start(tmp_path: Path, years: int) -> None:
    files = ensure_certificates(tmp_path, [], NOW)
    for path in (files.certificate, files.key, files.client_certificate, files.client_key):
        path.unlink()
    now = NOW + timedelta(days=365 * years + 300)
    ensure_certificates(tmp_path, [], now)
    (newest, earlier), server = certificates(files)
    server.verify_directly_issued_by(earlier if years == 9 else newest)
    assert server.not_valid_after_utc > now


def test_the_authority_is_rotated_in_steps(tmp_path: Path) -> None:
    files = ensure_certificates(tmp_path, ["10.1.2.3"], NOW)
    (first,), before = certificates(files)
    rotate_authority(tmp_path, NOW)
    (newest, kept), server = certificates(files)
    assert (kept, server) == (first, before)
    with pytest.raises(UnusableCertificates, match="rotate server"):
        retire_authorities(tmp_path, NOW)
    # A start in between changes nothing: clients may not know the new authority yet.
    ensure_certificates(tmp_path, ["10.1.2.3"], NOW)
    assert certificates(files)[1] == before
    rotate_server_certificate(tmp_path, NOW)
    server = certificates(files)[1]
    server.verify_directly_issued_by(newest)
    # Nodes verify it, and may trust the newest authority only.
    x509.load_pem_x509_certificate(files.client_certificate.read_bytes()).verify_directly_issued_by(newest)
    names = x509.SubjectAlternativeName
    assert server.extensions.get_extension_for_class(names) == before.extensions.get_extension_for_class(names)
    assert retire_authorities(tmp_path, NOW) == 1
    assert certificates(files)[0] == [newest]
    assert retire_authorities(tmp_path, NOW) == 0


def test_a_retired_authority_cannot_sign(tmp_path: Path) -> None:
    ensure_certificates(tmp_path, [], NOW)
    first = (tmp_path / "ca.key").read_bytes()
    rotate_authority(tmp_path, NOW)
    assert first in (tmp_path / "ca.key").read_bytes()
    rotate_server_certificate(tmp_path, NOW)
    retire_authorities(tmp_path, NOW)
    assert first not in (tmp_path / "ca.key").read_bytes()


def test_the_newest_authority_must_have_its_key_before_earlier_ones_are_retired(tmp_path: Path) -> None:
    files = ensure_certificates(tmp_path, [], NOW)
    key = (tmp_path / "ca.key").read_bytes()
    rotate_authority(tmp_path, NOW)
    (tmp_path / "ca.key").write_bytes(key)
    before = certificates(files)
    for change in (rotate_server_certificate, retire_authorities):
        with pytest.raises(UnusableCertificates, match=r"ca\.key has no key of the newest authority.*rotate authority"):
            change(tmp_path, NOW)
    assert certificates(files) == before
    # As the message advises.
    rotate_authority(tmp_path, NOW)
    rotate_server_certificate(tmp_path, NOW)
    assert retire_authorities(tmp_path, NOW) == 2


def on_another_curve(pem: bytes) -> bytes:
    """A certificate or key on a curve that the library does not know."""
    begin, *lines, end = pem.decode().strip().splitlines()
    der = b64decode("".join(lines))
    other = der.replace(bytes.fromhex("2a8648ce3d030107"), bytes.fromhex("2a8648ce3d03017f"))
    assert other != der
    return "\n".join((begin, b64encode(other).decode(), end, "")).encode()


@pytest.mark.parametrize("damage", ["empty", "half", "of another encoding", "without names"])
def test_a_server_certificate_that_cannot_be_read_is_reported(tmp_path: Path, damage: str) -> None:
    files = ensure_certificates(tmp_path, [], NOW)
    whole = files.certificate.read_bytes()
    texts = {
        "empty": b"",
        "half": whole[:200],
        "of another encoding": codecs.BOM_UTF16 + whole,
        "without names": files.authority_pem,
    }
    files.certificate.write_bytes(texts[damage])
    with pytest.raises(UnusableCertificates, match=r"server\.crt .*move it away and start the server again"):
        rotate_server_certificate(tmp_path, NOW)
    if damage != "without names":
        with pytest.raises(UnusableCertificates, match=r"server\.crt .*move it away and start the server again"):
            retire_authorities(tmp_path, NOW)
    # As the message advises.
    files.certificate.unlink()
    ensure_certificates(tmp_path, [], NOW)
    rotate_server_certificate(tmp_path, NOW)


@pytest.mark.parametrize(
    "change", [partial(ensure_certificates, host_names=[]), rotate_server_certificate, rotate_authority]
)
def test_a_clock_before_certificates_could_have_its_time_is_reported(
    tmp_path: Path, change: Callable[..., Any]
) -> None:
    if not isinstance(change, partial):
        ensure_certificates(tmp_path, [], NOW)
    with pytest.raises(UnusableCertificates, match=r"the clock of this machine says 1949-12-31.*set it"):
        change(tmp_path, now=datetime(1949, 12, 31, tzinfo=UTC))


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


def test_authorities_and_keys_of_other_kinds_are_ignored(tmp_path: Path) -> None:
    """They may be trusted for client certificates."""
    files = ensure_certificates(tmp_path, [], NOW)
    key = tmp_path / "ca.key"
    files.authority.write_bytes(files.authority_pem + on_another_curve(files.authority_pem))
    key.write_bytes(on_another_curve(key.read_bytes()) + key.read_bytes())
    for path in (files.certificate, files.key, files.client_key):
        path.write_bytes(on_another_curve(path.read_bytes()))
    with pytest.raises(UnusableCertificates, match="rotate server"):
        retire_authorities(tmp_path, NOW)
    ensure_certificates(tmp_path, [], NOW)
    (authority, _), server = certificates(files)
    server.verify_directly_issued_by(authority)


def unusable(key: Path, form: str) -> None:
    """Makes the file one that the server cannot use, and must not lose."""
    encoding, pkcs8 = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    private = serialization.load_pem_private_key(key.read_bytes(), password=None)
    encrypted = private.private_bytes(encoding, pkcs8, serialization.BestAvailableEncryption(b"secret"))
    of_rsa = rsa.generate_private_key(65537, 2048).private_bytes(encoding, pkcs8, serialization.NoEncryption())
    texts = {"half": key.read_bytes()[:100], "other text": b"?", "encrypted": encrypted, "RSA": of_rsa}
    if form == "unreadable":
        key.unlink()
        key.mkdir()
    else:
        key.write_bytes(texts[form])


@pytest.mark.parametrize("form", ["half", "other text", "encrypted", "RSA", "unreadable"])
def test_keys_that_cannot_be_used_are_kept_and_reported_when_they_are_needed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, form: str
) -> None:
    key = tmp_path / "ca.key"
    files = ensure_certificates(tmp_path, [], NOW)
    before = certificates(files)
    unusable(key, form)
    content = key.read_bytes() if key.is_file() else b""
    ensure_certificates(tmp_path, [], NOW)
    assert certificates(files) == before
    assert "no next certificate authority can be made" in caplog.text
    reason = "cannot be read: Is a directory" if form == "unreadable" else "in PEM without a password"
    with pytest.raises(
        UnusableCertificates, match=rf"ca\.key cannot be used to sign: .*{reason}; restore it.*move it,"
    ):
        rotate_server_certificate(tmp_path, NOW)
    with pytest.raises(UnusableCertificates, match=rf"ca\.key is not replaced .*{reason}; restore it"):
        rotate_authority(tmp_path, NOW)
    assert (key.read_bytes() if key.is_file() else b"") == content
    # As the messages advise.
    key.rename(tmp_path / "moved")
    ensure_certificates(tmp_path, [], NOW)
    (_, earlier), server = certificates(files)
    assert ([earlier], server) == before


def test_a_key_behind_one_that_was_cut_off_is_used(tmp_path: Path) -> None:
    key = tmp_path / "ca.key"
    files = ensure_certificates(tmp_path, [], NOW)
    key.write_bytes(key.read_bytes()[:100] + b"\n" + key.read_bytes())
    rotate_server_certificate(tmp_path, NOW)
    (authority,), server = certificates(files)
    server.verify_directly_issued_by(authority)


AT_ONCE = 8


@pytest.mark.parametrize(
    ("change", "begins", "made"),
    [
        (lambda tls: rotate_authority(tls, NOW), True, AT_ONCE),
        (lambda tls: ensure_certificates(tls, [], NOW + AUTHORITY_LIFETIME - timedelta(days=300)), True, 1),
        (lambda tls: ensure_certificates(tls, [], NOW), False, 1),
    ],
    ids=["rotations", "servers in the last year", "servers at the first start"],
)
def test_authorities_that_are_made_at_the_same_time_have_their_keys(
    tmp_path: Path, change: Callable[[Path], object], begins: bool, made: int
) -> None:
    if begins:
        ensure_certificates(tmp_path, [], NOW)
    with ThreadPoolExecutor(AT_ONCE) as threads:
        list(threads.map(lambda _: change(tmp_path), range(AT_ONCE)))
    authorities = AuthorityFiles(tmp_path).read()
    assert (len(authorities), all(each.key for each in authorities)) == (begins + made, True)
    server = x509.load_pem_x509_certificate((tmp_path / "server.crt").read_bytes())
    private = serialization.load_pem_private_key((tmp_path / "server.key").read_bytes(), password=None)
    assert server.public_key() == private.public_key()


def test_an_authority_whose_key_is_lost_does_not_count(tmp_path: Path) -> None:
    """As one that two servers of an earlier release have left, when both made the next authority."""
    files = ensure_certificates(tmp_path, [], NOW)
    key = (tmp_path / "ca.key").read_bytes()
    late = NOW + AUTHORITY_LIFETIME - timedelta(days=300)
    ensure_certificates(tmp_path, [], late)
    (tmp_path / "ca.key").write_bytes(key)
    for days in (299, 29, -1):
        ensure_certificates(tmp_path, [], NOW + AUTHORITY_LIFETIME - timedelta(days=days))
    authorities, server = certificates(files)
    server.verify_directly_issued_by(authorities[0])


def test_the_context_follows_the_files(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    files = ensure_certificates(tmp_path, [], NOW)
    served = ServedTls(files, check_every_s=0)
    first = served.current()
    assert served.current() is first
    key = files.key.read_bytes()
    rotate_server_certificate(tmp_path, NOW)
    new_key = files.key.read_bytes()
    files.key.write_bytes(key)
    assert served.current() is first
    assert "cannot be used yet" in caplog.text
    files.key.write_bytes(new_key)
    second = served.current()
    assert second is not first
    files.certificate.unlink()
    assert served.current() is second
