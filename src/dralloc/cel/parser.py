"""Parses text to a syntax tree, with macros expanded.

An operator-precedence parser with its own stack: every open bracket is a `Frame`, so that no nesting depth can exhaust
the interpreter's stack. Kubernetes' depth limits apply: it limits the nesting of grammar rules, and the number of
steps, operators and member accesses on one path.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final, NoReturn

from dralloc.cel import lexer
from dralloc.cel.errors import CelSyntaxError, Problem
from dralloc.cel.lexer import Token
from dralloc.cel.syntax import (
    AND,
    OPERATOR_FUNCTIONS,
    PRECEDENCE,
    PREFIX,
    RELATION,
    Expression,
    FieldEntry,
    MapEntry,
    ParsedExpression,
)
from dralloc.cel.tree_builder import LITERALS, PendingOperator, TreeBuilder

DEPTH_MAX: Final = 250
CODE_POINTS_MAX: Final = 100_000

RESERVED_WORDS: Final = frozenset({
    "as", "break", "const", "continue", "else", "false", "for", "function", "if", "import", "in", "let", "loop",
    "package", "namespace", "null", "return", "true", "var", "void", "while",
})  # fmt: skip


def parse(text: str) -> ParsedExpression:
    """Returns the tree of an expression. Raises `CelSyntaxError`."""
    if len(text) > CODE_POINTS_MAX:
        message = f"the expression has {len(text)} code points, more than {CODE_POINTS_MAX}"
        raise CelSyntaxError(text, [Problem(message)])
    return _Parser(text).run()


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = lexer.tokenize(text)
        self.position = 0
        self.frames = [Frame(FrameKind.WHOLE, 0)]
        # Only a text with this many tokens can contain a path that is too long; shorter ones need no count.
        self.builder = TreeBuilder(text, counts_heights=len(self.tokens) > DEPTH_MAX)

    def run(self) -> ParsedExpression:
        while True:
            self._read_operand()
            if self._read_after_operand():
                break
        root = self.frames[0].operands[0]
        if self.builder.height(root) > DEPTH_MAX:
            self._too_deep()
        return ParsedExpression(text=self.text, root=root, macros=self.builder.macros)

    # Operands.

    def _read_operand(self) -> None:
        """Parses prefixes and a literal, a name or an empty bracket; an open bracket is entered first."""
        while True:
            token = self._next()
            if token.kind in ("!", "-"):
                token = self._read_prefixes(token)
            kind = token.kind
            if kind == lexer.IDENTIFIER or kind == ".":
                is_complete = self._read_name(token)
            elif kind in LITERALS:
                self._push(self.builder.literal(token, "", token.offset))
                is_complete = True
            elif kind == "-":
                self._push(self.builder.literal(self._next(), "-", token.offset))
                is_complete = True
            elif kind == "(":
                self._open(FrameKind.PARENTHESES, token.offset)
                is_complete = False
            elif kind == "[":
                is_complete = self._open(FrameKind.LIST, token.offset)
            elif kind == "{":
                is_complete = self._open(FrameKind.MAP, token.offset)
            else:
                self._unexpected(token, "a value")
            if is_complete:
                return

    def _read_prefixes(self, first: Token) -> Token:
        """Consumes all signs of one sort; an even number cancels out. Returns the next token.

        A single minus directly before a number belongs to the number; then the minus is returned.
        """
        sign, count = first.kind, 1
        if sign == "-" and self._is_number_next():
            return first
        while self._take(sign):
            count += 1
        if count % 2:
            self.frames[-1].operators.append(PendingOperator(PREFIX, f"{sign}_", first.offset))
        token = self._next()
        if token.kind == "!" or (token.kind == "-" and not self._is_number_next()):
            self._unexpected(token, "a value")
        return token

    def _read_name(self, token: Token) -> bool:
        """Parses a name, a call or a message; False if its bracket was opened and an operand must follow."""
        dot = ""
        if token.kind == ".":
            dot, token = ".", self._next()
            if token.kind != lexer.IDENTIFIER:
                self._unexpected(token, "a name after '.'")
        follower = self._peek()
        if follower.kind in (".", "{") and (type_name := self._message_name()) is not None:
            return self._open(FrameKind.MESSAGE, self.tokens[self.position - 1].offset, name=dot + type_name)
        if token.text in RESERVED_WORDS:
            self.builder.fail(f"syntax error: {token.text!r} is a reserved word", token.offset)
        if follower.kind == "(":
            self.position += 1
            return self._open(FrameKind.ARGUMENTS, follower.offset, name=dot + token.text)
        self._push(self.builder.identifier(dot + token.text, token.offset))
        return True

    def _message_name(self) -> str | None:
        """Returns `a.b.c` if the name continues to a `{`, and consumes everything up to that brace."""
        position, names = self.position, [self.tokens[self.position - 1].text]
        while self.tokens[position].kind == "." and self.tokens[position + 1].kind == lexer.IDENTIFIER:
            names.append(self.tokens[position + 1].text)
            position += 2
        if self.tokens[position].kind != "{":
            return None
        self.position = position + 1
        return ".".join(names)

    # After an operand.

    def _read_after_operand(self) -> bool:
        """Parses members, closes brackets, and stops after an operator; True at the end of the text."""
        while True:
            token = self._next()
            kind = token.kind
            frame = self.frames[-1]
            if kind == ".":
                if not self._read_member(token):
                    return False
            elif kind == "[":
                name = "_[?_]" if self._take("?") else "_[_]"
                self._open(FrameKind.INDEX, token.offset, name=name, subject=frame.operands.pop())
                return False
            elif (precedence := PRECEDENCE.get(kind)) is not None:
                self._push_operator(frame, precedence, token)
                return False
            elif kind == "?":
                self._begin_conditional(frame, token)
                return False
            elif not self._close(token):
                return False
            elif kind == lexer.END:
                return True

    def _read_member(self, dot: Token) -> bool:
        """Parses `.name`, `.?name` or `.name(`; False if an argument must follow."""
        is_optional = self._take("?")
        token = self._next()
        name = self._field_name(token, "a field name after '.'")
        operand = self.frames[-1].operands.pop()
        if is_optional:
            self._push(self.builder.optional_select(operand, token, name, dot.offset))
        elif self._peek().kind == "(" and token.kind == lexer.IDENTIFIER:
            return self._open(FrameKind.ARGUMENTS, self._next().offset, name=name, subject=operand)
        else:
            self._push(self.builder.select(operand, name, dot.offset))
        return True

    def _field_name(self, token: Token, wanted: str) -> str:
        if token.kind == lexer.IDENTIFIER:
            return token.text
        if token.kind != lexer.ESCAPED_IDENTIFIER:
            self._unexpected(token, wanted)
        return token.text[1:-1]

    def _push_operator(self, frame: Frame, precedence: int, token: Token) -> None:
        # Equal logical operators are collected, to build one balanced tree.
        self._reduce(frame, precedence + 1 if precedence <= AND else precedence)
        frame.operators.append(PendingOperator(precedence, OPERATOR_FUNCTIONS[token.kind], token.offset))
        if max(frame.open_rules()) > DEPTH_MAX:
            self._too_deep()

    # Brackets.

    def _open(self, kind: FrameKind, offset: int, *, name: str = "", subject: Expression | None = None) -> bool:
        """Enters a bracket; True if it is empty, and closed at once."""
        outer = self.frames[-1]
        depths = (outer.expression_depth + 1, *outer.open_rules())
        frame = Frame(kind, offset, *depths, name=name, subject=subject)
        self.frames.append(frame)
        if kind not in HOLDS_ONE:
            closer = CLOSERS[kind]
            if self._peek().kind == "," and self.tokens[self.position + 1].kind == closer:
                # A lone comma is allowed, but not for arguments.
                self.position += kind is not FrameKind.ARGUMENTS
            if self._take(closer):
                self._finish_bracket(frame)
                return True
        self._check_depth(frame)
        self._begin_item(frame)
        return False

    def _begin_item(self, frame: Frame) -> None:
        """Parses what precedes the first expression of an element or entry."""
        frame.entry_is_optional = frame.kind in (FrameKind.LIST, FrameKind.MAP, FrameKind.MESSAGE) and self._take("?")
        if frame.kind is FrameKind.MESSAGE:
            frame.entry_name = self._field_name(self._next(), "a field name")
            colon = self._next()
            if colon.kind != ":":
                self._unexpected(colon, "':' after the field name")
            frame.entry_offset = colon.offset

    def _close(self, token: Token) -> bool:
        """Ends the innermost frame's expression with this token; False if another operand must follow."""
        while self.frames[-1].kind is FrameKind.ELSE:
            self._finish_conditional(self.frames[-1])
        frame = self.frames[-1]
        value = self._value(frame)
        if frame.kind is FrameKind.WHOLE:
            if token.kind != lexer.END:
                self._unexpected(token, "an operator or the end")
            frame.operands.append(value)
            return True
        if frame.kind is FrameKind.THEN:
            self._begin_else(frame, value, token)
            return False
        if frame.kind is FrameKind.MAP and frame.subject is None:
            if token.kind != ":":
                self._unexpected(token, "':' after the key")
            frame.subject, frame.entry_offset = value, token.offset
            return False
        return self._end_item(frame, value, token)

    def _end_item(self, frame: Frame, value: Expression, token: Token) -> bool:
        closer = CLOSERS[frame.kind]
        if token.kind != closer and (token.kind != "," or frame.kind in HOLDS_ONE):
            self._unexpected(token, f"{closer!r}")
        self._add_item(frame, value)
        # All but argument lists may end in a comma.
        if token.kind == "," and (frame.kind is FrameKind.ARGUMENTS or not self._take(closer)):
            self._begin_item(frame)
            return False
        self._finish_bracket(frame)
        return True

    def _add_item(self, frame: Frame, value: Expression) -> None:
        offset, is_optional = frame.entry_offset, frame.entry_is_optional
        if frame.kind is FrameKind.MAP:
            assert frame.subject is not None, "a map's value follows its key"
            frame.entries.append(self.builder.map_entry(frame.subject, value, offset, optional=is_optional))
            frame.subject = None
        elif frame.kind is FrameKind.MESSAGE:
            frame.fields.append(self.builder.field_entry(frame.entry_name, value, offset, optional=is_optional))
        else:
            if is_optional:
                frame.optional.add(len(frame.items))
            frame.items.append(value)

    def _finish_bracket(self, frame: Frame) -> None:
        """Leaves the frame; its contents become an operand outside."""
        self.frames.pop()
        builder, offset = self.builder, frame.offset
        match frame.kind:
            case FrameKind.PARENTHESES:
                self._push(frame.items[0])
            case FrameKind.LIST:
                self._push(builder.list_literal(frame.items, frame.optional, offset))
            case FrameKind.MAP:
                self._push(builder.map_literal(frame.entries, offset))
            case FrameKind.MESSAGE:
                self._push(builder.message(frame.name, frame.fields, offset))
            case FrameKind.INDEX:
                assert frame.subject is not None, "something is indexed"
                self._push(builder.step(frame.name, (frame.subject, frame.items[0]), offset))
            case _:
                self._push(builder.call(frame.name, frame.subject, tuple(frame.items), offset))

    # Conditionals.

    def _begin_conditional(self, frame: Frame, token: Token) -> None:
        if frame.kind is FrameKind.THEN:
            self._unexpected(token, "':' (a conditional inside a conditional needs parentheses)")
        condition = self._value(frame)
        depths = (frame.expression_depth, frame.relation_depth, frame.calculation_depth)
        self.frames.append(Frame(FrameKind.THEN, token.offset, *depths, subject=condition))

    def _begin_else(self, frame: Frame, value: Expression, token: Token) -> None:
        if token.kind != ":":
            self._unexpected(token, "':' and the other value of the conditional")
        self.frames.pop()
        depths = (frame.expression_depth + 1, frame.relation_depth, frame.calculation_depth)
        alternative = Frame(FrameKind.ELSE, frame.offset, *depths, subject=frame.subject, consequence=value)
        self._check_depth(alternative)
        self.frames.append(alternative)

    def _finish_conditional(self, frame: Frame) -> None:
        value = self._value(frame)
        self.frames.pop()
        assert frame.subject is not None, "a conditional has a condition"
        assert frame.consequence is not None, "a conditional has two values"
        self._push(self.builder.step("_?_:_", (frame.subject, frame.consequence, value), frame.offset))

    # Combining operators and operands.

    def _value(self, frame: Frame) -> Expression:
        """Returns the frame's expression with all its operators applied."""
        self._reduce(frame, 0)
        return frame.operands.pop()

    def _reduce(self, frame: Frame, precedence: int) -> None:
        """Applies the pending operators that bind at least as strongly."""
        operators, operands = frame.operators, frame.operands
        while operators and operators[-1].precedence >= precedence:
            if operators[-1].precedence <= AND:
                self._reduce_chain(frame)
                continue
            operator, right = operators.pop(), operands.pop()
            if operator.precedence == PREFIX:
                operands.append(self.builder.prefixed(operator, right))
            else:
                operands.append(self.builder.step(operator.function, (operands.pop(), right), operator.offset))

    def _reduce_chain(self, frame: Frame) -> None:
        """Makes one tree of all equal logical operators at the top of the stack."""
        operators, operands = frame.operators, frame.operands
        count = 1
        while count < len(operators) and operators[-1 - count].function == operators[-1].function:
            count += 1
        node = self.builder.chain(operators[-count:], operands[-count - 1 :])
        del operators[-count:], operands[-count - 1 :]
        operands.append(node)

    # Helpers.

    def _push(self, node: Expression) -> None:
        self.frames[-1].operands.append(node)

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

    def _is_number_next(self) -> bool:
        return self._peek().kind in (lexer.INT, lexer.DOUBLE)

    def _check_depth(self, frame: Frame) -> None:
        # Inside the frame one more relation and one more calculation begin.
        if max(frame.expression_depth, frame.relation_depth + 1, frame.calculation_depth + 1) > DEPTH_MAX:
            self._too_deep()

    def _too_deep(self) -> NoReturn:
        raise CelSyntaxError(self.text, [Problem(f"the expression nests more than {DEPTH_MAX} levels deep")])

    def _unexpected(self, token: Token, wanted: str) -> NoReturn:
        found = token.kind if token.kind == lexer.END else repr(token.text)
        self.builder.fail(f"syntax error: found {found} where {wanted} is expected", token.offset)


# --- Parser frames --------------------------------------------------------------------------------------------------
# What a parser has open: one frame for each bracket and each part of a conditional.


class FrameKind(Enum):
    """What a frame parses: the inside of a bracket, or a part of a conditional."""

    WHOLE = auto()
    PARENTHESES = auto()
    ARGUMENTS = auto()
    INDEX = auto()
    LIST = auto()
    MAP = auto()
    MESSAGE = auto()
    THEN = auto()
    ELSE = auto()


CLOSERS: Final = {
    FrameKind.PARENTHESES: ")",
    FrameKind.ARGUMENTS: ")",
    FrameKind.INDEX: "]",
    FrameKind.LIST: "]",
    FrameKind.MAP: "}",
    FrameKind.MESSAGE: "}",
}
HOLDS_ONE: Final = frozenset({FrameKind.PARENTHESES, FrameKind.INDEX})


@dataclass(slots=True)
class Frame:
    """One open bracket (or part of a conditional), and what was parsed inside it so far."""

    kind: FrameKind
    offset: int
    # Number of open grammar rules of each sort outside this frame.
    expression_depth: int = 1
    relation_depth: int = 0
    calculation_depth: int = 0
    # The name of the call or index operator, or the message's type name.
    name: str = ""
    # The call's target, the indexed value, the map entry's key, or the condition.
    subject: Expression | None = None
    consequence: Expression | None = None
    # Pending operands and operators.
    operands: list[Expression] = field(default_factory=list)
    operators: list[PendingOperator] = field(default_factory=list)
    # The comma-separated items parsed so far.
    items: list[Expression] = field(default_factory=list)
    entries: list[MapEntry] = field(default_factory=list)
    fields: list[FieldEntry] = field(default_factory=list)
    optional: set[int] = field(default_factory=set)
    entry_name: str = ""
    entry_offset: int = 0
    entry_is_optional: bool = False

    def open_rules(self) -> tuple[int, int]:
        """Returns how many relation and calculation rules are open at the next operand."""
        relation, calculation = self.relation_depth + 1, self.calculation_depth + 1
        for operator in reversed(self.operators):
            if operator.precedence < RELATION:
                break
            if operator.precedence == RELATION:
                relation += 1
            elif operator.precedence < PREFIX:
                calculation += 1
        return relation, calculation
