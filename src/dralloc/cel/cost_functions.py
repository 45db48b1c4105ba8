"""The highest cost of each function, and the size of its result.

There are two price lists: `price_of` for the libraries (it takes precedence), `standard_estimate` for CEL itself. All
other functions cost one unit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from dralloc.cel import types
from dralloc.cel.cost_sizes import ENDLESS, ONE, UNKNOWN, ZERO, Path, Size, declared_size, fixed, plus, scaled, times
from dralloc.cel.declarations_standard import COMPARABLE
from dralloc.cel.syntax import Call, Expression, Literal, LiteralKind
from dralloc.cel.types import Type, TypeKind

_TRAVERSAL: Final = 0.1
_PATTERN: Final = 0.25
_LIST: Final = 10
_CALL: Final = 1
_FORMAT_PATTERN_LENGTH: Final = 128
_FORMAT_SIZE_MAX: Final = 64
_AUTHORIZATION_CHECK: Final = 350_000


class CallEstimate(NamedTuple):
    """A call's highest cost and, if the result has a size, that size."""

    cost: int
    size: Size | None = None


@dataclass(slots=True)
class CallArguments:
    """A call and the known sizes of its arguments; None if unknown."""

    node: Call
    types: Mapping[int, Type]
    costs: tuple[int, ...]
    sizes: tuple[Size | None, ...]
    target_size: Size | None
    target_path: Path

    @property
    def has_target(self) -> bool:
        return self.node.target is not None

    @property
    def count(self) -> int:
        return len(self.costs)

    @property
    def target(self) -> Size:
        return self.target_size or UNKNOWN

    @property
    def target_type(self) -> Type:
        assert self.node.target is not None, "only asked for methods"
        return self.types[self.node.target.id]

    def size(self, position: int) -> Size:
        return self.sizes[position] or UNKNOWN

    def type(self, position: int) -> Type:
        return self.types[self.node.arguments[position].id]

    def argument(self, position: int) -> Expression:
        return self.node.arguments[position]


Price = Callable[[CallArguments], CallEstimate | None]


def price_of(function: str, overload: str, arguments: CallArguments) -> CallEstimate | None:
    """Returns the price in the libraries' lists, without the arguments; None if it is in none of them."""
    by_overload = _BY_OVERLOAD.get(overload)
    if by_overload is not None:
        return by_overload(arguments)
    if function in ("containsIP", "containsCIDR"):
        return _contains_price(function, overload, arguments)
    by_function = _BY_FUNCTION.get(function)
    return None if by_function is None else by_function(arguments)


def standard_estimate(overload: str, arguments: CallArguments) -> CallEstimate:
    """Returns the price of CEL's own functions, including the arguments."""
    standard = _STANDARD.get(overload)
    if standard is not None:
        estimate = standard(arguments)
        if estimate is not None:
            return estimate
    return CallEstimate(plus(_CALL, *arguments.costs))


# Lists and sets.


def _allocating(factor: float, size: Size) -> CallEstimate:
    return CallEstimate(plus(scaled(size.max, factor), _CALL, _LIST), size)


def _slice_price(arguments: CallArguments) -> CallEstimate:
    start = _literal_number(arguments.argument(0), 0)
    end = _literal_number(arguments.argument(1), arguments.target.max)
    return _allocating(1, fixed((end - start) % 2**64))


def _flatten_price(arguments: CallArguments) -> CallEstimate:
    depth = _literal_number(arguments.argument(0), ENDLESS) if arguments.count else 1
    return _allocating(float(depth), arguments.target)


def _sort_price(element: str, keys_of: Callable[[CallArguments], Size]) -> Price:
    factor = 2.0 + (_TRAVERSAL if element in ("string", "bytes") else 0)
    return lambda arguments: _allocating(factor, keys_of(arguments).times(keys_of(arguments)))


def _sets_price(factor: float) -> Price:
    def price(arguments: CallArguments) -> CallEstimate:
        pairs = arguments.size(0).times(arguments.size(1))
        return CallEstimate(plus(scaled(pairs.max, factor), _CALL))

    return price


def _literal_number(node: Expression, otherwise: int) -> int:
    """Returns the literal number; a negative one counts as 0."""
    if isinstance(node, Literal) and node.kind is LiteralKind.INT:
        assert isinstance(node.value, int), "an int literal holds an int"
        return max(node.value, 0)
    return otherwise


def _list_traversal_price(arguments: CallArguments) -> CallEstimate | None:
    """The price of visiting each element once; a non-list is a string."""
    if not arguments.has_target:
        return None
    parameters = arguments.target_type.parameters
    if not parameters:
        return CallEstimate(scaled(arguments.target.max, _TRAVERSAL))
    element = 1
    if parameters[0].kind in (TypeKind.STRING, TypeKind.BYTES):
        size = declared_size(arguments.target_path.extended("@items")) or UNKNOWN
        element = plus(element, scaled(size.max, _TRAVERSAL))
    return CallEstimate(times(arguments.target.max, element))


def _includes_price(arguments: CallArguments) -> CallEstimate | None:
    """The price of one comparison for each element of what may be a list, even if its type does not say so."""
    if arguments.has_target and not arguments.target_type.parameters:
        return CallEstimate(arguments.target.max)
    return _list_traversal_price(arguments)


# Strings.


def _text_price(arguments: CallArguments) -> CallEstimate | None:
    if not arguments.has_target:
        return None
    return CallEstimate(scaled(arguments.target.max, _TRAVERSAL), arguments.target)


def _url_price(arguments: CallArguments) -> CallEstimate | None:
    if arguments.count != 1:
        return None
    return CallEstimate(scaled(arguments.size(0).max, _TRAVERSAL), arguments.size(0))


def _replace_price(arguments: CallArguments) -> CallEstimate | None:
    if not arguments.has_target or arguments.count < 2:
        return None
    text, replaced, replacement = arguments.target, arguments.size(0), arguments.size(1)
    count_max, kept_max = _longest_replacement(text, replaced, replacement)
    count_min, kept_min = _shortest_replacement(text, replaced, replacement)
    size = Size(count_min, count_max).times(replacement) + Size(kept_min, kept_max)
    return CallEstimate(scaled(text.max, 2 * _TRAVERSAL), size)


def _longest_replacement(text: Size, replaced: Size, replacement: Size) -> tuple[int, int]:
    """Returns how often the replacement can appear, and how much of the text can remain."""
    if replaced.min == 0:
        return plus(text.max, 1), text.max
    if replacement.max <= replaced.min:
        return 0, text.max
    return min(math.ceil(float(text.max) / float(replaced.min)), ENDLESS), 0


def _shortest_replacement(text: Size, replaced: Size, replacement: Size) -> tuple[int, int]:
    if replaced.max == 0:
        return plus(text.min, 1), text.min
    if replaced.max <= replacement.min:
        return 0, text.min
    return min(math.ceil(float(text.min) / float(replaced.max)), ENDLESS), 0


def _split_price(arguments: CallArguments) -> CallEstimate | None:
    if not arguments.has_target:
        return None
    parts_max = arguments.target.max
    limit = arguments.argument(1) if arguments.count > 1 else None
    if isinstance(limit, Literal) and isinstance(limit.value, int):
        # A negative limit means none, and is read as an unsigned number.
        parts_max = limit.value % 2**64
    return CallEstimate(scaled(arguments.target.max, 2 * _TRAVERSAL), Size(0, parts_max))


def _join_price(arguments: CallArguments) -> CallEstimate | None:
    if not arguments.has_target:
        return None
    parts, size = arguments.target, ZERO
    if arguments.target_type.parameters:
        size = parts.times(declared_size(arguments.target_path.extended("@items")) or UNKNOWN)
    if arguments.count:
        separators = Size(max(parts.min - 1, 0), max(parts.max - 1, 0))
        size = size + arguments.size(0).times(separators)
    return CallEstimate(scaled(size.max, _TRAVERSAL), size)


def _find_price(arguments: CallArguments) -> CallEstimate | None:
    if not arguments.has_target or not arguments.count:
        return None
    text = scaled((arguments.target + ONE).max, _TRAVERSAL)
    pattern = scaled(arguments.size(0).max, _PATTERN)
    return CallEstimate(times(text, pattern), Size(0, arguments.target.max))


# Addresses, formats, authorization.


def _contains_price(function: str, overload: str, arguments: CallArguments) -> CallEstimate | None:
    """The price of comparing addresses of at most 16 bytes, after parsing the text if one is given."""
    if not arguments.has_target or not arguments.count:
        return None
    cost = scaled(32, _TRAVERSAL)
    if function == "containsCIDR":
        cost = plus(cost, scaled(16, _TRAVERSAL), 1)
    if overload in ("cidr_contains_ip_string", "cidr_contains_cidr_string"):
        cost = plus(cost, scaled(arguments.size(0).max, _TRAVERSAL))
    return CallEstimate(cost)


def _parse_price(arguments: CallArguments) -> CallEstimate:
    """The price of parsing a text; a method of the same name is only a lookup."""
    return CallEstimate(_CALL if arguments.has_target else scaled(arguments.size(0).max, _TRAVERSAL))


def _validate_price(arguments: CallArguments) -> CallEstimate | None:
    if not arguments.has_target:
        return None
    text = scaled(arguments.size(0).max, _TRAVERSAL)
    return CallEstimate(scaled(text, _FORMAT_PATTERN_LENGTH * _PATTERN))


def _selector_price(arguments: CallArguments) -> CallEstimate | None:
    if arguments.count != 1:
        return None
    text = arguments.size(0).max
    requirements = scaled(scaled(text, 0.5), 50.0)
    return CallEstimate(plus(_LIST, scaled(text, _TRAVERSAL), requirements))


def _equality_price(arguments: CallArguments) -> CallEstimate | None:
    """Kubernetes' own types have a price for `==`, but none for `!=`."""
    left, right = arguments.type(0), arguments.type(1)
    if left != right:
        return None
    if left in _COMPARED_AT_ONCE:
        return CallEstimate(_CALL)
    if left == types.NAMED_FORMAT:
        return CallEstimate(scaled(_FORMAT_SIZE_MAX, _TRAVERSAL))
    if left == types.URL:
        # The right operand's size is used for both.
        return CallEstimate(scaled((arguments.sizes[1] or ONE).max, _TRAVERSAL))
    return None


_COMPARED_AT_ONCE: Final = (types.IP, types.CIDR, types.QUANTITY, types.SEMVER)


# CEL itself.


def _to_bytes(arguments: CallArguments) -> CallEstimate:
    size = arguments.size(0)
    return CallEstimate(plus(scaled(size.max, _TRAVERSAL), *arguments.costs), Size(size.min, size.max * 4 % 2**64))


def _to_text(arguments: CallArguments) -> CallEstimate:
    size = arguments.size(0)
    return CallEstimate(plus(scaled(size.max, _TRAVERSAL), *arguments.costs), Size(size.min // 4, size.max))


def _quote(arguments: CallArguments) -> CallEstimate:
    size = arguments.size(0)
    quoted = Size((size.min + 2) % 2**64, (size.max * 2 + 2) % 2**64)
    return CallEstimate(plus(scaled(size.max, _TRAVERSAL), *arguments.costs), quoted)


def _affix(arguments: CallArguments) -> CallEstimate:
    return CallEstimate(plus(scaled(arguments.size(0).max, _TRAVERSAL), *arguments.costs))


def _matches(arguments: CallArguments) -> CallEstimate | None:
    if not arguments.has_target:
        return None
    text = scaled((arguments.target + ONE).max, _TRAVERSAL)
    return CallEstimate(plus(times(text, scaled(arguments.size(0).max, _PATTERN)), *arguments.costs))


def _contains(arguments: CallArguments) -> CallEstimate:
    text, part = scaled(arguments.target.max, _TRAVERSAL), scaled(arguments.size(0).max, _TRAVERSAL)
    return CallEstimate(plus(times(text, part), *arguments.costs))


def _logical(arguments: CallArguments) -> CallEstimate:
    return CallEstimate(plus(*arguments.costs))


def _conditional(arguments: CallArguments) -> CallEstimate:
    condition, yes, no = arguments.costs
    return CallEstimate(plus(condition, max(yes, no)), arguments.size(1).union(arguments.size(2)))


def _add_text(arguments: CallArguments) -> CallEstimate:
    size = arguments.size(0) + arguments.size(1)
    return CallEstimate(plus(scaled(size.max, _TRAVERSAL), *arguments.costs), size)


def _compare(arguments: CallArguments) -> CallEstimate:
    shorter = min(arguments.size(0).max, arguments.size(1).max)
    return CallEstimate(plus(scaled(shorter, _TRAVERSAL), *arguments.costs))


_BY_OVERLOAD: Final[Mapping[str, Price]] = {
    "list_slice": _slice_price,
    "list_flatten": _flatten_price,
    "list_flatten_int": _flatten_price,
    "lists_range": lambda arguments: _allocating(1, fixed(_literal_number(arguments.argument(0), ENDLESS))),
    "list_reverse": lambda arguments: _allocating(1, arguments.target),
    "list_distinct": lambda arguments: _allocating(2.0, arguments.target.times(arguments.target)),
    "list_sets_contains_list": _sets_price(1),
    "list_sets_intersects_list": _sets_price(1),
    "list_sets_equivalent_list": _sets_price(2),
    **{f"list_{element}_sort": _sort_price(element, lambda arguments: arguments.target) for element in COMPARABLE},
    **{
        f"list_{element}_sortByAssociatedKeys": _sort_price(element, lambda arguments: arguments.size(0))
        for element in COMPARABLE
    },
}

_BY_FUNCTION: Final[Mapping[str, Price]] = {
    **dict.fromkeys(("isSorted", "sum", "max", "min", "indexOf", "lastIndexOf"), _list_traversal_price),
    "includes": _includes_price,
    **dict.fromkeys(("lowerAscii", "upperAscii", "substring", "trim"), _text_price),
    "url": _url_price,
    "replace": _replace_price,
    "split": _split_price,
    "join": _join_price,
    **dict.fromkeys(("find", "findAll"), _find_price),
    **dict.fromkeys(("ip", "isIP", "cidr", "isCIDR", "quantity", "isQuantity", "semver", "isSemver"), _parse_price),
    "ip.isCanonical": lambda arguments: CallEstimate(scaled(arguments.size(0).max, 2 * _TRAVERSAL)),
    "validate": _validate_price,
    "check": lambda _: CallEstimate(_AUTHORIZATION_CHECK),
    **dict.fromkeys(("fieldSelector", "labelSelector"), _selector_price),
    "_==_": _equality_price,
}

_STANDARD: Final[Mapping[str, Price]] = {
    "string_format": lambda arguments: CallEstimate(plus(scaled(arguments.target.max, _TRAVERSAL), *arguments.costs)),
    "string_to_bytes": _to_bytes,
    "bytes_to_string": _to_text,
    "strings_quote": _quote,
    **dict.fromkeys(("starts_with_string", "ends_with_string"), _affix),
    "in_list": lambda arguments: CallEstimate(plus(scaled(arguments.size(1).max, 1), *arguments.costs)),
    "matches_string": _matches,
    "contains_string": _contains,
    **dict.fromkeys(("logical_or", "logical_and"), _logical),
    "conditional": _conditional,
    **dict.fromkeys(("add_string", "add_bytes"), _add_text),
    "add_list": lambda arguments: CallEstimate(plus(_CALL, *arguments.costs), arguments.size(0) + arguments.size(1)),
    **{
        f"{relation}_{kind}": _compare
        for relation in ("less", "less_equals", "greater", "greater_equals")
        for kind in ("string", "bytes")
    },
    **dict.fromkeys(("equals", "not_equals"), _compare),
}
