"""Writes trees as YAML that every tool reads back unchanged: strings that Kubernetes would read as numbers or booleans
are quoted, long strings are not folded, and multi-line strings use block style.
"""

from __future__ import annotations

from typing import Any, Final

import yaml

from dralloc.kube.trees import ExactNumber
from dralloc.kube.yaml_scalars import resolve_plain

_Base: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
_TEXT: Final = "tag:yaml.org,2002:str"
_TAGS: Final = {
    bool: "tag:yaml.org,2002:bool",
    int: "tag:yaml.org,2002:int",
    float: "tag:yaml.org,2002:float",
    type(None): "tag:yaml.org,2002:null",
}


class _Dumper(_Base):  # type: ignore[misc]  # the base is chosen at run time
    def resolve(self, kind: Any, value: Any, implicit: Any) -> Any:
        """Returns the tag of a plain scalar, if any YAML reader would take it for something other than a string."""
        tag = super().resolve(kind, value, implicit)
        if kind is yaml.ScalarNode and implicit[0] and tag == _TEXT:
            return _TAGS.get(type(resolve_plain(value)), _TEXT)
        return tag


def _represent_text(dumper: Any, text: str) -> Any:
    return dumper.represent_scalar(_TEXT, text, style="|" if "\n" in text else None)


def _represent_exact_number(dumper: Any, number: ExactNumber) -> Any:
    tag = dumper.resolve(yaml.ScalarNode, number.text, (True, False))
    return dumper.represent_scalar(tag, number.text)


# Repeated parts are written out, without anchors, for readability.
_Dumper.ignore_aliases = lambda _dumper, _value: True
_Dumper.add_representer(str, _represent_text)
_Dumper.add_representer(ExactNumber, _represent_exact_number)


def write_yaml(tree: Any) -> str:
    """Returns one document, without the separator line."""
    written: str = yaml.dump(tree, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=1_000_000_000)
    return written
