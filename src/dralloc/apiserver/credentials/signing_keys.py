"""The keys that sign the tokens of service accounts, kept in the data directory.

The newest key signs; older ones still verify until every token that they signed has expired. A key that another process adds or
removes counts as soon as the directory is read again.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from dralloc.apiserver.credentials.private_file import write_private

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey, EllipticCurvePublicKey

ALGORITHM: Final = "ES256"
_KEY_ID: Final = re.compile(r"[0-9a-f]{32}")
# A signing key is replaced after this time.
ROTATE_AFTER: Final = timedelta(days=30)
# By so much the clocks of servers with a common directory may differ.
SKEW: Final = timedelta(minutes=5)

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SigningKey:
    id: str
    private: EllipticCurvePrivateKey
    created: datetime

    @property
    def public(self) -> EllipticCurvePublicKey:
        return self.private.public_key()

    def jwk(self) -> dict[str, Any]:
        """The public key as a JSON Web Key."""
        from jwt.algorithms import ECAlgorithm

        public = ECAlgorithm.to_jwk(self.public, as_dict=True)
        return {"use": "sig", "alg": ALGORITHM, "kid": self.id, **public}


class SigningKeys:
    """The keys of a directory; without one, a key that lives as long as this object. `retain` is how long a token may live."""

    def __init__(self, directory: Path | None, *, retain: timedelta) -> None:
        self._directory = directory
        self._retain = retain
        self._keys: dict[str, SigningKey] = {}

    def current(self, now: datetime) -> SigningKey:
        """The key that signs now; made if there is none or the newest one is old.

        A key that a clock which was ahead has made only verifies: it would sign, and could not be replaced, until that time.
        """
        self._read()
        made = (key for key in self._keys.values() if key.created <= now + SKEW)
        newest = max(made, key=lambda key: key.created, default=None)
        if newest is None or now - newest.created > ROTATE_AFTER:
            newest = self.rotate(now)
        return newest

    def rotate(self, now: datetime) -> SigningKey:
        """A new key that signs from now on. Keys whose tokens have all expired are removed."""
        self._read()
        newest = max((key.created for key in self._keys.values() if key.created <= now + SKEW), default=None)
        if newest is not None:
            for key in [key for key in self._keys.values() if key.created < newest and newest + self._retain < now]:
                self._remove(key)
        key = _new_key(now)
        self._keys[key.id] = key
        if self._directory is not None:
            self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            path = self._directory / f"{key.id}.pem"
            write_private(path, _pem(key.private))
            os.utime(path, (now.timestamp(), now.timestamp()))
        return key

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

    def _remove(self, key: SigningKey) -> None:
        del self._keys[key.id]
        if self._directory is not None:
            (self._directory / f"{key.id}.pem").unlink(missing_ok=True)


def _new_key(now: datetime) -> SigningKey:
    # Slow to import, and most servers of tests issue no tokens.
    from cryptography.hazmat.primitives.asymmetric import ec

    private = ec.generate_private_key(ec.SECP256R1())
    return SigningKey(_key_id(private), private, now)


def _load(path: Path) -> SigningKey | None:
    """The key of a file whose name is the ID of that key."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    try:
        private = serialization.load_pem_private_key(path.read_bytes(), password=None)
        created = datetime.fromtimestamp(path.stat().st_mtime).astimezone()
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError) as error:
        _logger.error("%s is not used as a key of tokens: %s", path, error)
        return None
    if not isinstance(private, ec.EllipticCurvePrivateKey) or _key_id(private) != path.stem:
        _logger.error("%s is not used as a key of tokens: it is not named by its ID", path)
        return None
    return SigningKey(path.stem, private, created)


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
