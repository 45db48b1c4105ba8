"""The user of a client certificate."""

from __future__ import annotations

import ssl

from dralloc.access.users import User, authenticated


def user_of_certificate(connection: ssl.SSLObject | None) -> tuple[User | None, float]:
    """The user of a verified client certificate, and when it expires: CN is the name, each O a group."""
    encoded = connection.getpeercert(binary_form=True) if connection is not None else None
    if not encoded:
        return None, 0.0
    # Slow to import, and only needed for client certificates.
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    certificate = x509.load_der_x509_certificate(encoded)
    subject = certificate.subject
    names = [str(attribute.value) for attribute in subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    groups = tuple(str(attribute.value) for attribute in subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME))
    user = authenticated(User(name=names[0], groups=groups)) if names else None
    return user, certificate.not_valid_after_utc.timestamp()
