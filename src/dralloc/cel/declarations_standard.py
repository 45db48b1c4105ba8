"""The standard library of CEL, and the extensions of cel-go that Kubernetes enables."""

from __future__ import annotations

from typing import Final

_ORDERED: Final = {
    "bool": ("bool", "bool"),
    "int64": ("int", "int"),
    "int64_double": ("int", "double"),
    "int64_uint64": ("int", "uint"),
    "uint64": ("uint", "uint"),
    "uint64_double": ("uint", "double"),
    "uint64_int64": ("uint", "int"),
    "double": ("double", "double"),
    "double_int64": ("double", "int"),
    "double_uint64": ("double", "uint"),
    "string": ("string", "string"),
    "bytes": ("bytes", "bytes"),
    "timestamp": ("timestamp", "timestamp"),
    "duration": ("duration", "duration"),
}


def _relation(prefix: str) -> str:
    return "\n".join(f"{prefix}_{suffix} ({left}, {right}) -> bool" for suffix, (left, right) in _ORDERED.items())


def _time_part(suffix: str, *, of_duration: bool = False) -> str:
    lines = [
        f"timestamp_to_{suffix} timestamp.() -> int",
        f"timestamp_to_{suffix}_with_tz timestamp.(string) -> int",
    ]
    if of_duration:
        lines.append(f"duration_to_{suffix} duration.() -> int")
    return "\n".join(lines)


OPERATORS: Final = {
    "_?_:_": "conditional (bool, A, A) -> A",
    "_&&_": "logical_and (bool, bool) -> bool",
    "_||_": "logical_or (bool, bool) -> bool",
    "!_": "logical_not (bool) -> bool",
    "@not_strictly_false": "not_strictly_false (bool) -> bool",
    "_==_": "equals (A, A) -> bool",
    "_!=_": "not_equals (A, A) -> bool",
    "_-_": """
        subtract_double (double, double) -> double
        subtract_duration_duration (duration, duration) -> duration
        subtract_int64 (int, int) -> int
        subtract_timestamp_duration (timestamp, duration) -> timestamp
        subtract_timestamp_timestamp (timestamp, timestamp) -> duration
        subtract_uint64 (uint, uint) -> uint
    """,
    "_/_": """
        divide_double (double, double) -> double
        divide_int64 (int, int) -> int
        divide_uint64 (uint, uint) -> uint
    """,
    "_%_": """
        modulo_int64 (int, int) -> int
        modulo_uint64 (uint, uint) -> uint
    """,
    "_*_": """
        multiply_double (double, double) -> double
        multiply_int64 (int, int) -> int
        multiply_uint64 (uint, uint) -> uint
    """,
    "-_": """
        negate_double (double) -> double
        negate_int64 (int) -> int
    """,
    "_+_": """
        add_bytes (bytes, bytes) -> bytes
        add_double (double, double) -> double
        add_duration_duration (duration, duration) -> duration
        add_duration_timestamp (duration, timestamp) -> timestamp
        add_timestamp_duration (timestamp, duration) -> timestamp
        add_int64 (int, int) -> int
        add_list (list<A>, list<A>) -> list<A>
        add_string (string, string) -> string
        add_uint64 (uint, uint) -> uint
    """,
    "_<_": _relation("less"),
    "_<=_": _relation("less_equals"),
    "_>_": _relation("greater"),
    "_>=_": _relation("greater_equals"),
    "_[_]": """
        index_list (list<A>, int) -> A
        index_map (map<A, B>, A) -> B
    """,
    "@in": """
        in_list (A, list<A>) -> bool
        in_map (A, map<A, B>) -> bool
    """,
}

CONVERSIONS: Final = {
    "type": "type (A) -> type<A>",
    "dyn": "to_dyn (A) -> dyn",
    "bool": """
        bool_to_bool (bool) -> bool
        string_to_bool (string) -> bool
    """,
    "bytes": """
        bytes_to_bytes (bytes) -> bytes
        string_to_bytes (string) -> bytes
    """,
    "double": """
        double_to_double (double) -> double
        int64_to_double (int) -> double
        string_to_double (string) -> double
        uint64_to_double (uint) -> double
    """,
    "duration": """
        duration_to_duration (duration) -> duration
        string_to_duration (string) -> duration
    """,
    "int": """
        int64_to_int64 (int) -> int
        double_to_int64 (double) -> int
        duration_to_int64 (duration) -> int
        string_to_int64 (string) -> int
        timestamp_to_int64 (timestamp) -> int
        uint64_to_int64 (uint) -> int
    """,
    "string": """
        string_to_string (string) -> string
        bool_to_string (bool) -> string
        bytes_to_string (bytes) -> string
        double_to_string (double) -> string
        duration_to_string (duration) -> string
        int64_to_string (int) -> string
        timestamp_to_string (timestamp) -> string
        uint64_to_string (uint) -> string
    """,
    "timestamp": """
        timestamp_to_timestamp (timestamp) -> timestamp
        int64_to_timestamp (int) -> timestamp
        string_to_timestamp (string) -> timestamp
    """,
    "uint": """
        uint64_to_uint64 (uint) -> uint
        double_to_uint64 (double) -> uint
        int64_to_uint64 (int) -> uint
        string_to_uint64 (string) -> uint
    """,
}

STANDARD_FUNCTIONS: Final = {
    "size": """
        size_bytes (bytes) -> int
        bytes_size bytes.() -> int
        size_list (list<A>) -> int
        list_size list<A>.() -> int
        size_map (map<A, B>) -> int
        map_size map<A, B>.() -> int
        size_string (string) -> int
        string_size string.() -> int
    """,
    "contains": "contains_string string.(string) -> bool",
    "endsWith": "ends_with_string string.(string) -> bool",
    "startsWith": "starts_with_string string.(string) -> bool",
    "matches": """
        matches (string, string) -> bool
        matches_string string.(string) -> bool
    """,
    "getFullYear": _time_part("year"),
    "getMonth": _time_part("month"),
    "getDayOfYear": _time_part("day_of_year"),
    "getDayOfMonth": _time_part("day_of_month"),
    "getDate": _time_part("day_of_month_1_based"),
    "getDayOfWeek": _time_part("day_of_week"),
    "getHours": _time_part("hours", of_duration=True),
    "getMinutes": _time_part("minutes", of_duration=True),
    "getSeconds": _time_part("seconds", of_duration=True),
    "getMilliseconds": _time_part("milliseconds", of_duration=True),
}

OPTIONALS: Final = {
    "optional.of": "optional_of (V) -> optional<V>",
    "optional.ofNonZeroValue": "optional_ofNonZeroValue (V) -> optional<V>",
    "optional.none": "optional_none () -> optional<V>",
    "optional.unwrap": "optional_unwrap (list<optional<V>>) -> list<V>",
    "unwrapOpt": "optional_unwrapOpt list<optional<V>>.() -> list<V>",
    "value": "optional_value optional<V>.() -> V",
    "hasValue": "optional_hasValue optional<V>.() -> bool",
    "or": "optional_or_optional optional<V>.(optional<V>) -> optional<V>",
    "orValue": "optional_orValue_value optional<V>.(V) -> V",
    "first": "list_first list<V>.() -> optional<V>",
    "last": "list_last list<V>.() -> optional<V>",
    "_?._": "select_optional_field (dyn, string) -> optional<V>",
    "_[?_]": """
        list_optindex_optional_int (list<V>, int) -> optional<V>
        optional_list_optindex_optional_int (optional<list<V>>, int) -> optional<V>
        map_optindex_optional_value (map<K, V>, K) -> optional<V>
        optional_map_optindex_optional_value (optional<map<K, V>>, K) -> optional<V>
    """,
    "_[_]": """
        optional_list_index_int (optional<list<V>>, int) -> optional<V>
        optional_map_index_value (optional<map<K, V>>, K) -> optional<V>
    """,
}

STRINGS: Final = {
    "charAt": "string_char_at_int string.(int) -> string",
    "indexOf": """
        string_index_of_string string.(string) -> int
        string_index_of_string_int string.(string, int) -> int
    """,
    "lastIndexOf": """
        string_last_index_of_string string.(string) -> int
        string_last_index_of_string_int string.(string, int) -> int
    """,
    "lowerAscii": "string_lower_ascii string.() -> string",
    "upperAscii": "string_upper_ascii string.() -> string",
    "replace": """
        string_replace_string_string string.(string, string) -> string
        string_replace_string_string_int string.(string, string, int) -> string
    """,
    "split": """
        string_split_string string.(string) -> list<string>
        string_split_string_int string.(string, int) -> list<string>
    """,
    "substring": """
        string_substring_int string.(int) -> string
        string_substring_int_int string.(int, int) -> string
    """,
    "trim": "string_trim string.() -> string",
    "format": "string_format string.(list<dyn>) -> string",
    "strings.quote": "strings_quote (string) -> string",
    "join": """
        list_join list<string>.() -> string
        list_join_string list<string>.(string) -> string
    """,
}

COMPARABLE: Final = ("int", "uint", "double", "bool", "duration", "timestamp", "string", "bytes")

LISTS: Final = {
    "slice": "list_slice list<T>.(int, int) -> list<T>",
    "flatten": """
        list_flatten list<list<T>>.() -> list<T>
        list_flatten_int list<dyn>.(int) -> list<dyn>
    """,
    "sort": "\n".join(f"list_{element}_sort list<{element}>.() -> list<{element}>" for element in COMPARABLE),
    "@sortByAssociatedKeys": "\n".join(
        f"list_{key}_sortByAssociatedKeys list<T>.(list<{key}>) -> list<T>" for key in COMPARABLE
    ),
    "lists.range": "lists_range (int) -> list<int>",
    "reverse": "list_reverse list<T>.() -> list<T>",
    "distinct": "list_distinct list<T>.() -> list<T>",
}

SETS: Final = {
    "sets.contains": "list_sets_contains_list (list<T>, list<T>) -> bool",
    "sets.equivalent": "list_sets_equivalent_list (list<T>, list<T>) -> bool",
    "sets.intersects": "list_sets_intersects_list (list<T>, list<T>) -> bool",
}

TWO_VARIABLES: Final = {
    "cel.@mapInsert": """
        @mapInsert_map_key_value (map<K, V>, K, V) -> map<K, V>
        @mapInsert_map_map (map<K, V>, map<K, V>) -> map<K, V>
    """,
}

TABLES: Final = (
    OPERATORS,
    CONVERSIONS,
    STANDARD_FUNCTIONS,
    OPTIONALS,
    STRINGS,
    LISTS,
    SETS,
    TWO_VARIABLES,
)
