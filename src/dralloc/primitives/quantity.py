"""Exact quantities, parsed, printed, compared and added as Kubernetes does.

A quantity is an integer number of nanos; finer amounts are rounded away from zero when parsed, so that a nonzero
request never becomes zero. It also keeps its notation (`1Ki` and `1024` are equal and print differently) and, until
arithmetic changes it, the text it was parsed from where Kubernetes regards that text as canonical. It also records how
Kubernetes would store it in memory, because `int64_value`, which a few validation rules use, depends on that.
"""

from __future__ import annotations

import math
import re
from enum import Enum
from functools import lru_cache
from typing import Any, ClassVar, Final, NamedTuple, NoReturn

NANOS: Final = 10**9
NANOS_PER_MILLI: Final = 10**6
INT64_MAX: Final = 2**63 - 1
# A larger exponent is an attack on memory, not a real amount. Kubernetes has no such bound.
DIGITS_MAX: Final = 4000


class Format(Enum):
    DECIMAL_SI = "DecimalSI"
    BINARY_SI = "BinarySI"
    DECIMAL_EXPONENT = "DecimalExponent"


class QuantityError(ValueError):
    """A text or number that is not a quantity."""


class Quantity:
    """An exact amount. Equality, order and hash follow the number alone: 1Ki == 1024."""

    __slots__ = ("_storage", "_text", "format", "nanos")

    ZERO: ClassVar[Quantity]

    nanos: int
    format: Format
    _storage: _Storage
    _text: str | None

    def __init__(self, nanos: int, format: Format, storage: _Storage, text: str | None = None) -> None:
        set_field = object.__setattr__
        set_field(self, "nanos", nanos)
        set_field(self, "format", format)
        set_field(self, "_storage", storage)
        set_field(self, "_text", text)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"a quantity is immutable: cannot set {name}")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"a quantity is immutable: cannot delete {name}")

    def __reduce__(self) -> tuple[type[Quantity], tuple[int, Format, _Storage, str | None]]:
        return Quantity, (self.nanos, self.format, self._storage, self._text)

    # --- Making one ---------------------------------------------------------------------------------------

    @classmethod
    def parse(cls, source: str | int) -> Quantity:
        """Parses a text, or a JSON number given as text or as an integer."""
        text = source if isinstance(source, str) else _digits_of(source)
        return _parse_cached(text)

    @classmethod
    def of(cls, value: int, format: Format = Format.DECIMAL_SI) -> Quantity:
        """Returns a whole number of units."""
        return cls(value * NANOS, format, _Storage(0, _fits_int64(value)))

    @classmethod
    def of_milli(cls, milli: int, format: Format = Format.DECIMAL_SI) -> Quantity:
        """Returns a whole number of thousandths."""
        return cls(milli * NANOS_PER_MILLI, format, _Storage(-3, _fits_int64(milli)))

    # --- Reading it ---------------------------------------------------------------------------------------

    @property
    def value(self) -> int:
        """The number of units, rounded away from zero."""
        return _divide_away_from_zero(self.nanos, NANOS)

    @property
    def int64_value(self) -> int:
        """Returns the number of units as Kubernetes' `Value()` does.

        Numbers beyond 64 bits become 0 or wrap around, and a negative fraction may be rounded in the wrong direction.
        Only for rules that must agree with Kubernetes exactly; `value` is the true number.
        """
        return _value_of_small(self) if self._storage.is_small else _value_of_big(self)

    @property
    def small_integer(self) -> int | None:
        """Returns the number as Kubernetes' `AsInt64()` does, which CEL's `isInteger` and `asInteger` expose.

        It depends on the storage form: `2.0`, `1000m` and `1.5Gi` are whole numbers, and the result for them is None.
        """
        held_whole = self._storage.is_small and self._storage.scale >= 0
        return self.value if held_whole and _fits_int64(self.value) else None

    @property
    def approximate_float(self) -> float:
        """Returns the nearest double, within the precision that Kubernetes' `AsApproximateFloat64()` loses."""
        scale = self._storage.scale
        mantissa = self.nanos * 10**-scale // NANOS if scale < 0 else self.nanos // (NANOS * 10**scale)
        try:
            return float(mantissa) * float(f"1e{scale}")
        except OverflowError:
            return math.inf if mantissa > 0 else -math.inf

    @property
    def milli(self) -> int | None:
        """Returns the number of thousandths, or None if it is not exact or does not fit 64 bits."""
        milli, rest = divmod(self.nanos, NANOS_PER_MILLI)
        return milli if rest == 0 and _fits_int64(milli) else None

    @property
    def decimal_places(self) -> int:
        """Returns how many decimal places Kubernetes keeps: three for `1000m`, none for `1`."""
        return max(0, -self._storage.scale)

    @property
    def sign(self) -> int:
        return (self.nanos > 0) - (self.nanos < 0)

    def __str__(self) -> str:
        """Returns the canonical text."""
        if self._text is None:
            object.__setattr__(self, "_text", _canonical_text(self.nanos, self.format))
        assert self._text is not None
        return self._text

    @property
    def exact_text(self) -> str:
        """The canonical text, or all digits where Kubernetes' text loses the number: it prints 10^21 as 1."""
        text = self._text or str(self)
        if -_LARGE < self.nanos < _LARGE or Quantity.parse(text).nanos == self.nanos:
            return text
        whole, fraction = divmod(abs(self.nanos), NANOS)
        digits = f"{whole}.{fraction:09d}" if fraction else str(whole)
        return f"-{digits}" if self.nanos < 0 else digits

    def __repr__(self) -> str:
        return f"Quantity({str(self)!r})"

    # --- Comparing ----------------------------------------------------------------------------------------

    def __eq__(self, other: object) -> bool:
        return self.nanos == other.nanos if isinstance(other, Quantity) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.nanos)

    def __lt__(self, other: Quantity) -> bool:
        return self.nanos < other.nanos

    def __le__(self, other: Quantity) -> bool:
        return self.nanos <= other.nanos

    def __gt__(self, other: Quantity) -> bool:
        return self.nanos > other.nanos

    def __ge__(self, other: Quantity) -> bool:
        return self.nanos >= other.nanos

    def __bool__(self) -> bool:
        return self.nanos != 0

    # --- Calculating --------------------------------------------------------------------------------------

    def __add__(self, other: Quantity) -> Quantity:
        """Returns the exact sum, in the left operand's notation unless that is zero."""
        nanos = self.nanos + other.nanos
        return Quantity(nanos, self.format if self.nanos else other.format, _storage_of_sum(self, other, nanos))

    def __sub__(self, other: Quantity) -> Quantity:
        """Returns the exact difference, in the left operand's notation unless that is zero."""
        nanos = self.nanos - other.nanos
        return Quantity(nanos, self.format if self.nanos else other.format, _storage_of_sum(self, other, nanos))

    def __neg__(self) -> Quantity:
        return Quantity(-self.nanos, self.format, self._storage)


def quantity_like(model: Quantity, nanos: int) -> Quantity:
    """The amount in the notation of the model: 24Gi, not 25769803776, if the model is 40Gi."""
    return model + Quantity.parse(f"{nanos - model.nanos}n")


class _Storage(NamedTuple):
    """How Kubernetes stores a quantity: a mantissa of 64 bits (small) or of any size, scaled by a power of ten."""

    scale: int
    is_small: bool


# --- Reading text --------------------------------------------------------------------------------------------

_NUMBER: Final = re.compile(r"([+-]?)0*([0-9]*)(?:\.([0-9]*))?", re.ASCII)
_EXPONENT: Final = re.compile(r"[eE][+-]?[0-9]+", re.ASCII)

_DECIMAL_SUFFIXES: Final = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY_SUFFIXES: Final = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}


def _parse(text: str) -> Quantity:
    if len(text) > DIGITS_MAX:
        raise QuantityError(f"quantity is longer than {DIGITS_MAX} characters")
    match = _NUMBER.match(text)
    assert match is not None, "every part of the pattern is optional"
    number, suffix = match[0], text[match.end() :]
    whole, fraction = match[2] or "0", match[3] or ""
    if not text:
        raise QuantityError("a quantity must not be empty")
    if suffix in _BINARY_SUFFIXES:
        amount, format = _read_binary(whole, fraction, _BINARY_SUFFIXES[suffix]), Format.BINARY_SI
    elif suffix in _DECIMAL_SUFFIXES:
        amount, format = _read_decimal(whole, fraction, _DECIMAL_SUFFIXES[suffix]), Format.DECIMAL_SI
    elif _EXPONENT.fullmatch(suffix):
        amount, format = _read_decimal(whole, fraction, _read_exponent(suffix[1:])), Format.DECIMAL_EXPONENT
    else:
        raise QuantityError(
            f"{_shortened(text)!r} is not a quantity: write a number, then nothing or one of "
            "n u m k M G T P E Ki Mi Gi Ti Pi Ei or an exponent such as e3"
        )
    if not amount.storage.is_small and number in _WITHOUT_DIGITS:
        raise QuantityError(f"{_shortened(text)!r} is not a quantity: there is no number before the suffix")
    if format is Format.BINARY_SI and 0 < amount.nanos < NANOS:
        format = Format.DECIMAL_SI
    nanos = -amount.nanos if match[1] == "-" else amount.nanos
    return Quantity(nanos, format, amount.storage, text if amount.is_canonical else None)


# Devices of one model repeat the same few texts.
_parse_cached: Final = lru_cache(maxsize=16384)(_parse)

# Kubernetes reads these as zero in its fast path for small numbers, and rejects them elsewhere.
_WITHOUT_DIGITS: Final = frozenset({"", "+", "-", ".", "+.", "-."})


# Outside its fast path Kubernetes rounds to nanos.
_BIG: Final = _Storage(-9, False)


class _Amount(NamedTuple):
    """A magnitude, and whether its text is kept unchanged."""

    nanos: int
    storage: _Storage
    is_canonical: bool


def _read_decimal(whole: str, fraction: str, exponent: int) -> _Amount:
    digits = whole + fraction
    scale = exponent - len(fraction)
    is_small = len(digits) <= 18 and scale >= -9
    storage = _Storage(scale, True) if is_small else _BIG
    mantissa = int(digits)
    if mantissa == 0:
        return _Amount(0, storage, False)
    if len(digits) + scale > DIGITS_MAX:
        raise QuantityError(f"quantity is larger than 10^{DIGITS_MAX}")
    if scale >= -9:
        # Kubernetes' test for canonical text is a shortcut that lets `1.500` and `007` pass.
        is_canonical = is_small and scale % 3 == 0 and digits[0] != "0" and not digits.endswith("000")
        return _Amount(mantissa * 10 ** (scale + 9), storage, is_canonical)
    finer_digits = min(-scale - 9, len(digits))
    return _Amount(_divide_away_from_zero(mantissa, 10**finer_digits), _BIG, False)


def _read_binary(whole: str, fraction: str, exponent: int) -> _Amount:
    mantissa = int(whole + fraction)
    nanos = _divide_away_from_zero(mantissa * (NANOS << exponent), 10 ** len(fraction))
    # Kubernetes' estimate of what certainly fits 64 bits: 11 digits of Ki, 8 of Mi, 5 of Gi, 2 of Ti.
    is_small = not fraction and len(whole) <= 14 - exponent * 3 // 10
    if is_small:
        return _Amount(nanos, _Storage(0, True), mantissa % 8 != 0)
    if nanos > INT64_MAX * NANOS:
        return _Amount(INT64_MAX * NANOS, _Storage(0, False), False)
    return _Amount(nanos, _BIG, False)


def _read_exponent(text: str) -> int:
    exponent = int(text)
    if not _fits_int64(exponent):
        raise QuantityError(f"exponent {_shortened(text)} is too large")
    # Kubernetes keeps the low 32 bits of what it read.
    return _wrap(exponent, 32)


def _digits_of(number: Any) -> str:
    # Callers need not have types, and a float may be another amount than the one that was written.
    if not isinstance(number, int):
        kind = type(number).__name__
        raise QuantityError(f"{number!r} is a {kind}; use an int or a str such as '1500m' or '10Gi'")
    if number.bit_length() > 3 * DIGITS_MAX:
        raise QuantityError(f"quantity is larger than 10^{DIGITS_MAX}")
    return str(number)


# --- Printing ------------------------------------------------------------------------------------------------

# Kubernetes has no larger suffix and prints none: 10^21 prints as "1". `exact_text` does not.
_LARGE: Final = 10**21 * NANOS
_SUFFIX_OF_EXPONENT: Final = {exponent: suffix for suffix, exponent in _DECIMAL_SUFFIXES.items()}
_SUFFIX_OF_POWER: Final = {exponent // 10: suffix for suffix, exponent in _BINARY_SUFFIXES.items()}


def _canonical_text(nanos: int, format: Format) -> str:
    if nanos == 0:
        return "0"
    if format is Format.BINARY_SI and abs(nanos) >= 1024 * NANOS and nanos % NANOS == 0:
        mantissa, power = _strip_factors(nanos // NANOS, 1024)
        return f"{mantissa}{_SUFFIX_OF_POWER.get(power, '')}"
    mantissa, exponent = _strip_factors(nanos, 10)
    exponent -= 9
    mantissa *= 10 ** (exponent % 3)
    exponent -= exponent % 3
    if format is Format.DECIMAL_EXPONENT:
        return f"{mantissa}e{exponent}" if exponent else str(mantissa)
    return f"{mantissa}{_SUFFIX_OF_EXPONENT.get(exponent, '')}"


def _strip_factors(number: int, factor: int) -> tuple[int, int]:
    count = 0
    quotient, rest = divmod(number, factor)
    while rest == 0:
        number, count = quotient, count + 1
        quotient, rest = divmod(number, factor)
    return number, count


# --- 64 bits -------------------------------------------------------------------------------------------------

# Kubernetes multiplies by these powers of ten in one unchecked step, and by others digit by digit until it overflows.
_SCALES_THAT_WRAP: Final = frozenset({1, 2, 3, 6, 9})


def _value_of_small(quantity: Quantity) -> int:
    if _fits_int64(quantity.value):
        return quantity.value
    return _wrap(quantity.value, 64) if quantity._storage.scale in _SCALES_THAT_WRAP else 0


def _value_of_big(quantity: Quantity) -> int:
    places = -quantity._storage.scale
    if places <= 0:
        return _wrap(quantity.value, 64)
    mantissa = quantity.nanos * 10**places // NANOS
    # The fast path is meant for 64-bit mantissas, but Kubernetes takes it for every negative one.
    if places < 18 and mantissa < INT64_MAX:
        mantissa = _wrap(mantissa, 64)
    units, rest = divmod(abs(mantissa), 10**places)
    return _wrap((units if mantissa >= 0 else -units) + (rest != 0), 64)


def _storage_of_sum(left: Quantity, right: Quantity, nanos: int) -> _Storage:
    if left._storage.is_small and right._storage.is_small:
        if not right.nanos:
            return left._storage
        if not left.nanos:
            return right._storage
        scale = min(left._storage.scale, right._storage.scale)
        largest = max(abs(left.nanos), abs(right.nanos), abs(nanos))
        return _Storage(scale, largest <= INT64_MAX * 10 ** (scale + 9))
    return _Storage(min(left._storage.scale, right._storage.scale), False)


def _fits_int64(number: int) -> bool:
    return -INT64_MAX - 1 <= number <= INT64_MAX


def _wrap(number: int, bits: int) -> int:
    half = 1 << (bits - 1)
    return (number + half) % (1 << bits) - half


# --- Arithmetic and texts ------------------------------------------------------------------------------------


def _divide_away_from_zero(number: int, divisor: int) -> int:
    return -(-number // divisor) if number >= 0 else number // divisor


def _shortened(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:37]}..."


Quantity.ZERO = Quantity.of(0)
