"""Text to syntax tree, macros expanded.

An operator-precedence parser with its own stack: every open bracket is a `_Frame`, so that no input, however
deep, can exhaust the interpreter's stack. What Kubernetes refuses as too deep is refused here too; its parser
counts in two ways (how deep rules of the grammar nest, and how many steps, operators and member accesses lie
on one path), and so does this one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final, NoReturn

from dralloc.cel import declarations_kubernetes, declarations_standard, lexer
from dralloc.cel.errors import CelSyntaxError, Problem
from dralloc.cel.lexer import Token
from dralloc.cel.macros import MacroCall, MacroError, expand_macro
from dralloc.cel.syntax import (
    Call,
    Expression,
    FieldEntry,
    Identifier,
    ListLiteral,
    Literal,
    LiteralKind,
    MapEntry,
    MapLiteral,
    MessageLiteral,
    ParsedExpression,
    Select,
)

DEPTH_MAX: Final = 250
CODE_POINTS_MAX: Final = 100_000

RESERVED_WORDS: Final = frozenset(
    [
        "as",
        "break",
        "const",
        "continue",
        "else",
        "false",
        "for",
        "function",
        "if",
        "import",
        "in",
        "let",
        "loop",
        "package",
        "namespace",
        "null",
        "return",
        "true",
        "var",
        "void",
        "while",
    ]
)

_OR, _AND, _RELATION, _ADDITION, _MULTIPLICATION, _PREFIX = 1, 2, 3, 4, 5, 6
_PRECEDENCE: Final = {
    "||": _OR,
    "&&": _AND,
    **dict.fromkeys(("<", "<=", ">=", ">", "==", "!=", "in"), _RELATION),
    **dict.fromkeys(("+", "-"), _ADDITION),
    **dict.fromkeys(("*", "/", "%"), _MULTIPLICATION),
}
OPERATOR_FUNCTIONS: Final = {text: "@in" if text == "in" else f"_{text}_" for text in _PRECEDENCE}


class _Kind(Enum):
    """What a frame reads: the inside of a bracket, or a part of a conditional."""

    WHOLE = auto()
    PARENTHESES = auto()
    ARGUMENTS = auto()
    INDEX = auto()
    LIST = auto()
    MAP = auto()
    MESSAGE = auto()
    THEN = auto()
    ELSE = auto()


_CLOSERS: Final = {
    _Kind.PARENTHESES: ")",
    _Kind.ARGUMENTS: ")",
    _Kind.INDEX: "]",
    _Kind.LIST: "]",
    _Kind.MAP: "}",
    _Kind.MESSAGE: "}",
}


def parse(text: str) -> ParsedExpression:
    """The tree of an expression. Raises `CelSyntaxError`."""
    if len(text) > CODE_POINTS_MAX:
        message = f"the expression has {len(text)} code points, more than {CODE_POINTS_MAX}"
        raise CelSyntaxError(text, [Problem(message)])
    return _Parser(text).run()


@dataclass(slots=True)
class _Operator:
    precedence: int
    function: str
    offset: int


@dataclass(slots=True)
class _Frame:
    """One open bracket (or part of a conditional) and what has been read inside it so far."""

    kind: _Kind
    offset: int
    # How many of the grammar's rules of each sort are open outside of this frame.
    expression_depth: int = 1
    relation_depth: int = 0
    calculation_depth: int = 0
    operands: list[Expression] = field(default_factory=list)
    operators: list[_Operator] = field(default_factory=list)
    # The call's name or the message's type name.
    name: str = ""
    # The call's target, what is indexed, the map entry's key, or the conditional's condition.
    subject: Expression | None = None
    consequence: Expression | None = None
    items: list[Expression] = field(default_factory=list)
    entries: list[MapEntry] = field(default_factory=list)
    fields: list[FieldEntry] = field(default_factory=list)
    optional: set[int] = field(default_factory=set)
    entry_name: str = ""
    entry_offset: int = 0
    entry_is_optional: bool = False


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = lexer.tokenize(text)
        self.position = 0
        self.ids = 0
        self.macros: dict[int, Call] = {}
        self.frames = [_Frame(_Kind.WHOLE, 0)]
        # Only a text with this many tokens can hold a path that is too long; shorter ones need not count.
        self.heights: dict[int, int] | None = {} if len(self.tokens) > DEPTH_MAX else None

    def run(self) -> ParsedExpression:
        while True:
            self._read_operand()
            if self._read_after_operand():
                break
        root = self.frames[0].operands[0]
        if self.heights and self.heights.get(root.id, 0) > DEPTH_MAX:
            self._too_deep()
        return ParsedExpression(text=self.text, root=root, macros=self.macros)

    # What can start an operand.

    def _read_operand(self) -> None:
        """Reads prefixes and a literal, a name or an empty bracket; an open bracket is entered first."""
        while True:
            token = self._next()
            kind = token.kind
            frame = self.frames[-1]
            if kind == "!" or kind == "-":
                token = self._read_prefixes(token)
                kind = token.kind
            if kind == lexer.IDENTIFIER or kind == ".":
                if self._read_name(token):
                    return
            elif kind in _LITERALS:
                frame.operands.append(self._literal(token, sign=""))
                return
            elif kind == "-":
                number = self._next()
                frame.operands.append(self._literal(number, sign="-", offset=token.offset))
                return
            elif kind == "(":
                self._open(_Kind.PARENTHESES, token.offset)
                self._check_depth(self.frames[-1])
            elif kind == "[":
                self._open(_Kind.LIST, token.offset)
                if self._begin_item():
                    return
            elif kind == "{":
                self._open(_Kind.MAP, token.offset)
                if self._begin_item():
                    return
            else:
                self._unexpected(token, "a value")

    def _read_prefixes(self, first: Token) -> Token:
        """Takes all signs of one sort; an even number of them means nothing. Returns the token after them.

        One minus directly before a number belongs to the number; then it is returned.
        """
        sign, count, token = first.kind, 1, self._peek()
        if sign == "-" and token.kind in (lexer.INT, lexer.DOUBLE):
            return first
        while token.kind == sign:
            count += 1
            self.position += 1
            token = self._peek()
        self.position += 1
        if count % 2:
            self.frames[-1].operators.append(_Operator(_PREFIX, f"{sign}_", first.offset))
        if token.kind == "!" or (token.kind == "-" and self._peek().kind not in (lexer.INT, lexer.DOUBLE)):
            self._unexpected(token, "a value")
        return token

    def _read_name(self, token: Token) -> bool:
        """A name, a call or a message; False when its bracket was opened and an operand must follow."""
        dot = ""
        if token.kind == ".":
            dot, token = ".", self._next()
            if token.kind != lexer.IDENTIFIER:
                self._unexpected(token, "a name after '.'")
        follower = self._peek()
        if follower.kind in (".", "{") and (type_name := self._message_name()) is not None:
            self._open(_Kind.MESSAGE, self.tokens[self.position - 1].offset, name=dot + type_name)
            return self._begin_item()
        if token.text in RESERVED_WORDS:
            self._fail(f"syntax error: {token.text!r} is a reserved word", token.offset)
        if follower.kind == "(":
            self.position += 1
            self._open(_Kind.ARGUMENTS, follower.offset, name=dot + token.text)
            return self._begin_item()
        identifier = Identifier(id=self._id(), offset=token.offset, name=dot + token.text)
        self.frames[-1].operands.append(identifier)
        return True

    def _message_name(self) -> str | None:
        """`a.b.c` when the name just read goes on to a `{`; then everything up to that brace is taken."""
        position, names = self.position, [self.tokens[self.position - 1].text]
        while self.tokens[position].kind == "." and self.tokens[position + 1].kind == lexer.IDENTIFIER:
            names.append(self.tokens[position + 1].text)
            position += 2
        if self.tokens[position].kind != "{":
            return None
        self.position = position + 1
        return ".".join(names)

    # What can follow an operand.

    def _read_after_operand(self) -> bool:
        """Reads members, closes brackets, and stops after an operator; True at the end of the text."""
        while True:
            token = self._next()
            kind = token.kind
            frame = self.frames[-1]
            if kind == ".":
                if not self._read_member(token):
                    return False
            elif kind == "[":
                is_optional = self._take("?")
                operand = frame.operands.pop()
                self._open(_Kind.INDEX, token.offset, name="_[?_]" if is_optional else "_[_]", subject=operand)
                self._check_depth(self.frames[-1])
                return False
            elif (precedence := _PRECEDENCE.get(kind)) is not None:
                self._push_operator(frame, precedence, token)
                return False
            elif kind == "?":
                self._begin_conditional(frame, token)
                return False
            elif self._close(token):
                if token.kind == lexer.END:
                    return True
            else:
                return False

    def _read_member(self, dot: Token) -> bool:
        """`.name`, `.?name` or `.name(`; False when an argument must follow."""
        is_optional = self._take("?")
        token = self._next()
        if token.kind not in (lexer.IDENTIFIER, lexer.ESCAPED_IDENTIFIER):
            self._unexpected(token, "a field name after '.'")
        is_escaped = token.kind == lexer.ESCAPED_IDENTIFIER
        name = token.text[1:-1] if is_escaped else token.text
        frame = self.frames[-1]
        operand = frame.operands.pop()
        if is_optional:
            key = Literal(id=self._id(), offset=token.offset, kind=LiteralKind.STRING, value=name)
            self._finish(Call(id=self._id(), offset=dot.offset, function="_?._", arguments=(operand, key)), operand)
            return True
        if self._peek().kind == "(" and not is_escaped:
            parenthesis = self._next()
            self._open(_Kind.ARGUMENTS, parenthesis.offset, name=name, subject=operand)
            return self._begin_item()
        self._finish(Select(id=self._id(), offset=dot.offset, operand=operand, field=name), operand)
        return True

    def _push_operator(self, frame: _Frame, precedence: int, token: Token) -> None:
        # Equal logical operators wait for each other, to be made a balanced tree in one go.
        self._reduce(frame, precedence + 1 if precedence <= _AND else precedence)
        frame.operators.append(_Operator(precedence, OPERATOR_FUNCTIONS[token.kind], token.offset))
        relation, calculation = self._open_rules(frame)
        if relation > DEPTH_MAX or calculation > DEPTH_MAX:
            self._too_deep()

    def _begin_conditional(self, frame: _Frame, token: Token) -> None:
        if frame.kind is _Kind.THEN:
            self._unexpected(token, "':' (a conditional inside a conditional needs parentheses)")
        condition = self._value(frame)
        outer = (frame.expression_depth, frame.relation_depth, frame.calculation_depth)
        self.frames.append(_Frame(_Kind.THEN, token.offset, *outer, subject=condition))

    # Brackets.

    def _open(self, kind: _Kind, offset: int, *, name: str = "", subject: Expression | None = None) -> None:
        outer = self.frames[-1]
        relation, calculation = self._open_rules(outer)
        depth = outer.expression_depth + 1
        self.frames.append(_Frame(kind, offset, depth, relation, calculation, name=name, subject=subject))

    def _open_rules(self, frame: _Frame) -> tuple[int, int]:
        """How many relation and calculation rules are open where the frame's next operand begins."""
        relation, calculation = frame.relation_depth + 1, frame.calculation_depth + 1
        for operator in reversed(frame.operators):
            if operator.precedence < _RELATION:
                break
            if operator.precedence == _RELATION:
                relation += 1
            elif operator.precedence < _PREFIX:
                calculation += 1
        return relation, calculation

    def _begin_item(self) -> bool:
        """At the start of an argument, element or entry: True when the bracket closes instead, empty."""
        frame = self.frames[-1]
        token = self._peek()
        closer = _CLOSERS[frame.kind]
        if token.kind == "," and frame.kind is not _Kind.ARGUMENTS and self.tokens[self.position + 1].kind == closer:
            self.position += 1
            token = self._peek()
        if token.kind == closer:
            self.position += 1
            self.frames.pop()
            self._finish_bracket(frame)
            return True
        self._check_depth(frame)
        frame.entry_is_optional = frame.kind is not _Kind.ARGUMENTS and self._take("?")
        if frame.kind is _Kind.MESSAGE:
            self._read_field_name(frame)
        return False

    def _read_field_name(self, frame: _Frame) -> None:
        token = self._next()
        if token.kind == lexer.IDENTIFIER:
            name = token.text
        elif token.kind == lexer.ESCAPED_IDENTIFIER:
            name = token.text[1:-1]
        else:
            self._unexpected(token, "a field name")
        colon = self._next()
        if colon.kind != ":":
            self._unexpected(colon, "':' after the field name")
        frame.entry_name, frame.entry_offset = name, colon.offset

    def _close(self, token: Token) -> bool:
        """Ends the innermost frame's expression with this token; False when another operand must follow."""
        while self.frames[-1].kind is _Kind.ELSE:
            self._finish_conditional(self.frames[-1])
        frame = self.frames[-1]
        value = self._value(frame)
        kind = token.kind
        if frame.kind is _Kind.WHOLE:
            if kind != lexer.END:
                self._unexpected(token, "an operator or the end")
            frame.operands.append(value)
            return True
        if frame.kind is _Kind.THEN:
            return self._begin_else(frame, value, token)
        if frame.kind is _Kind.MAP and frame.subject is None:
            if kind != ":":
                self._unexpected(token, "':' after the key")
            frame.subject, frame.entry_offset = value, token.offset
            return False
        if kind not in (",", _CLOSERS[frame.kind]) or (kind == "," and frame.kind in (_Kind.PARENTHESES, _Kind.INDEX)):
            self._unexpected(token, f"{_CLOSERS[frame.kind]!r}")
        self._add_item(frame, value)
        if kind == ",":
            return self._continue_bracket(frame)
        self.frames.pop()
        self._finish_bracket(frame)
        return True

    def _continue_bracket(self, frame: _Frame) -> bool:
        """After a comma; True when it was the last one, which all but argument lists may have."""
        if frame.kind is _Kind.ARGUMENTS or self._peek().kind != _CLOSERS[frame.kind]:
            frame.entry_is_optional = frame.kind is not _Kind.ARGUMENTS and self._take("?")
            if frame.kind is _Kind.MESSAGE:
                self._read_field_name(frame)
            return False
        self.position += 1
        self.frames.pop()
        self._finish_bracket(frame)
        return True

    def _add_item(self, frame: _Frame, value: Expression) -> None:
        if frame.kind is _Kind.MAP:
            assert frame.subject is not None, "a map's value follows its key"
            frame.entries.append(
                MapEntry(
                    id=self._id(),
                    offset=frame.entry_offset,
                    key=frame.subject,
                    value=value,
                    optional=frame.entry_is_optional,
                )
            )
            frame.subject = None
        elif frame.kind is _Kind.MESSAGE:
            frame.fields.append(
                FieldEntry(
                    id=self._id(),
                    offset=frame.entry_offset,
                    field=frame.entry_name,
                    value=value,
                    optional=frame.entry_is_optional,
                )
            )
        else:
            if frame.entry_is_optional:
                frame.optional.add(len(frame.items))
            frame.items.append(value)

    def _finish_bracket(self, frame: _Frame) -> None:
        items = tuple(frame.items)
        match frame.kind:
            case _Kind.PARENTHESES:
                self.frames[-1].operands.append(items[0])
            case _Kind.LIST:
                node = ListLiteral(
                    id=self._id(), offset=frame.offset, elements=items, optional=frozenset(frame.optional)
                )
                self._finish(node, *items, counts=False)
            case _Kind.MAP:
                entries = tuple(frame.entries)
                parts = [part for entry in entries for part in (entry.key, entry.value)]
                self._finish(MapLiteral(id=self._id(), offset=frame.offset, entries=entries), *parts, counts=False)
            case _Kind.MESSAGE:
                message = MessageLiteral(
                    id=self._id(), offset=frame.offset, type_name=frame.name, entries=tuple(frame.fields)
                )
                self._finish(message, *(entry.value for entry in frame.fields), counts=False)
            case _Kind.INDEX:
                assert frame.subject is not None, "something is indexed"
                call = Call(
                    id=self._id(), offset=frame.offset, function=frame.name, arguments=(frame.subject, items[0])
                )
                self._finish(call, frame.subject, items[0])
            case _:
                self._finish_call(frame, items)

    def _finish_call(self, frame: _Frame, arguments: tuple[Expression, ...]) -> None:
        call = Call(id=self._id(), offset=frame.offset, function=frame.name, target=frame.subject, arguments=arguments)
        node: Expression = _without_namespace(call)
        try:
            expanded = expand_macro(MacroCall(call, self._id))
        except MacroError as misuse:
            self._fail(misuse.message, misuse.offset)
        if expanded is not None:
            node = expanded
            self.macros[expanded.id] = call
        if frame.subject is None:
            self._finish(node, *arguments, counts=False)
        else:
            self._finish(node, frame.subject, *arguments)

    # Conditionals.

    def _begin_else(self, frame: _Frame, value: Expression, token: Token) -> bool:
        if token.kind != ":":
            self._unexpected(token, "':' and the other value of the conditional")
        self.frames.pop()
        depths = (frame.expression_depth + 1, frame.relation_depth, frame.calculation_depth)
        alternative = _Frame(_Kind.ELSE, frame.offset, *depths, subject=frame.subject, consequence=value)
        self._check_depth(alternative)
        self.frames.append(alternative)
        return False

    def _finish_conditional(self, frame: _Frame) -> None:
        value = self._value(frame)
        self.frames.pop()
        assert frame.subject is not None, "a conditional has a condition"
        assert frame.consequence is not None, "a conditional has two values"
        arguments = (frame.subject, frame.consequence, value)
        self._finish(Call(id=self._id(), offset=frame.offset, function="_?_:_", arguments=arguments), *arguments)

    # Putting operators and operands together.

    def _value(self, frame: _Frame) -> Expression:
        """The frame's expression, all its operators applied."""
        self._reduce(frame, 0)
        return frame.operands.pop()

    def _reduce(self, frame: _Frame, precedence: int) -> None:
        """Applies the waiting operators that bind at least as strongly."""
        operators, operands = frame.operators, frame.operands
        while operators and operators[-1].precedence >= precedence:
            operator = operators[-1]
            if operator.precedence <= _AND:
                self._reduce_logical(frame)
                continue
            operators.pop()
            right = operands.pop()
            if operator.precedence == _PREFIX:
                node = Call(id=self._id(), offset=operator.offset, function=operator.function, arguments=(right,))
                self._finish(node, right, counts=False)
            else:
                left = operands.pop()
                node = Call(id=self._id(), offset=operator.offset, function=operator.function, arguments=(left, right))
                self._finish(node, left, right)

    def _reduce_logical(self, frame: _Frame) -> None:
        """Makes one balanced tree of all equal logical operators on top."""
        function = frame.operators[-1].function
        count = 0
        while count < len(frame.operators) and frame.operators[-1 - count].function == function:
            count += 1
        operators = frame.operators[-count:]
        operands = frame.operands[-count - 1 :]
        del frame.operators[-count:], frame.operands[-count - 1 :]
        self._finish(self._balanced(operators, operands), *operands, counts=False)

    def _balanced(self, operators: list[_Operator], operands: list[Expression]) -> Expression:
        # Recursion is as deep as the logarithm of the number of operators.
        if not operators:
            return operands[0]
        middle = len(operators) // 2
        left = self._balanced(operators[:middle], operands[: middle + 1])
        right = self._balanced(operators[middle + 1 :], operands[middle + 1 :])
        operator = operators[middle]
        return Call(id=self._id(), offset=operator.offset, function=operator.function, arguments=(left, right))

    def _finish(self, node: Expression, *parts: Expression, counts: bool = True) -> None:
        """Puts a finished node where operands wait, and notes how long the longest path below it is."""
        self.frames[-1].operands.append(node)
        heights = self.heights
        if heights is not None:
            heights[node.id] = counts + max((heights.get(part.id, 0) for part in parts), default=0)

    # Literals.

    def _literal(self, token: Token, *, sign: str, offset: int | None = None) -> Literal:
        kind = _LITERALS[token.kind]
        value = _literal_value(token, sign)
        if value is None and kind is not LiteralKind.NULL:
            self._fail(f"syntax error: {sign}{token.text} is not a valid {kind.value} literal", token.offset)
        return Literal(id=self._id(), offset=token.offset if offset is None else offset, kind=kind, value=value)

    # Small things.

    def _id(self) -> int:
        self.ids += 1
        return self.ids

    def _peek(self) -> Token:
        return self.tokens[self.position]

    def _next(self) -> Token:
        token = self.tokens[self.position]
        self.position += 1
        return token

    def _take(self, kind: str) -> bool:
        if self.tokens[self.position].kind != kind:
            return False
        self.position += 1
        return True

    def _check_depth(self, frame: _Frame) -> None:
        # Inside the frame one more relation and one more calculation begin.
        if max(frame.expression_depth, frame.relation_depth + 1, frame.calculation_depth + 1) > DEPTH_MAX:
            self._too_deep()

    def _too_deep(self) -> NoReturn:
        raise CelSyntaxError(self.text, [Problem(f"the expression nests more than {DEPTH_MAX} levels deep")])

    def _unexpected(self, token: Token, wanted: str) -> NoReturn:
        found = token.kind if token.kind == lexer.END else repr(token.text)
        self._fail(f"syntax error: found {found} where {wanted} is expected", token.offset)

    def _fail(self, message: str, offset: int) -> NoReturn:
        raise CelSyntaxError(self.text, [Problem(message, offset)])


# Functions whose name has a namespace, as `lists.range`: what stands before the last dot is no value.
_NAMESPACED: Final = frozenset(
    name
    for table in (*declarations_standard.TABLES, *declarations_kubernetes.TABLES)
    for name in table
    if name[0].isalpha() and "." in name
)
_NAMESPACES: Final = frozenset(name.rpartition(".")[0] for name in _NAMESPACED)


def _without_namespace(call: Call) -> Call:
    """The call of `lists.range` itself, instead of a method `range` of `lists`; other calls as they are."""
    target = call.target
    if not isinstance(target, Identifier):
        return call
    namespace = target.name.removeprefix(".")
    if namespace not in _NAMESPACES or (name := f"{namespace}.{call.function}") not in _NAMESPACED:
        return call
    return Call(id=call.id, offset=call.offset, function=name, arguments=call.arguments)


_LITERALS: Final = {
    lexer.INT: LiteralKind.INT,
    lexer.UINT: LiteralKind.UINT,
    lexer.DOUBLE: LiteralKind.DOUBLE,
    lexer.STRING: LiteralKind.STRING,
    lexer.BYTES: LiteralKind.BYTES,
    "true": LiteralKind.BOOL,
    "false": LiteralKind.BOOL,
    "null": LiteralKind.NULL,
}


def _literal_value(token: Token, sign: str) -> bool | int | float | str | bytes | None:
    """What a literal token stands for; None when there is no such value (and for `null`)."""
    match token.kind:
        case lexer.STRING:
            return lexer.string_value(token.text)
        case lexer.INT:
            number = _whole_number(token.text)
            number = -number if sign else number
            return number if -(2**63) <= number < 2**63 else None
        case "true" | "false":
            return token.kind == "true"
        case lexer.UINT:
            number = _whole_number(token.text[:-1])
            return number if number < 2**64 else None
        case lexer.DOUBLE:
            value = float(sign + token.text)
            return None if value in (float("inf"), float("-inf")) else value
        case lexer.BYTES:
            return lexer.bytes_value(token.text)
        case _:
            return None


def _whole_number(text: str) -> int:
    """The number; some number that is far too large when there are more digits than any valid one has."""
    digits, base = (text[2:], 16) if text.startswith("0x") else (text, 10)
    significant = digits.lstrip("0")
    return int(significant or "0", base) if len(significant) <= 20 else 2**65
