"""Selectors taken apart: the conditions that all must hold, and the attributes that they read."""

from __future__ import annotations

from dralloc.cel.errors import CelError
from dralloc.cel.library.text_format import go_quoted
from dralloc.cel.printer import print_node
from dralloc.cel.program import Selector, compile_selector
from dralloc.cel.syntax import Call, Expression, Identifier, Literal, Select, logical_terms
from dralloc.devices.slices import DeviceShape

_AND = "_&&_"


def conditions(expression: str) -> tuple[str, ...]:
    """The conditions that the expression joins by `&&`; the expression alone where it does not compile."""
    selector = compiled(expression)
    if selector is None:
        return (expression,)
    parsed = selector.checked.typed.parsed
    terms = _terms(parsed.root)
    return tuple(print_node(term, parsed.macros) for term in terms) if len(terms) > 1 else (expression,)


def required_drivers(expression: str) -> tuple[str, ...]:
    """The drivers that a condition of the expression names, as in `device.driver == "gpu.example.com"`."""
    selector = compiled(expression)
    terms = _terms(selector.checked.typed.parsed.root) if selector is not None else ()
    return tuple(driver for term in terms if (driver := _driver_in(term)) is not None)


def _terms(root: Expression) -> tuple[Expression, ...]:
    return logical_terms(root) if isinstance(root, Call) and root.function == _AND else (root,)


def _driver_in(term: Expression) -> str | None:
    match term:
        case Call(
            function="_==_",
            arguments=(Select(operand=Identifier(name="device"), field="driver"), Literal(value=str(name))),
        ):
            return name
        case Call(
            function="_==_",
            arguments=(Literal(value=str(name)), Select(operand=Identifier(name="device"), field="driver")),
        ):
            return name
        case _:
            return None


def joined(parts: tuple[str, ...]) -> str:
    """The expression that holds where all of these do."""
    return " && ".join(part if len(parts) == 1 else _parenthesized(part) for part in parts)


def _parenthesized(condition: str) -> str:
    selector = compiled(condition)
    if selector is not None:
        root = selector.checked.typed.parsed.root
        if not isinstance(root, Call) or root.function not in ("_||_", "_?_:_"):
            return condition
    return f"({condition})"


def guarded(expression: str, attributes: list[tuple[str, str]], capacities: list[tuple[str, str]]) -> str:
    """The expression, asked only of devices that have these attributes and capacities."""
    checks = [
        f"{go_quoted(name)} in device.{field}[{go_quoted(domain)}]"
        for field, names in (("attributes", attributes), ("capacity", capacities))
        for domain, name in names
    ]
    return joined((*checks, *conditions(expression)))


def compiled(expression: str) -> Selector | None:
    try:
        return compile_selector(expression)
    except CelError:
        return None


def holds(expression: str, shape: DeviceShape) -> bool | None:
    """Whether the expression holds for a device; None where it fails."""
    selector = compiled(expression)
    if selector is None:
        return None
    try:
        return selector.matches(shape.view)
    except CelError:
        return None
