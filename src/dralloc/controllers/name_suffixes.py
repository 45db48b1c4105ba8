"""Names for what controllers make: they look random, and are the same whenever the same thing is made again.

So making something twice (the answer was lost, our copy was old, two of us were at it) ends in one object, and in
"already exists" for whoever comes second.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

# Those of Kubernetes: no vowels, so that no words come out, and nothing that is easily misread.
ALPHABET: Final = "bcdfghjklmnpqrstvwxz2456789"
SUFFIX_LENGTH: Final = 5
_SUFFIX_COUNT: Final = len(ALPHABET) ** SUFFIX_LENGTH
# Prime to the count, so that the first millions of serial numbers all give different suffixes.
_STRIDE: Final = 7_368_787

LENGTH_MAX: Final = 63


def suffix(seed: str, serial: int = 0) -> str:
    """Five characters for the serial number; different ones for every serial number of the same seed."""
    start = int.from_bytes(blake2b(seed.encode(), digest_size=8).digest())
    number = (start + serial * _STRIDE) % _SUFFIX_COUNT
    characters = []
    for _ in range(SUFFIX_LENGTH):
        number, digit = divmod(number, len(ALPHABET))
        characters.append(ALPHABET[digit])
    return "".join(characters)
