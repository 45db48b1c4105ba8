"""JSON to typed objects: absent, exact, preserved and invalid values."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dralloc.kube import resource_v1, v1beta1
from dralloc.kube.codec import DecodeError, decode, encode, find_stray_fields
from dralloc.kube.resource_v1 import DeviceClass, DeviceTaintRule, ResourceClaim, ResourceClaimTemplate, ResourceSlice
from dralloc.primitives.quantity import Quantity
from tests.support.wire_objects import wire_objects

VECTORS = Path(__file__).parent.parent / "vectors"
KINDS = {
    "resourceslices": "ResourceSlice",
    "resourceclaims": "ResourceClaim",
    "resourceclaimtemplates": "ResourceClaimTemplate",
    "deviceclasses": "DeviceClass",
    "devicetaintrules": "DeviceTaintRule",
}


def slice_with(**spec: Any) -> bytes:
    return json.dumps({"spec": spec}).encode()


def test_null_is_absent_in_an_object_and_empty_in_lists_and_maps() -> None:
    body = slice_with(
        driver=None, pool=None, devices=[None, {"name": "a", "capacity": {"memory": None}, "taints": None}]
    )
    spec = decode(body, ResourceSlice).spec
    assert (spec.driver, spec.pool) == ("", resource_v1.ResourcePool())
    assert spec.devices == (
        resource_v1.Device(),
        resource_v1.Device(name="a", capacity={"memory": resource_v1.DeviceCapacity()}),
    )


def test_null_inside_opaque_parameters_is_kept() -> None:
    parameters = b'{"a": null, "b" : [null]}'
    body = b'{"spec":{"selectors":null,"config":[{"opaque":{"driver":"d","parameters":' + parameters + b"}}]}}"
    (config,) = decode(body, DeviceClass).spec.config
    assert config.opaque is not None
    assert bytes(config.opaque.parameters) == parameters


def test_null_parameters_and_data_are_none() -> None:
    body = b'{"spec":{"config":[{"opaque":{"driver":"d","parameters":null}}]}}'
    assert decode(body, DeviceClass) == decode(body.replace(b',"parameters":null', b""), DeviceClass)
    body = b'{"status":{"devices":[{"driver":"d","data":null}]}}'
    assert decode(body, ResourceClaim) == decode(body.replace(b',"data":null', b""), ResourceClaim)


@pytest.mark.parametrize(
    ("written", "text"),
    [
        ('"1Gi"', "1Gi"),
        ('" 1Gi "', "1Gi"),
        ("5", "5"),
        ("1.50", "1500m"),
        ("14e12", "14e12"),
        ("1E400", "10e399"),
        ("null", "0"),
        ("-0", "0"),
    ],
)
def test_quantities_are_text_or_numbers_and_exact(written: str, text: str) -> None:
    body = b'{"spec":{"devices":[{"capacity":{"memory":{"value":%s}}}]}}' % written.encode()
    devices = decode(body, ResourceSlice).spec.devices
    assert devices is not None
    assert str(devices[0].capacity["memory"].value) == text


@pytest.mark.parametrize("written", ["true", "[1]", "{}", '"1 Gi"', '""', '"1K"'])
def test_an_invalid_quantity_is_rejected_with_its_path(written: str) -> None:
    body = b'{"spec":{"devices":[{"capacity":{"memory":{"value":%s}}}]}}' % written.encode()
    with pytest.raises(DecodeError, match=r"spec\.devices\[0\]\.capacity\[memory\]\.value: "):
        decode(body, ResourceSlice)


def test_every_value_of_the_wrong_type_is_reported() -> None:
    body = slice_with(
        driver=1,
        pool=[],
        allNodes="yes",
        devices=[{"name": "ok"}, {"name": {}}, 7, {"attributes": {"x": {"int": 1.0}}}],
    )
    with pytest.raises(DecodeError) as refusal:
        decode(body, ResourceSlice)
    assert [str(mismatch.path) for mismatch in refusal.value.mismatches] == [
        "spec.driver",
        "spec.pool",
        "spec.allNodes",
        "spec.devices[1].name",
        "spec.devices[2]",
        "spec.devices[3].attributes[x].int",
    ]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", "not JSON"),
        (b"null", "expected an object"),
        (b"[]", "expected an object"),
        (b'{"spec":}', "line 1, column 9"),
        (b'{"spec":{}} x', "unexpected text"),
        (b'{"metadata":{"name":"\xff"}}', "not UTF-8"),
        (b'{"metadata":{"name":"a\x00"}}', "not JSON"),
        (b'{"metadata":{"generation":NaN}}', "NaN"),
        (b'{"metadata":{"name":"\\ud800"}}', "lone surrogate"),
        (b'{"metadata":{"generation":9223372036854775808}}', "out of range"),
        (b'{"spec":' * 100_000, "levels deep"),
        (b'{"x":' + b"[" * 600 + b"]" * 600 + b"}", "levels deep"),
        (b'{"spec":{"config":[{"opaque":{"parameters":"\xc3"}}]}}', "not UTF-8"),
    ],
)
def test_a_body_that_is_not_an_object_is_rejected_clearly(body: bytes, said: str) -> None:
    with pytest.raises(DecodeError, match=said):
        decode(body, DeviceClass)


def test_all_stray_fields_are_reported_with_suggestions() -> None:
    body = (
        b'{"metadata":{"nam":"a","labels":{"app":"x","app":"y"}},"spec":{"devices":{"requests":[{"name":"gpu",'
        b'"deviceClassName":"gpu.example.com","exactly":{"count":1,"count":2,"Count":3}}],"zzz":1}}}'
    )
    decode(body, ResourceClaim)
    strays = find_stray_fields(body, ResourceClaim)
    assert [str(stray) for stray in strays] == [
        'unknown field "metadata.nam"',
        'duplicate field "metadata.labels.app"',
        'unknown field "spec.devices.requests[0].deviceClassName"',
        'duplicate field "spec.devices.requests[0].exactly.count"',
        'unknown field "spec.devices.requests[0].exactly.Count"',
        'unknown field "spec.devices.zzz"',
    ]
    said = [stray.message for stray in strays]
    assert 'did you mean "name"?' in said[0]
    assert 'did you mean "exactly.deviceClassName"?' in said[2]
    assert 'did you mean "count"?' in said[4]
    assert "known: requests, constraints, config" in said[5]


@pytest.mark.parametrize(
    "body",
    [
        b'{"metadata":{"name":"a","nam":1},"spec":{"devices":{"requests":[{"name":"r","x":null,"exactly":{"y":{}}}]}}}',
        b'{"metadata":{"annotations":{"nam":"x"},"nam":{"nam":[]}},"Spec":{},"spec":{"devices":{}}}',
        b'{"metadata":{"labels":{"a":"<\\"\\\\"}},"spec":{"devices":{"config":[{"opaque":{"parameters":{"z":1.50}}}],"z":1e3}}}',
        b'{"status":{"allocation":null,"devices":[{"driver":"d","z":[{"a":1}]}]},"z":123456789012345678901234567890}',
    ],
)
def test_stray_fields_do_not_depend_on_spelling(body: bytes) -> None:
    spaced = json.dumps(json.loads(body, parse_float=Decimal), indent=1, default=float).encode()
    found = find_stray_fields(body, ResourceClaim)
    assert found
    assert found == find_stray_fields(spaced, ResourceClaim)
    assert found == find_stray_fields(body + b"\n", ResourceClaim), "as Go's programs print it"
    twice = body[:-1] + b',"z":0,"z":1}'
    for printed in (twice, twice + b"\n"):
        assert 'duplicate field "z"' in map(str, find_stray_fields(printed, ResourceClaim))


def test_repeated_keys_in_opaque_parameters_are_reported_and_unknown_keys_are_not() -> None:
    body = b'{"spec":{"config":[{"opaque":{"driver":"d","parameters":{"free":[{"a":1,"a":2}]}}}]}}'
    assert [str(stray) for stray in find_stray_fields(body, DeviceClass)] == [
        'duplicate field "spec.config[0].opaque.parameters.free[0].a"'
    ]


def test_map_keys_are_sorted_and_numbers_keep_their_text() -> None:
    body = b'{"metadata":{"labels":{"b":"1","a":"2"},"managedFields":[{"x":1.50}]},"spec":{}}'
    assert (
        encode(decode(body, DeviceClass))
        == b'{"metadata":{"labels":{"a":"2","b":"1"},"managedFields":[{"x":1.50}]},"spec":{}}'
    )


def test_recorded_decode_errors_are_reproduced() -> None:
    """Kubernetes' decode errors are ours; times are checked later, by admission."""
    wrong = [case["name"] for case in recorded_cases() if cannot_be_decoded(case) == decodes(case)]
    assert wrong == []


def recorded_cases() -> Iterator[dict[str, Any]]:
    for name in ("api", "api-consumable-capacity-off"):
        with gzip.open(VECTORS / f"{name}.jsonl.gz", "rt", encoding="utf-8") as lines:
            yield from map(json.loads, lines)


def cannot_be_decoded(case: dict[str, Any]) -> bool:
    return case["code"] == 400 and "cannot be handled" in case["message"] and "parsing time" not in case["message"]


def decodes(case: dict[str, Any]) -> bool:
    version, *rest = case["path"].removeprefix("/apis/resource.k8s.io/").partition("?")[0].split("/")
    kind = next(KINDS[part] for part in rest if part in KINDS)
    wire_type = getattr(v1beta1 if version == "v1beta1" else resource_v1, kind, None) or getattr(resource_v1, kind)
    try:
        decode(json.dumps(case["body"]).encode(), wire_type)
    except DecodeError:
        return False
    return True


# --- Properties ----------------------------------------------------------------------------------------------

WIRE_TYPES: list[type[msgspec.Struct]] = [
    *(ResourceSlice, ResourceClaim, ResourceClaimTemplate, DeviceClass, DeviceTaintRule),
    *(v1beta1.ResourceSlice, v1beta1.ResourceClaim, v1beta1.ResourceClaimTemplate),
]


@pytest.mark.slow
@pytest.mark.parametrize("wire_type", WIRE_TYPES, ids=lambda wire_type: f"{wire_type.__module__}.{wire_type.__name__}")
@given(data=st.data())
def test_encoding_round_trips(wire_type: type[msgspec.Struct], data: st.DataObject) -> None:
    value = data.draw(wire_objects(wire_type))
    body = encode(value)
    assert decode(body, wire_type) == value
    assert encode(decode(body, wire_type)) == body
    assert find_stray_fields(body, wire_type) == ()


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.just("1Gi"),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["spec", "metadata", "devices", "name", "capacity", "value", "driver", "x"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


@pytest.mark.fuzz
@given(json_values.map(lambda value: json.dumps(value).encode()) | st.binary(max_size=50))
def test_any_bytes_decode_or_raise_decode_error(body: bytes) -> None:
    for wire_type in (ResourceSlice, ResourceClaim):
        try:
            value = decode(body, wire_type)
        except DecodeError:
            continue
        assert decode(encode(value), wire_type) == value


def test_quantities_compare_by_number_in_objects() -> None:
    one, other = (resource_v1.DeviceCapacity(value=Quantity.parse(text)) for text in ("1Ki", "1024"))
    assert one == other


@pytest.mark.parametrize("amount", ["1000E", "2000E", "-1000E"])
def test_a_large_amount_survives_storing(amount: str) -> None:
    # Kubernetes stores 10^21 as "1".
    capacity = resource_v1.DeviceCapacity(value=Quantity.parse(amount))
    assert decode(encode(capacity), resource_v1.DeviceCapacity) == capacity
