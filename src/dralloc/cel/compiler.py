"""Compiles an expression and decides whether it may be used.

A new expression is checked as the API server does (length, syntax, types, cost), a stored one as the scheduler does,
which accepts everything that can run.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Final

from dralloc.cel import types
from dralloc.cel.attribute_reads import Reads, find_reads
from dralloc.cel.cost import CostEstimate, estimate_cost
from dralloc.cel.environment import Environment, new_environment, stored_environment
from dralloc.cel.errors import CelCompileError, CelTypeError, Problem
from dralloc.cel.literals import check_literals
from dralloc.cel.meter import COST_MAX, LENGTH_MAX_BYTES
from dralloc.cel.parser import parse
from dralloc.cel.syntax import Expression
from dralloc.cel.type_checker import TypedExpression, check_types
from dralloc.cel.types import Type, TypeKind
from dralloc.primitives.features import FeatureGates

# The estimate lacks the prices of some operations that do cost at runtime, but they are far below this factor.
_ESTIMATE_ERROR_MAX: Final = 10


class RefusalReason(Enum):
    """Why an expression is refused, in the API's categories."""

    TOO_LONG = "too long"
    INVALID = "invalid"
    TOO_COMPLEX = "too complex"


@dataclass(frozen=True, slots=True)
class RefusedExpression:
    fault: RefusalReason
    message: str


@dataclass(frozen=True)
class CheckedExpression:
    """A valid expression. Expensive properties are computed on demand."""

    typed: TypedExpression

    @property
    def text(self) -> str:
        return self.typed.parsed.text

    @property
    def root(self) -> Expression:
        return self.typed.parsed.root

    @property
    def result(self) -> Type:
        return self.typed.result

    @cached_property
    def cost(self) -> CostEstimate:
        return estimate_cost(self.typed)

    @property
    def cost_max(self) -> int:
        """Kubernetes' estimate of the highest cost of one evaluation."""
        return self.cost.max

    @cached_property
    def reads(self) -> Reads:
        """The attributes and capacities that it names."""
        return find_reads(self.typed.parsed.root)

    @property
    def stays_within_budget(self) -> bool:
        """True if it cannot exceed the limit at runtime, for a device within the API's limits."""
        return self.cost.is_upper_bound and self.cost.max * _ESTIMATE_ERROR_MAX <= COST_MAX


def environment_for(gates: FeatureGates) -> Environment:
    """Returns the API server's environment under these gates."""
    return new_environment(
        has_multiple_allocations="DRAConsumableCapacity" in gates,
        has_list_attributes="DRAListTypeAttributes" in gates,
    )


def compile_selector_expression(text: str, environment: Environment | None = None) -> CheckedExpression:
    """Compiles a selector without limits on length and cost. Raises `CelCompileError`."""
    return _compiled(text, environment or stored_environment(), is_selector=True)


def compile_derived_attribute(text: str, environment: Environment | None = None) -> CheckedExpression:
    """Compiles the expression of a derived attribute without limits on length and cost. Raises `CelCompileError`."""
    return _compiled(text, environment or stored_environment(), is_selector=False)


def check_selector(text: str, environment: Environment) -> CheckedExpression | RefusedExpression:
    """Returns the expression, or why it may not select devices."""
    if not environment.is_stored and len(text.encode("utf-8", "surrogatepass")) > LENGTH_MAX_BYTES:
        return RefusedExpression(RefusalReason.TOO_LONG, f"may not be more than {LENGTH_MAX_BYTES} bytes")
    try:
        checked = compile_selector_expression(text, environment)
    except CelCompileError as error:
        return RefusedExpression(RefusalReason.INVALID, f"compilation failed: {error}")
    if not environment.is_stored and checked.cost_max > COST_MAX:
        return RefusedExpression(
            RefusalReason.TOO_COMPLEX, f"too complex: it may cost {checked.cost_max}, more than {COST_MAX}"
        )
    return checked


def _compiled(text: str, environment: Environment, *, is_selector: bool) -> CheckedExpression:
    typed = check_types(parse(text), environment)
    check_literals(typed)
    unfit = _unfit_selector(typed) if is_selector else _unfit_attribute(typed)
    if unfit is not None:
        raise CelTypeError(text, [Problem(f"{unfit}, not {typed.result}", typed.root.offset)])
    return CheckedExpression(typed)


def _unfit_selector(typed: TypedExpression) -> str | None:
    """Returns the required result type of a selector, if the result has another."""
    if typed.result in (types.BOOL, typed.environment.attribute):
        return None
    return "a selector must return bool, or an attribute that is a bool"


def _unfit_attribute(typed: TypedExpression) -> str | None:
    """Returns the required type of a derived attribute, if the result has another."""
    result = typed.result
    allows_lists = typed.environment.allows_lists
    element = result.parameters[0] if allows_lists and result.kind is TypeKind.LIST else result
    if element in _ATTRIBUTE_TYPES:
        return None
    wanted = "a derived attribute must be a bool, int, string or semver"
    return f"{wanted}, or a list of them" if allows_lists else wanted


_ATTRIBUTE_TYPES: Final = (types.BOOL, types.INT, types.STRING, types.SEMVER, types.ANY, types.DYN)
