"""Large JSON is decoded piece by piece, with the same result as in one piece."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dralloc.api import large_json
from dralloc.api.codec import DecodeError, _decoder, decode, decode_tree, encode
from dralloc.api.kind_codec import whole_type
from dralloc.api.large_json import PIECE_BYTES, decode_large
from dralloc.api.manifests import read_manifest
from dralloc.api.registry import find_kind
from dralloc.api.resource_v1 import ResourceSlice
from dralloc.apiserver.objects.request_bodies import read_json

EXAMPLES = Path(__file__).parents[2] / "examples"


def objects() -> Iterator[tuple[str, str, bytes]]:
    for path in sorted(EXAMPLES.rglob("*.yaml")):
        for document in read_manifest(path.read_bytes()).documents:
            yield document.api_version, document.kind, document.body


def test_pieces_are_decoded_to_the_same_object(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large_json, "PIECE_BYTES", 20)
    compared = 0
    for api_version, kind_name, body in objects():
        kind = find_kind(api_version, kind_name)
        if kind is not None:
            wanted = whole_type(kind, api_version.rpartition("/")[2])
            assert decode_large(body, wanted, _decoder) == _decoder(wanted).decode(body)
            assert decode_large(body, dict[str, Any], _decoder) == msgspec.json.decode(body)
            compared += 1
    assert compared > 50


def large_slice(**device: Any) -> bytes:
    devices = [{"name": f"device-{number}", **device} for number in range(45_000)]
    return encode({"metadata": {"name": "s"}, "spec": {"driver": "d", "pool": {"name": "p"}, "devices": devices}})


def test_a_fault_of_a_large_object_is_explained_as_in_a_small_one() -> None:
    body = large_slice().replace(b'"device-44999"', b"44999")
    assert len(body) > 10 * PIECE_BYTES
    with pytest.raises(DecodeError, match=r"spec\.devices\[44999\]\.name: expected text, got the number 44999"):
        decode(body, ResourceSlice)


def deep(levels: int) -> bytes:
    """A pod with many small values far inside."""
    return b'{"spec":' + b'{"a":' * levels + b"[" + b",".join([b'{"b":{}}'] * 200_000) + b"]" + b"}" * levels + b"}"


def test_deep_values_are_decoded_to_the_same_object() -> None:
    for body in (deep(3), deep(200)):
        assert decode_large(body, dict[str, Any], _decoder) == msgspec.json.decode(body)


def test_opaque_values_do_not_keep_what_they_were_sent_with() -> None:
    class Part(msgspec.Struct):
        opaque: msgspec.Raw
        rest: str

    body = b'{"opaque":{"a":1},"rest":"' + b"x" * PIECE_BYTES + b'"}'
    before = sys.getrefcount(body)
    part = decode_large(body, Part, msgspec.json.Decoder)
    assert (bytes(part.opaque), sys.getrefcount(body)) == (b'{"a":1}', before)


CALLED_FOR_LARGE = [
    pytest.param(large_slice(attributes={"Bad Name": {}}), lambda body: decode(body, ResourceSlice), id="slice"),
    pytest.param(deep(6), decode_tree, id="deep"),
    pytest.param(deep(6), read_json, id="patch"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("body", "read"), CALLED_FOR_LARGE)
def test_no_call_of_the_decoder_reads_a_large_object_at_once(body: bytes, read: Callable[[bytes], Any]) -> None:
    """Python's lock is free between the calls. Processor time, because a busy machine is no fault of theirs."""
    calls: list[tuple[float, str]] = []
    began: list[float] = []

    def on_event(_frame: object, event: str, function: Any) -> None:
        if event == "c_call":
            began.append(time.thread_time())
        elif event in ("c_return", "c_exception") and began:
            calls.append((time.thread_time() - began.pop(), getattr(function, "__qualname__", "")))

    whole = time.thread_time()
    msgspec.json.decode(body)
    whole = time.thread_time() - whole
    sys.setprofile(on_event)
    try:
        read(body)
    finally:
        sys.setprofile(None)
    longest = max(duration for duration, name in calls if name.startswith("Decoder"))
    assert longest < whole / 2
