"""The key that signs the tokens of service accounts, kept in the data directory.

It is made when the first token is issued, and nothing replaces it. Earlier releases did: of several keys in the directory the newest
signs, and all verify. Without its file, a key counts no more, and neither do its tokens: so an operator revokes them.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from dralloc.atomic_files import write_private

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey, EllipticCurvePublicKey

ALGORITHM: Final = "ES256"
_KEY_ID: Final = re.compile(r"[0-9a-f]{32}")

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SigningKey:
    id: str
    private: EllipticCurvePrivateKey
    # When its file was written.
    written: float = 0.0

    @property
    def public(self) -> EllipticCurvePublicKey:
        return self.private.public_key()

    def jwk(self) -> dict[str, Any]:
        """The public key as a JSON Web Key."""
        from jwt.algorithms import ECAlgorithm

        public = ECAlgorithm.to_jwk(self.public, as_dict=True)
        return {"use": "sig", "alg": ALGORITHM, "kid": self.id, **public}


class SigningKeys:
    """The keys of a directory, which servers may share; without one, a key that lives as long as this object."""

    def __init__(self, directory: Path | None = None) -> None:
        self._directory = directory
        self._keys: dict[str, SigningKey] = {}

    def current(self) -> SigningKey:
        """The key that signs; made if there is none."""
        self._read()
        return max(self._keys.values(), key=lambda key: key.written, default=None) or self._make()

    def find(self, key_id: str) -> SigningKey | None:
        """The key with this ID, as long as its file exists."""
        if self._directory is None:
            return self._keys.get(key_id)
        # The ID comes from a token that is not verified yet.
        if not _KEY_ID.fullmatch(key_id):
            return None
        if (self._directory / f"{key_id}.pem").exists() != (key_id in self._keys):
            self._read()
        return self._keys.get(key_id)

    def all(self) -> Mapping[str, SigningKey]:
        self._read()
        return self._keys

    def _read(self) -> None:
        """Take over what is in the directory."""
        if self._directory is None:
            return
        found = {path.stem: path for path in self._directory.glob("*.pem")} if self._directory.exists() else {}
        for gone in self._keys.keys() - found.keys():
            del self._keys[gone]
        for key_id, path in found.items():
            if key_id not in self._keys and (key := _load(path)) is not None:
                self._keys[key_id] = key

    def _make(self) -> SigningKey:
        # Slow to import, and most servers of tests issue no tokens.
        from cryptography.hazmat.primitives.asymmetric import ec

        private = ec.generate_private_key(ec.SECP256R1())
        key = SigningKey(_key_id(private), private)
        if self._directory is not None:
            path = self._directory / f"{key.id}.pem"
            self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            write_private(path, _pem(private))
            key = replace(key, written=path.stat().st_mtime)
        self._keys[key.id] = key
        return key


def _load(path: Path) -> SigningKey | None:
    """The key of a file whose name is the ID of that key."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    try:
        private = serialization.load_pem_private_key(path.read_bytes(), password=None)
        written = path.stat().st_mtime
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError) as error:
        _logger.error("%s is not used as a key of tokens: %s", path, error)
        return None
    if not isinstance(private, ec.EllipticCurvePrivateKey) or _key_id(private) != path.stem:
        _logger.error("%s is not used as a key of tokens: it is not named by its ID", path)
        return None
    return SigningKey(path.stem, private, written)


def _key_id(private: EllipticCurvePrivateKey) -> str:
    from cryptography.hazmat.primitives import serialization

    public = private.public_key().public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return sha256(public).hexdigest()[:32]


def _pem(private: EllipticCurvePrivateKey) -> str:
    from cryptography.hazmat.primitives import serialization

    return private.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode("ascii")
