"""Kubernetes' own libraries: quantities, versions, addresses, URLs, formats, lists and regular expressions.

The authorizer's functions are declared, too: there is no authorizer to call them on, but on a value of unknown type
they compile, and fail at runtime.
"""

from __future__ import annotations

from typing import Final

from dralloc.cel.declarations_standard import COMPARABLE

_SUMMABLE: Final = ("int", "uint", "double", "duration")
_NAMED_FORMATS: Final = (
    "dns1123Label", "dns1123Subdomain", "dns1035Label", "qualifiedName", "dns1123LabelPrefix",
    "dns1123SubdomainPrefix", "dns1035LabelPrefix", "labelValue", "uri", "uuid", "byte", "date", "datetime",
)  # fmt: skip


def _each(elements: tuple[str, ...], template: str) -> str:
    return "\n".join(template.format(element) for element in elements)


LISTS: Final = {
    "isSorted": _each(COMPARABLE, "list_{0}_is_sorted_bool list<{0}>.() -> bool"),
    "sum": _each(_SUMMABLE, "list_{0}_sum_{0} list<{0}>.() -> {0}"),
    "max": _each(COMPARABLE, "list_{0}_max_{0} list<{0}>.() -> {0}"),
    "min": _each(COMPARABLE, "list_{0}_min_{0} list<{0}>.() -> {0}"),
    "indexOf": "list_a_index_of_int list<A>.(A) -> int",
    "lastIndexOf": "list_a_last_index_of_int list<A>.(A) -> int",
}

REGEX: Final = {
    "find": "string_find_string string.(string) -> string",
    "findAll": """
        string_find_all_string string.(string) -> list<string>
        string_find_all_string_int string.(string, int) -> list<string>
    """,
}

URLS: Final = {
    "url": "string_to_url (string) -> URL",
    "isURL": "is_url_string (string) -> bool",
    "getScheme": "url_get_scheme URL.() -> string",
    "getHost": "url_get_host URL.() -> string",
    "getHostname": "url_get_hostname URL.() -> string",
    "getPort": "url_get_port URL.() -> string",
    "getEscapedPath": "url_get_escaped_path URL.() -> string",
    "getQuery": "url_get_query URL.() -> map<string, list<string>>",
}

QUANTITIES: Final = {
    "quantity": "string_to_quantity (string) -> Quantity",
    "isQuantity": "is_quantity_string (string) -> bool",
    "sign": "quantity_sign (Quantity) -> int",
    "isInteger": "quantity_is_integer Quantity.() -> bool",
    "asInteger": "quantity_get_int Quantity.() -> int",
    "asApproximateFloat": "quantity_get_float Quantity.() -> double",
    "isGreaterThan": "quantity_is_greater_than Quantity.(Quantity) -> bool",
    "isLessThan": "quantity_is_less_than Quantity.(Quantity) -> bool",
    "compareTo": "quantity_compare_to Quantity.(Quantity) -> int",
    "add": """
        quantity_add Quantity.(Quantity) -> Quantity
        quantity_add_int Quantity.(int) -> Quantity
    """,
    "sub": """
        quantity_sub Quantity.(Quantity) -> Quantity
        quantity_sub_int Quantity.(int) -> Quantity
    """,
}

VERSIONS: Final = {
    "semver": """
        string_to_semver (string) -> Semver
        string_bool_to_semver (string, bool) -> Semver
    """,
    "isSemver": """
        is_semver_string (string) -> bool
        is_semver_string_bool (string, bool) -> bool
    """,
    "isGreaterThan": "semver_is_greater_than Semver.(Semver) -> bool",
    "isLessThan": "semver_is_less_than Semver.(Semver) -> bool",
    "compareTo": "semver_compare_to Semver.(Semver) -> int",
    "major": "semver_major Semver.() -> int",
    "minor": "semver_minor Semver.() -> int",
    "patch": "semver_patch Semver.() -> int",
}

ADDRESSES: Final = {
    "ip": """
        string_to_ip (string) -> IP
        cidr_ip CIDR.() -> IP
    """,
    "isIP": "is_ip (string) -> bool",
    "ip.isCanonical": "ip_is_canonical (string) -> bool",
    "family": "ip_family IP.() -> int",
    "isUnspecified": "ip_is_unspecified IP.() -> bool",
    "isLoopback": "ip_is_loopback IP.() -> bool",
    "isLinkLocalMulticast": "ip_is_link_local_multicast IP.() -> bool",
    "isLinkLocalUnicast": "ip_is_link_local_unicast IP.() -> bool",
    "isGlobalUnicast": "ip_is_global_unicast IP.() -> bool",
    "cidr": "string_to_cidr (string) -> CIDR",
    "isCIDR": "is_cidr (string) -> bool",
    "containsIP": """
        cidr_contains_ip_string CIDR.(string) -> bool
        cidr_contains_ip CIDR.(IP) -> bool
    """,
    "containsCIDR": """
        cidr_contains_cidr_string CIDR.(string) -> bool
        cidr_contains_cidr CIDR.(CIDR) -> bool
    """,
    "masked": "cidr_masked CIDR.() -> CIDR",
    "prefixLength": "cidr_prefix_length CIDR.() -> int",
    "string": """
        ip_to_string (IP) -> string
        cidr_to_string (CIDR) -> string
    """,
}

FORMATS: Final = {
    "format.named": "format_named (string) -> optional<Format>",
    "validate": "format_validate Format.(string) -> optional<list<string>>",
    **{f"format.{name}": f"format_{name} () -> Format" for name in _NAMED_FORMATS},
}

AUTHORIZATION: Final = {
    "path": "authorizer_path Authorizer.(string) -> PathCheck",
    "group": "authorizer_group Authorizer.(string) -> GroupCheck",
    "serviceAccount": "authorizer_serviceaccount Authorizer.(string, string) -> Authorizer",
    "resource": "groupcheck_resource GroupCheck.(string) -> ResourceCheck",
    "subresource": "resourcecheck_subresource ResourceCheck.(string) -> ResourceCheck",
    "namespace": "resourcecheck_namespace ResourceCheck.(string) -> ResourceCheck",
    "name": "resourcecheck_name ResourceCheck.(string) -> ResourceCheck",
    "fieldSelector": "authorizer_fieldselector ResourceCheck.(string) -> ResourceCheck",
    "labelSelector": "authorizer_labelselector ResourceCheck.(string) -> ResourceCheck",
    "check": """
        pathcheck_check PathCheck.(string) -> Decision
        resourcecheck_check ResourceCheck.(string) -> Decision
    """,
    "errored": "decision_errored Decision.() -> bool",
    "error": "decision_error Decision.() -> string",
    "allowed": "decision_allowed Decision.() -> bool",
    "reason": "decision_reason Decision.() -> string",
}

TABLES: Final = (LISTS, REGEX, URLS, QUANTITIES, VERSIONS, ADDRESSES, FORMATS, AUTHORIZATION)

# Only if an attribute can be a list.
LIST_ATTRIBUTES: Final = {"includes": "includes_dyn_dyn dyn.(dyn) -> bool"}
