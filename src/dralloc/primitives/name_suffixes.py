"""Suffixes for names of created objects: random-looking, but the same whenever the same object is created again.

A repeated creation (after a lost answer, from a stale cache, by a second leader) therefore fails with AlreadyExists
instead of creating a second object.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

# The alphabet of Kubernetes: no vowels, which would form words, and no characters that are easily misread.
ALPHABET: Final = "bcdfghjklmnpqrstvwxz2456789"
SUFFIX_LENGTH: Final = 5
_SUFFIX_COUNT: Final = len(ALPHABET) ** SUFFIX_LENGTH
# Coprime to the number of suffixes, so that serial numbers do not repeat a suffix before all are used.
_STRIDE: Final = 7_368_787

LENGTH_MAX: Final = 63


def suffix(seed: str, serial: int = 0) -> str:
    """Five characters, different for every serial number of the same seed."""
    start = int.from_bytes(blake2b(seed.encode(), digest_size=8).digest())
    number = (start + serial * _STRIDE) % _SUFFIX_COUNT
    characters = []
    for _ in range(SUFFIX_LENGTH):
        number, digit = divmod(number, len(ALPHABET))
        characters.append(ALPHABET[digit])
    return "".join(characters)
