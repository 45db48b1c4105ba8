"""Reference pages from docstrings: the public names of modules, with signatures, fields and methods.

A module says in `__all__` which names are public. Fields of values are described by the comment above them in the source.
"""

from __future__ import annotations

import ast
import enum
import importlib
import inspect
import itertools
import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, Final

import msgspec

LINE_LENGTH_MAX: Final = 100


def python_page(title: str, introduction: Iterable[str], modules: Sequence[str]) -> Iterator[str]:
    """Yields the lines of a page: the title, the introduction, a table of names, and a section for each name.

    Names of several modules are shown with their module.
    """
    yield f"# {title}"
    yield from introduction
    yield ""
    found = [
        (f"{module}.{name}" if len(modules) > 1 else name, value)
        for module in modules
        for name, value in public_names(module)
    ]
    yield "| name | what it is |"
    yield "|---|---|"
    for name, value in found:
        yield f"| [`{heading(name, value)}`](#{anchor(heading(name, value))}) | {first_sentence(value)} |"
    yield ""
    for name, value in found:
        yield from section(name, value)


def heading(name: str, value: Any) -> str:
    """A class and a function may differ only in case, which anchors do not show."""
    return f"class {name}" if inspect.isclass(value) else f"{name}()"


def public_names(module: str) -> Iterator[tuple[str, Any]]:
    """Yields the names in `__all__` of a module with their values; constants, which have no docstring, are left out."""
    loaded = importlib.import_module(module)
    for name in sorted(loaded.__all__, key=str.casefold):
        value = getattr(loaded, name)
        if inspect.isclass(value) or inspect.isroutine(value):
            yield name, value


def undocumented(module: str) -> list[str]:
    """The public names of a module, and public methods of its classes, that have no docstring of their own."""
    missing = []
    for name, value in public_names(module):
        if not own_docstring(value):
            missing.append(f"{module}.{name}")
        if inspect.isclass(value):
            missing += [f"{module}.{name}.{each}" for each, method in methods(value) if not own_docstring(method)]
    return missing


def own_docstring(value: Any) -> str:
    """The docstring that a person wrote; the one that `dataclass` generates is only the signature again."""
    text = inspect.cleandoc(value.__doc__ or "")
    is_generated = inspect.isclass(value) and text.startswith(f"{value.__name__}(")
    return "" if is_generated else text


def first_sentence(value: Any) -> str:
    first = " ".join(own_docstring(value).split("\n\n")[0].split())
    return re.split(r"(?<=[.:;]) ", first)[0].rstrip(".:;").replace("|", "\\|") + "."


def anchor(text: str) -> str:
    return re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")


def section(name: str, value: Any) -> Iterator[str]:
    yield f"## {heading(name, value)}"
    yield ""
    short = name.rpartition(".")[2]
    if inspect.isclass(value) and issubclass(value, enum.Enum):
        yield from paragraphs(value)
        yield from (f"- `{short}.{member.name}`" for member in value)
        yield ""
        return
    if not (inspect.isclass(value) and issubclass(value, BaseException)):
        yield from code(signature(short, value))
    yield from paragraphs(value)
    if inspect.isclass(value):
        yield from field_table(value)
        for each, method in methods(value):
            yield from method_section(name, each, method)


def code(lines: Iterable[str]) -> Iterator[str]:
    yield "```python not-run: a reference"
    yield from lines
    yield "```"
    yield ""


def paragraphs(value: Any) -> Iterator[str]:
    """The docstring; paragraphs in Python become blocks."""
    text = own_docstring(value)
    parts = re.split(r"\n\s*\n", text) if text else []
    for is_python, group in itertools.groupby(parts, is_code):
        if is_python:
            yield from code(["\n\n".join(map(textwrap.dedent, group))])
        else:
            for paragraph in group:
                yield from (paragraph, "")


def is_code(paragraph: str) -> bool:
    """True if a paragraph of a docstring is Python, not a sentence or a word."""
    try:
        tree = ast.parse(textwrap.dedent(paragraph))
    except SyntaxError:
        return False
    return any(isinstance(node, ast.Call | ast.Assign | ast.FunctionDef | ast.ClassDef) for node in ast.walk(tree))


def methods(value: type) -> Iterator[tuple[str, Any]]:
    """Yields the public methods and properties that the class itself defines."""
    if issubclass(value, enum.Enum):
        return
    for name, member in vars(value).items():
        function = member.__func__ if isinstance(member, classmethod | staticmethod) else member
        if not name.startswith("_") and (inspect.isfunction(function) or isinstance(function, property)):
            yield name, function


def method_section(owner: str, name: str, method: Any) -> Iterator[str]:
    if isinstance(method, property):
        kind = annotation(method.fget.__annotations__.get("return", "")) if method.fget else ""
        yield from (f"### {owner}.{name}", "")
        yield from (f"A property: `{kind}`.", "")
    else:
        yield from (f"### {owner}.{name}()", "")
        yield from code(signature(name, method))
    yield from paragraphs(method)


# --- Signatures -----------------------------------------------------------------------------------------------------


def signature(name: str, value: Any) -> Iterator[str]:
    """The call of a function or class as Python, on one line if it fits."""
    prefix = "async " if inspect.iscoroutinefunction(value) else ""
    try:
        found = inspect.signature(value)
    except ValueError:
        yield f"{name}(…)"
        return
    parameters = [each for each in found.parameters.values() if each.name not in ("self", "cls")]
    texts = list(parameter_texts(parameters))
    returned = (
        "" if inspect.isclass(value) or found.return_annotation is inspect.Signature.empty else found.return_annotation
    )
    tail = f" -> {annotation(returned)}" if returned else ""
    line = f"{prefix}{name}({', '.join(texts)}){tail}"
    if len(line) <= LINE_LENGTH_MAX:
        yield line
        return
    yield f"{prefix}{name}("
    yield from (f"    {text}," for text in texts)
    yield f"){tail}"


def parameter_texts(parameters: Iterable[inspect.Parameter]) -> Iterator[str]:
    has_star = False
    for each in parameters:
        if each.kind is each.KEYWORD_ONLY and not has_star:
            has_star = True
            yield "*"
        has_star = has_star or each.kind is each.VAR_POSITIONAL
        stars = "*" if each.kind is each.VAR_POSITIONAL else "**" if each.kind is each.VAR_KEYWORD else ""
        kind = f": {annotation(each.annotation)}" if each.annotation is not each.empty else ""
        default = "" if each.default is each.empty else f"{' = ' if kind else '='}{shown(each.default)}"
        yield f"{stars}{each.name}{kind}{default}"


def annotation(kind: Any) -> str:
    text = kind if isinstance(kind, str) else inspect.formatannotation(kind)
    # The bounds of a number are in the validation, not in the type.
    text = re.sub(r"Annotated\[(\w+), [^\]]*\]", r"\1", text)
    return re.sub(r"\b(?:[a-z_]\w*\.)+(?=[A-Za-z])", "", text).strip("'\"")


def shown(default: Any) -> str:
    if isinstance(default, enum.Enum):
        return f"{type(default).__name__}.{default.name}"
    if inspect.isroutine(default) or inspect.isclass(default):
        return default.__name__
    text = repr(default)
    # Values that print as an address or as themselves in full are no help to a reader.
    return "…" if text.startswith("<") or " at 0x" in text or len(text) > 40 else text


# --- Fields ---------------------------------------------------------------------------------------------------------


def field_table(value: type) -> Iterator[str]:
    """A table of the fields of a dataclass or Struct that have a comment."""
    comments = field_comments(value)
    rows = [(name, kind, comments[name]) for name, kind in fields_of(value) if comments.get(name)]
    if not rows:
        return
    yield "| field | type | meaning |"
    yield "|---|---|---|"
    for name, kind, comment in rows:
        escaped = annotation(kind).replace("|", "\\|")
        yield f"| `{name}` | `{escaped}` | {comment} |"
    yield ""


def fields_of(value: type) -> Iterator[tuple[str, Any]]:
    if is_dataclass(value):
        yield from ((each.name, each.type) for each in fields(value) if each.init or each.default is not MISSING)
    elif issubclass(value, msgspec.Struct):
        annotations = {
            name: kind
            for base in reversed(value.__mro__)
            for name, kind in vars(base).get("__annotations__", {}).items()
        }
        yield from ((name, annotations.get(name, "")) for name in value.__struct_fields__)


def field_comments(value: type) -> dict[str, str]:
    """The comment lines directly above each field in the source of a class."""
    comments: dict[str, str] = {}
    for base in reversed(value.__mro__):
        try:
            source = textwrap.dedent(inspect.getsource(base))
        except (OSError, TypeError):
            continue
        lines = source.split("\n")
        definition = ast.parse(source).body[0]
        assert isinstance(definition, ast.ClassDef), "the source of a class"
        for node in definition.body:
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                comments[node.target.id] = comment_above(lines, node.lineno - 1)
    return comments


def comment_above(lines: list[str], index: int) -> str:
    found: list[str] = []
    while index > 0 and lines[index - 1].strip().startswith("#"):
        index -= 1
        found.insert(0, lines[index].strip().removeprefix("#").strip())
    return " ".join(found).replace("|", "\\|")
