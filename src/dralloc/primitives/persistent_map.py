"""A persistent (immutable) map: a change copies a short path and shares the rest with the old version.

A hash trie. Branches are tuples, indexed by the next bits of the key's hash; leaves are small dictionaries. A lookup
takes a few tuple accesses; a change copies one leaf and the branches above it, about log16(n) of them.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from typing import Any, Final, Generic, TypeVar, overload

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
D = TypeVar("D")

BITS: Final = 4
WIDTH: Final = 1 << BITS
INDEX: Final = WIDTH - 1
LEAF_MAX: Final = 16
# After 16 levels all 64 bits of the hash are used; keys that still collide share a leaf of any size.
DEPTH_MAX: Final = 16

_EMPTY: Final[dict[Any, Any]] = {}
_ABSENT: Final = object()

# A node is a leaf (dict) or a branch (tuple of nodes).
_Node = Any


class PersistentMap(Generic[K, V]):
    """An immutable mapping; `set` and `remove` return a new one."""

    __slots__ = ("_count", "_root")

    def __init__(self, items: Iterable[tuple[K, V]] = ()) -> None:
        built: PersistentMap[K, V] = _wrap(_EMPTY, 0)
        for key, value in items:
            built = built.set(key, value)
        self._root: _Node = built._root
        self._count: int = built._count

    @overload
    def get(self, key: K) -> V | None: ...
    @overload
    def get(self, key: K, default: D) -> V | D: ...
    def get(self, key: K, default: Any = None) -> Any:
        node, bits = self._root, hash(key)
        while type(node) is tuple:
            node = node[bits & INDEX]
            bits >>= BITS
        return node.get(key, default)

    def __getitem__(self, key: K) -> V:
        value: Any = self.get(key, _ABSENT)
        if value is _ABSENT:
            raise KeyError(key)
        return value  # type: ignore[no-any-return]

    def __contains__(self, key: K) -> bool:
        return self.get(key, _ABSENT) is not _ABSENT

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[K]:
        return (key for key, _ in self.items())

    def items(self) -> Iterator[tuple[K, V]]:
        """Every entry, in no particular order."""
        nodes = [self._root]
        while nodes:
            node = nodes.pop()
            if type(node) is tuple:
                nodes.extend(node)
            else:
                yield from node.items()

    def values(self) -> Iterator[V]:
        return (value for _, value in self.items())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PersistentMap):
            return NotImplemented
        return self._root is other._root or dict(self.items()) == dict(other.items())

    # Hashed by identity: maps are parts of memo keys, and hashing the content would be slow.
    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return f"PersistentMap({dict(self.items())!r})"

    def set(self, key: K, value: V) -> PersistentMap[K, V]:
        path, leaf = self._path_to(key)
        grown = {**leaf, key: value}
        node: _Node = grown
        if len(grown) > LEAF_MAX and len(path) < DEPTH_MAX:
            node = _split(grown, len(path))
        return _wrap(_rebuild(path, node), self._count + (key not in leaf))

    def remove(self, key: K) -> PersistentMap[K, V]:
        """Without the key; returns the same map if the key is absent."""
        path, leaf = self._path_to(key)
        if key not in leaf:
            return self
        shrunk = {kept: value for kept, value in leaf.items() if kept != key}
        return _wrap(_rebuild(path, shrunk or _EMPTY), self._count - 1)

    def _path_to(self, key: K) -> tuple[list[tuple[tuple[_Node, ...], int]], dict[K, V]]:
        path: list[tuple[tuple[_Node, ...], int]] = []
        node, bits = self._root, hash(key)
        while type(node) is tuple:
            path.append((node, bits & INDEX))
            node = node[bits & INDEX]
            bits >>= BITS
        return path, node


def _wrap(root: _Node, count: int) -> PersistentMap[Any, Any]:
    made: PersistentMap[Any, Any] = PersistentMap.__new__(PersistentMap)
    made._root = root
    made._count = count
    return made


def _split(leaf: dict[Any, Any], depth: int) -> tuple[_Node, ...]:
    children: list[dict[Any, Any]] = [{} for _ in range(WIDTH)]
    for key, value in leaf.items():
        children[(hash(key) >> (BITS * depth)) & INDEX][key] = value
    return tuple(child or _EMPTY for child in children)


def _rebuild(path: list[tuple[tuple[_Node, ...], int]], node: _Node) -> _Node:
    for branch, index in reversed(path):
        node = (*branch[:index], node, *branch[index + 1 :])
    return node
