"""Errors in the vendor's part of a driver: arguments that do not exist or have no such value, and exceptions as text for those who run the driver."""

from __future__ import annotations

import difflib
import functools
import inspect
import sys
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, Final, ParamSpec, TypeVar

from dralloc.kube.device_parts import BadArgument
from dralloc.primitives.quantity import QuantityError

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")
Kind = TypeVar("Kind", bound=type[Any])

_OWN_CODE: Final = str(Path(__file__).parents[1])


class UnknownArgument(TypeError):
    """A function of the SDK has no argument of this name; the message lists those that it has."""


class InventoryFailed(Exception):
    """`devices` of the driver raised an exception; the message has its type and place."""


class MonitorFailed(Exception):
    """`monitor` of the driver raised an exception; the message has its type and place."""


def with_known_arguments(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """The function, which raises `UnknownArgument` for a keyword that it does not have."""
    known = _argument_names(function)

    @functools.wraps(function)
    def checked(*arguments: Parameters.args, **named: Parameters.kwargs) -> Result:
        _check_names(function.__name__, named, known)
        return function(*arguments, **named)

    return checked


def made_with_known_arguments(kind: Kind) -> Kind:
    """The class, which raises `UnknownArgument` for a keyword that it does not have."""
    initialize = kind.__init__
    known = _argument_names(initialize)

    @functools.wraps(initialize)
    def checked(self: Any, *arguments: Any, **named: Any) -> None:
        _check_names(kind.__name__, named, known)
        initialize(self, *arguments, **named)

    kind.__init__ = checked
    return kind


def text_of(error: BaseException) -> str:
    """An exception of the vendor's code with its type: the text alone may be empty, or only a key."""
    text = str(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def place_of(error: BaseException) -> str:
    """Where the exception comes from, in the vendor's code: file and line; empty if no frame is the vendor's."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if _is_vendors(frame.filename)]
    return f"{Path(frames[-1].filename).name}, line {frames[-1].lineno}" if frames else ""


def told(error: BaseException) -> str:
    """The exception in one line: place, type and text."""
    return ": ".join(filter(None, (place_of(error), text_of(error))))


def _argument_names(function: Callable[..., Any]) -> tuple[str, ...]:
    return tuple(name for name in inspect.signature(function).parameters if name != "self")


def _check_names(function: str, named: Iterable[str], known: tuple[str, ...]) -> None:
    for name in named:
        if name not in known:
            # The first word of a longer name, such as the field `validValues` of the API, or a misspelling.
            similar = [each for each in known if name.startswith(each)] or difflib.get_close_matches(name, known, n=1)
            hint = f"; did you mean {similar[0]!r}?" if similar else "."
            raise UnknownArgument(f"{function}() has no argument {name!r}{hint} It has: {', '.join(known)}")


def _is_vendors(filename: str) -> bool:
    if filename.startswith(("<frozen", _OWN_CODE)):
        return False
    # A driver that is installed in an image is below the interpreter's own directory, too.
    is_installed = not {"site-packages", "dist-packages"}.isdisjoint(Path(filename).parts)
    return is_installed or not filename.startswith(sys.base_prefix)


def _tell_argument(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None, *, otherwise: Callable[..., Any]
) -> None:
    if isinstance(error, UnknownArgument | BadArgument | QuantityError):
        sys.stderr.write(f"{told(error)}\n")
    else:
        otherwise(kind, error, trace)


# Devices are often described at the top of a program, before the driver runs: the message is all that its user needs.
sys.excepthook = functools.partial(_tell_argument, otherwise=sys.excepthook)
