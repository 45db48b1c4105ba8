"""Tokenizes text, and converts literal tokens to values."""

from __future__ import annotations

import math
import re
from typing import Final, NamedTuple

from dralloc.cel.errors import CelSyntaxError, Problem


class Token(NamedTuple):
    """`kind` is a name for tokens with variable text, and the text itself for all others."""

    kind: str
    text: str
    offset: int


IDENTIFIER: Final = "identifier"
ESCAPED_IDENTIFIER: Final = "escaped identifier"
INT: Final = "int"
UINT: Final = "uint"
DOUBLE: Final = "double"
STRING: Final = "string"
BYTES: Final = "bytes"
END: Final = "end of expression"

# `in` and the three constants are tokens of their own; not even a field can have their names.
_WORD_TOKENS: Final = frozenset({"in", "true", "false", "null"})

_ESCAPE: Final = r"""\\(?:[abfnrtv"'\\?`]|[0-3][0-7]{2}|[xX][0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8})"""
_STRING: Final = "|".join(
    (
        r'[rR]"""[\s\S]*?"""',
        r"[rR]'''[\s\S]*?'''",
        r'[rR]"[^"\n\r]*"',
        r"[rR]'[^'\n\r]*'",
        rf'"""(?:{_ESCAPE}|[^\\])*?"""',
        rf"'''(?:{_ESCAPE}|[^\\])*?'''",
        rf'"(?:[^\\"\n\r]++|{_ESCAPE})*+"',
        rf"'(?:[^\\'\n\r]++|{_ESCAPE})*+'",
    )
)
_TOKEN: Final = re.compile(
    r"(?:[\t \r\n\f]++|//[^\n]*+)*+"
    r"(?:(?P<operator>==|!=|<=|>=|&&|\|\||\.(?![0-9])|[-+*/%<>!?:,()\[\]{}])"
    rf"|(?P<string>{_STRING})"
    rf"|(?P<bytes>[bB](?:{_STRING}))"
    r"|(?P<identifier>[A-Za-z_][A-Za-z0-9_]*)"
    r"|(?P<double>[0-9]+(?:\.[0-9]+(?:[eE][+-]?[0-9]+)?|[eE][+-]?[0-9]+)|\.[0-9]+(?:[eE][+-]?[0-9]+)?)"
    r"|(?P<uint>(?:0x[0-9a-fA-F]+|[0-9]+)[uU])"
    r"|(?P<int>0x[0-9a-fA-F]+|[0-9]+)"
    r"|(?P<escaped>`[A-Za-z0-9_.\-/ ]+`)"
    r"|(?P<end>\Z)"
    r"|(?P<unreadable>[\s\S]))",
    re.ASCII,
)
_GROUP_KINDS: Final = {
    "bytes": BYTES,
    "string": STRING,
    "double": DOUBLE,
    "uint": UINT,
    "int": INT,
    "escaped": ESCAPED_IDENTIFIER,
}


def tokenize(text: str) -> list[Token]:
    """Returns the tokens without white space and comments; the last one is END."""
    tokens: list[Token] = []
    append, new_token = tokens.append, tuple.__new__
    for found in _TOKEN.finditer(text):
        group = found.lastgroup
        assert group is not None, "every alternative has a name"
        word = found[group]
        kind = word
        if group == "identifier":
            if word not in _WORD_TOKENS:
                kind = IDENTIFIER
        elif group == "end":
            append(Token(END, "", len(text)))
            break
        elif group == "unreadable":
            raise _unreadable(text, found.start(group))
        elif group != "operator":
            kind = _GROUP_KINDS[group]
        append(new_token(Token, (kind, word, found.end() - len(word))))
    return tokens


def _unreadable(text: str, offset: int) -> CelSyntaxError:
    character = text[offset]
    message = f"unexpected character {character!r}"
    if character in "\"'":
        message = "unterminated string literal, or invalid escape sequence in it"
    elif character in "&|=":
        message = f"unexpected {character!r}; the operators are &&, || and =="
    return CelSyntaxError(text, [Problem(f"syntax error: {message}", offset)])


def token_value(token: Token, sign: str = "") -> bool | int | float | str | bytes | None:
    """Returns the value of a literal token; None if there is no such value (and for `null`)."""
    match token.kind:
        case "string":
            return string_value(token.text)
        case "int":
            number = _whole_number(token.text)
            number = -number if sign else number
            return number if -(2**63) <= number < 2**63 else None
        case "true" | "false":
            return token.kind == "true"
        case "uint":
            number = _whole_number(token.text[:-1])
            return number if number < 2**64 else None
        case "double":
            value = float(sign + token.text)
            return None if math.isinf(value) else value
        case "bytes":
            return bytes_value(token.text)
        case _:
            return None


def _whole_number(text: str) -> int:
    """Returns the number; for more digits than any valid number has, some number that is far too large."""
    digits, base = (text[2:], 16) if text.startswith("0x") else (text, 10)
    significant = digits.lstrip("0")
    return int(significant or "0", base) if len(significant) <= 20 else 2**65


_SIMPLE_ESCAPES: Final = {
    "a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v",
    '"': '"', "'": "'", "\\": "\\", "?": "?", "`": "`",
}  # fmt: skip
_ESCAPE_PATTERN: Final = re.compile(
    r"\\(?:(?P<simple>[abfnrtv\"'\\?`])|(?P<octal>[0-3][0-7]{2})"
    r"|[xX](?P<byte>[0-9a-fA-F]{2})|u(?P<short>[0-9a-fA-F]{4})|U(?P<long>[0-9a-fA-F]{8}))",
    re.ASCII,
)


def string_value(token: str) -> str | None:
    """Returns the value of a string token; None if it names an invalid code point."""
    body, is_raw = _unquoted(token)
    if is_raw or "\\" not in body:
        return body
    pieces: list[str] = []
    position = 0
    for escape in _ESCAPE_PATTERN.finditer(body):
        code_point = _code_point(escape)
        if code_point is None:
            return None
        pieces += (body[position : escape.start()], code_point)
        position = escape.end()
    pieces.append(body[position:])
    return "".join(pieces)


def bytes_value(token: str) -> bytes | None:
    r"""Returns the value of a bytes token: text as UTF-8, `\x` and octal escapes as single bytes."""
    body, is_raw = _unquoted(token[1:])
    if is_raw or "\\" not in body:
        return body.encode("utf-8", "replace")
    pieces: list[bytes] = []
    position = 0
    for escape in _ESCAPE_PATTERN.finditer(body):
        code_point = _code_point(escape)
        if code_point is None:
            return None
        is_text = escape["short"] or escape["long"]
        pieces.append(body[position : escape.start()].encode("utf-8", "replace"))
        pieces.append(code_point.encode("utf-8" if is_text else "latin-1"))
        position = escape.end()
    pieces.append(body[position:].encode("utf-8", "replace"))
    return b"".join(pieces)


def _unquoted(token: str) -> tuple[str, bool]:
    """Returns the text between the quotes with normalized line ends, and whether it is raw."""
    if "\r" in token:
        token = token.replace("\r\n", "\n").replace("\r", "\n")
    is_raw = token[0] in "rR"
    if is_raw:
        token = token[1:]
    width = 3 if len(token) >= 6 and token[:3] in ('"""', "'''") else 1
    return token[width:-width], is_raw


def _code_point(escape: re.Match[str]) -> str | None:
    if simple := escape["simple"]:
        return _SIMPLE_ESCAPES[simple]
    if octal := escape["octal"]:
        return chr(int(octal, 8))
    number = int(escape["byte"] or escape["short"] or escape["long"], 16)
    if number > 0x10FFFF:
        return None
    # A lone surrogate is not a character; UTF-8 encoders replace it.
    return "\ufffd" if 0xD800 <= number <= 0xDFFF else chr(number)
