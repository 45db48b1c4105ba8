"""OpenAPI schemas of objects, derived from the wire types and the merge rules.

Types that are modelled in part are marked, so that tools preserve unknown fields.
"""

from __future__ import annotations

import inspect as python_inspect
from functools import cache
from typing import Any, Final

from msgspec import NODEFAULT, inspect

from dralloc.api.stored_kinds import StoredObject
from dralloc.apiserver.description.field_descriptions import describe_field, describe_type
from dralloc.apiserver.documents.json_documents import Document
from dralloc.apiserver.documents.merge_rules import MergeRule

_META: Final = "io.k8s.apimachinery.pkg.apis.meta.v1"
LIST_META: Final = f"{_META}.ListMeta"
DELETE_OPTIONS: Final = f"{_META}.DeleteOptions"
STATUS: Final = f"{_META}.Status"

_QUANTITY: Final = "io.k8s.apimachinery.pkg.api.resource.Quantity"
_RAW: Final = "io.k8s.apimachinery.pkg.runtime.RawExtension"
_INT32_MAX: Final = 2**31 - 1
_NO_RULE: Final = MergeRule()

# Schemas without a wire type.
FIXED_SCHEMAS: Final[Document] = {
    _QUANTITY: {
        "description": "An amount, such as 10Gi, 500m or 4.",
        "oneOf": [{"type": "string"}, {"type": "number"}],
    },
    _RAW: {"description": "Any JSON object.", "type": "object", "x-kubernetes-preserve-unknown-fields": True},
    LIST_META: {
        "description": "Where a list stands.",
        "type": "object",
        "properties": {
            "continue": {"type": "string", "description": "Leads to the next page."},
            "remainingItemCount": {
                "type": "integer",
                "format": "int64",
                "description": "The number of objects after this page.",
            },
            "resourceVersion": {"type": "string", "description": "The resource version of the list."},
            "selfLink": {"type": "string", "description": "Not in use any more."},
        },
    },
    STATUS: {
        "description": "How a request went.",
        "type": "object",
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"$ref": f"#/components/schemas/{LIST_META}"},
            "status": {"type": "string", "description": "Success or Failure."},
            "message": {"type": "string", "description": "What went wrong, in words."},
            "reason": {"type": "string", "description": "A machine-readable reason of the failure."},
            "details": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
            "code": {"type": "integer", "format": "int32", "description": "The HTTP code."},
        },
    },
    DELETE_OPTIONS: {
        "description": "The options of a deletion.",
        "type": "object",
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "dryRun": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "atomic"},
            "gracePeriodSeconds": {"type": "integer", "format": "int64"},
            "orphanDependents": {"type": "boolean"},
            "preconditions": {
                "type": "object",
                "properties": {"uid": {"type": "string"}, "resourceVersion": {"type": "string"}},
            },
            "propagationPolicy": {"type": "string"},
        },
    },
}


class SchemaWriter:
    """Writes the schemas of one document, each type once."""

    def __init__(self, version: str) -> None:
        self._version = version
        self.schemas: dict[str, Document] = dict(FIXED_SCHEMAS)

    def write(self, wire_type: type, rule: MergeRule, *, partial: bool = False) -> str:
        """Write the schemas of a type and of its parts; returns the type's schema name."""
        name = _schema_name(wire_type, self._version)
        if name not in self.schemas:
            # Metadata is modelled completely in every kind.
            self.schemas[name] = self._object(wire_type, rule, partial and not name.startswith(_META))
        return name

    def _object(self, wire_type: type, rule: MergeRule, partial: bool) -> Document:
        info = inspect.type_info(wire_type)
        assert isinstance(info, inspect.StructType), f"not a wire type: {wire_type}"
        properties = {
            field.encode_name: self._property(wire_type, field, rule.members.get(field.encode_name, _NO_RULE), partial)
            for field in info.fields
        }
        schema: Document = {"type": "object", "properties": properties}
        if description := describe_type(wire_type.__name__) or _docstring(wire_type):
            schema["description"] = description
        if required := [field.encode_name for field in info.fields if _is_required(field)]:
            schema["required"] = required
        if rule.atomic:
            schema["x-kubernetes-map-type"] = "atomic"
        if partial:
            schema["x-kubernetes-preserve-unknown-fields"] = True
        return schema

    def _property(self, wire_type: type, field: inspect.Field, rule: MergeRule, partial: bool) -> Document:
        schema = self._value(field.type, rule, partial)
        if "$ref" in schema:
            # In OpenAPI 3.0 nothing may stand beside a reference, so `allOf` wraps it.
            schema = {"allOf": [schema]}
        if description := describe_field(wire_type.__name__, field.encode_name):
            schema["description"] = description
        return {**schema, **_list_extensions(rule)} if schema.get("type") == "array" else schema

    def _value(self, info: inspect.Type, rule: MergeRule, partial: bool) -> Document:
        match info:
            case inspect.UnionType(types=types):
                (present,) = [member for member in types if not isinstance(member, inspect.NoneType)]
                return self._value(present, rule, partial)
            case inspect.StructType(cls=cls):
                return {"$ref": f"#/components/schemas/{self.write(cls, rule, partial=partial)}"}
            case inspect.VarTupleType(item_type=item) | inspect.ListType(item_type=item):
                element = MergeRule(members=rule.members, atomic=rule.atomic_elements)
                return {"type": "array", "items": self._value(item, element, partial)}
            case inspect.DictType(value_type=value):
                schema: Document = {"type": "object", "additionalProperties": self._value(value, _NO_RULE, partial)}
                return {**schema, "x-kubernetes-map-type": "atomic"} if rule.atomic else schema
            case inspect.StrType():
                return {"type": "string"}
            case inspect.BytesType():
                return {"type": "string", "format": "byte"}
            case inspect.BoolType():
                return {"type": "boolean"}
            case inspect.IntType(le=largest):
                return {"type": "integer", "format": "int32" if largest == _INT32_MAX else "int64"}
            case inspect.CustomType():
                return {"$ref": f"#/components/schemas/{_QUANTITY}"}
            case inspect.RawType():
                return {"$ref": f"#/components/schemas/{_RAW}"}
            case _:
                return {"x-kubernetes-preserve-unknown-fields": True}


def _list_extensions(rule: MergeRule) -> dict[str, Any]:
    extensions: dict[str, Any] = {"x-kubernetes-list-type": "atomic"}
    if rule.keys:
        extensions = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(rule.keys)}
    elif rule.is_set:
        extensions = {"x-kubernetes-list-type": "set"}
    if rule.strategic:
        extensions["x-kubernetes-patch-strategy"] = "merge,retainKeys" if rule.retains_keys else "merge"
    if rule.strategic_key:
        extensions["x-kubernetes-patch-merge-key"] = rule.strategic_key
    return extensions


def _is_required(field: inspect.Field) -> bool:
    """True if the field is encoded even when it is an empty string: such fields are required."""
    factory = field.default_factory
    return factory is not NODEFAULT and factory() == ""


@cache
def _schema_name(wire_type: type, version: str) -> str:
    """The schema name of the type in Kubernetes' style."""
    module, name = wire_type.__module__.rpartition(".")[2], wire_type.__name__
    # Types of the core group live in modules of their own.
    if module == "pod_v1" or name.startswith("NodeSelector"):
        return f"io.k8s.api.core.v1.{name}"
    if module == "meta_v1":
        return f"{_META}.{name}"
    if issubclass(wire_type, StoredObject):
        return f"io.k8s.api.{wire_type.GROUP}.{version}.{name}"
    group, _, fixed_version = module.rpartition("_")
    # Versions of the resource group share a module.
    return f"io.k8s.api.{group or 'resource'}.{version if group in ('', 'resource') else fixed_version}.{name}"


def _docstring(wire_type: type) -> str:
    # Skips inherited docstrings, and the signatures that msgspec generates.
    own = vars(wire_type).get("__doc__") or ""
    return " ".join(python_inspect.cleandoc(own).split()) if not own.startswith(wire_type.__name__ + "(") else ""
