"""Agreement with Google's C++ implementation on parsing and types of standard CEL.

It lacks Kubernetes' types and libraries, so only plain CEL expressions are compared, without features that Kubernetes
configures differently: lists of mixed types, and comparisons across number types.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from cel_expr_python import cel
from cel_expr_python.ext import ext_optional
from hypothesis import given
from hypothesis import strategies as st

from dralloc.cel import types
from dralloc.cel.environment import stored_environment
from dralloc.cel.errors import CelError, CelSyntaxError
from dralloc.cel.parser import parse
from dralloc.cel.type_checker import check_types

OURS = replace(
    stored_environment(),
    variables={
        "i": types.INT,
        "s": types.STRING,
        "b": types.BOOL,
        "l": types.list_of(types.INT),
        "m": types.map_of(types.STRING, types.INT),
        "d": types.DYN,
        **{name: types.type_of(named) for name, named in (("int", types.INT), ("string", types.STRING))},
    },
)
THEIRS = cel.NewEnv(
    extensions=[ext_optional.ExtOptional()],
    variables={
        "i": cel.Type.INT,
        "s": cel.Type.STRING,
        "b": cel.Type.BOOL,
        "l": cel.Type.List(cel.Type.INT),
        "m": cel.Type.Map(cel.Type.STRING, cel.Type.INT),
        "d": cel.Type.DYN,
    },
)

LEAVES = (
    "1", "-2", "3u", "0x1f", "1.5", "1e3", "true", "null", '"t"', r"r'\d'", "b'ab'", "i", "s", "b", "l", "m", "d", "x", "int", "[]", "{}",
)  # fmt: skip
TEMPLATES = (
    "({0})", "!({0})", "-({0})", "{0} && {1}", "{0} || {1}", "{0} == {1}", "{0} != {1}", "string({0}) < string({1})", "int({0}) >= int({1})", "{0} + {1}",
    "{0} - {1}", "{0} * {1}", "{0} / {1}", "{0} % {1}", "{0} in {1}", "{0} ? {1} : {2}", "({0})[{1}]", "({0}).a", "has(({0}).a)", "({0}).?a", "({0})[?{1}]", "optional.of({0})", "({0}).orValue({1})",
    "[{0}]", "{{'k': {0}}}", "size({0})", "({0}).size()", "type({0})", "dyn({0})", "int({0})", "string({0})", "double({0})",
    "uint({0})", "bool({0})", "bytes({0})", "({0}).all(x, {1})", "({0}).exists(x, {1})", "({0}).exists_one(x, {1})", "({0}).map(x, {1})",
    "({0}).map(x, {1}, {2})", "({0}).filter(x, {1})", "({0}).contains({1})", "({0}).startsWith({1})", "({0}).matches({1})", "f({0})",
)  # fmt: skip


def standard_texts() -> st.SearchStrategy[str]:
    return st.recursive(
        st.sampled_from(LEAVES),
        lambda inner: st.builds(str.format, st.sampled_from(TEMPLATES), inner, inner, inner),
        max_leaves=6,
    )


@pytest.mark.slow
@pytest.mark.fuzz
@given(standard_texts())
def test_types_agree(text: str) -> None:
    assert _our_type(text) == _their_type(text)


def _our_type(text: str) -> str | None:
    try:
        return _plain(str(check_types(parse(text), OURS).result))
    except CelError:
        return None


def _their_type(text: str) -> str | None:
    try:
        return _plain(THEIRS.compile(text).return_type().name())
    except RuntimeError:
        return None


def _plain(name: str) -> str:
    """A type's name without the ways to write it: capitals, brackets, and what the type of a type is a type of."""
    plain = name.lower().replace("<", "(").replace(">", ")").replace(" ", "").replace("null_type", "null")
    return "type" if plain.startswith("type") else plain


PIECES = st.sampled_from(
    [*LEAVES, *"()[]{}.,?:!-+*/%<>=&|'\"\\# \n", "&&", "||", "==", "for", "//", '"""', "é", ".5", "0x"]
)


@pytest.mark.slow
@pytest.mark.fuzz
@given(st.lists(PIECES, max_size=8).map("".join))
def test_acceptance_agrees(text: str) -> None:
    assert _we_read(text) == _they_read(text)


def _we_read(text: str) -> bool:
    try:
        parse(text)
    except CelSyntaxError:
        return False
    return True


def _they_read(text: str) -> bool:
    try:
        THEIRS.compile(text, disable_check=True)
    except RuntimeError:
        return False
    return True
