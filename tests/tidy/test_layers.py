"""Imports point only downwards, and the pure packages do no I/O: the table in ARCHITECTURE.md, held by a machine."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "dralloc"

LAYERS: tuple[frozenset[str], ...] = (
    frozenset({"primitives", "rpc", "system_clock"}),
    frozenset({"cel", "api"}),
    frozenset({"store", "devices", "snapshot", "allocator"}),
    frozenset({"apiserver", "client", "kubelet"}),
    frozenset({"scheduler", "controllers", "node", "driver", "fleet"}),
    frozenset({"whatif", "driver_kit", "assembly", "conformance"}),
    frozenset({"simulator", "testing"}),
    frozenset({"cli", "web", "pytest_plugin"}),
)

# Within a layer packages do not know each other, but for these arrows.
SIDEWAYS = frozenset(
    {
        ("api", "cel"),
        ("allocator", "devices"),
        ("allocator", "snapshot"),
        ("snapshot", "devices"),
        ("fleet", "node"),
        ("simulator", "testing"),
        ("cli", "web"),
        ("pytest_plugin", "cli"),
    }
)

PURE = ("primitives", "cel", "api", "devices", "snapshot", "allocator")

# Clock, randomness, logging and everything that leaves the process. Locks are allowed: a cache that threads share is still a value.
IMPURE_MODULES = frozenset(
    [
        "asyncio",
        "http",
        "io",
        "logging",
        "multiprocessing",
        "os",
        "pathlib",
        "random",
        "secrets",
        "shutil",
        "signal",
        "socket",
        "ssl",
        "subprocess",
        "sys",
        "tempfile",
        "time",
        "urllib",
        "uuid",
        "aiohttp",
        "grpc",
        "sqlite3",
        "uvicorn",
        "rich",
        "typer",
    ]
)
IMPURE_CALLS = frozenset({"open", "print", "input", "now", "utcnow", "today"})


def layer_of(package: str) -> int:
    for level, packages in enumerate(LAYERS):
        if package in packages:
            return level
    pytest.fail(f"package {package} has no layer; give it one in ARCHITECTURE.md and here")


def modules() -> list[Path]:
    return sorted(path for path in SOURCE.rglob("*.py") if "generated" not in path.parts)


def package_of(path: Path) -> str | None:
    parts = path.relative_to(SOURCE).parts
    return parts[0] if len(parts) > 1 else None


def imported(tree: ast.AST) -> Iterator[tuple[str, int]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: imports are absolute"
            if node.module == "dralloc":
                yield from ((f"dralloc.{alias.name}", node.lineno) for alias in node.names)
            elif node.module:
                yield node.module, node.lineno


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_point_downwards(path: Path) -> None:
    package = package_of(path)
    if package is None:
        return
    for name, line in imported(ast.parse(path.read_text())):
        parts = name.split(".")
        if parts[0] != "dralloc" or len(parts) == 1 or parts[1] in (package, "__version__"):
            continue
        allowed = layer_of(parts[1]) < layer_of(package) or (package, parts[1]) in SIDEWAYS
        assert allowed, f"{path.relative_to(SOURCE)}:{line}: {package} (layer {layer_of(package)}) imports {parts[1]}"


@pytest.mark.parametrize(
    "path", [path for path in modules() if package_of(path) in PURE], ids=lambda path: str(path.relative_to(SOURCE))
)
def test_pure_packages_do_no_io(path: Path) -> None:
    tree = ast.parse(path.read_text())
    for name, line in imported(tree):
        assert name != "dralloc.system_clock", f"{path.relative_to(SOURCE)}:{line}: the time comes in as an argument"
        assert name.split(".")[0] not in IMPURE_MODULES, f"{path.relative_to(SOURCE)}:{line}: imports {name}"
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            called = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
            assert called not in IMPURE_CALLS, f"{path.relative_to(SOURCE)}:{node.lineno}: calls {called}()"


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_every_module_says_what_it_is_for(path: Path) -> None:
    assert ast.get_docstring(ast.parse(path.read_text())), (
        "a module docstring says what the module is for and why it is apart"
    )
