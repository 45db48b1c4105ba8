"""Trees as YAML that reads back the same in every tool: whatever Kubernetes would take for a number or a truth value
is quoted, long texts are not folded, texts of several lines are written as such."""

from __future__ import annotations

from typing import Any

import yaml

from dralloc.api.yaml_reader import resolve_plain

_Base: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
_TEXT = "tag:yaml.org,2002:str"
_NOT_TEXT = "tag:yaml.org,2002:null"


class _Dumper(_Base):  # type: ignore[misc]  # the base is chosen at run time
    def resolve(self, kind: Any, value: Any, implicit: Any) -> Any:
        tag = super().resolve(kind, value, implicit)
        if kind is yaml.ScalarNode and implicit[0] and tag == _TEXT and not isinstance(resolve_plain(value), str):
            return _NOT_TEXT
        return tag


def _represent_text(dumper: Any, text: str) -> Any:
    return dumper.represent_scalar(_TEXT, text, style="|" if "\n" in text else None)


# A part that is there twice is written twice: anchors are for people.
_Dumper.ignore_aliases = lambda _dumper, _value: True
_Dumper.add_representer(str, _represent_text)


def write_yaml(tree: Any) -> str:
    """One document, without the line that separates it from others."""
    written: str = yaml.dump(tree, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=1_000_000_000)
    return written
