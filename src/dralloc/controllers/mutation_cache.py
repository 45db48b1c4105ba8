"""What is known of an object: our local copy of it, or what a server answered to us since.

Right after a write the copy still shows the old object. Planning from it would do the same again, so answers are
kept until the copy has caught up.
"""

from __future__ import annotations

import asyncio
from typing import Final, Generic

from dralloc.client.informer import Informer
from dralloc.client.typed_resource import Object, ObjectKey, key_of

# An answer that the copy never shows was overtaken by a deletion that we did not see.
TRUSTED_S: Final = 30.0


class Latest(Generic[Object]):
    """The newer of copy and answer."""

    def __init__(self, informer: Informer[Object]) -> None:
        self._informer = informer
        self._answers: dict[ObjectKey, tuple[Object, float]] = {}
        informer.subscribe(self._learn)

    def get(self, name: str, namespace: str = "") -> Object | None:
        answer = self._answers.get(ObjectKey(namespace, name))
        if answer is not None and answer[1] > asyncio.get_running_loop().time():
            return answer[0]
        return self._informer.get(name, namespace)

    def keep(self, item: Object) -> None:
        """A server answered with this; the copy may not have it yet."""
        key, known = key_of(item), self._informer.get(item.metadata.name, item.metadata.namespace)
        if known is None or _revision(known) < _revision(item):
            self._answers[key] = (item, asyncio.get_running_loop().time() + TRUSTED_S)

    def _learn(self, before: Object | None, after: Object | None) -> None:
        current = after if after is not None else before
        assert current is not None, "a change is of something"
        if not self._answers:
            return
        key = key_of(current)
        answer = self._answers.get(key)
        if answer is not None and (after is None or _revision(after) >= _revision(answer[0])):
            del self._answers[key]


def _revision(item: Object) -> int:
    """Where an object stands in the history of its kind; Kubernetes promises that these numbers can be compared."""
    return int(item.metadata.resource_version or 0)
