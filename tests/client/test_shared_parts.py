"""Objects that a client reads share their equal parts, and are what they would be without that."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dralloc.client import typed_resource
from dralloc.client.typed_resource import SharedParts
from dralloc.kube.codec import decode, encode
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.resource_v1 import ResourceClaim, ResourceSlice
from dralloc.testing.builders import claim, device, request, resource_slice
from tests.support.workloads import existing, pod, seen

images = st.sampled_from(["a", "b", "c"])


@given(st.lists(images, max_size=8))
def test_pods_with_equal_containers_share_them(chosen: list[str]) -> None:
    parts, kept = SharedParts(), list[Pod]()
    for number, image in enumerate(chosen):
        document = pod(f"p-{number}", {"gpu": existing("c")})
        document["spec"]["containers"][0]["image"] = image
        read = seen(document)
        kept.append(parts.share(read))
        assert kept[-1] == read
    assert len({id(each.spec.containers) for each in kept}) == len(set(chosen))


def test_claims_share_their_specs_and_slices_their_devices() -> None:
    parts = SharedParts()
    claims = [parts.share(decode(encode(claim(name, request())), ResourceClaim)) for name in ("a", "b")]
    assert claims[0].spec is claims[1].spec
    slices = [
        parts.share(decode(encode(resource_slice(node, device("gpu-0"), pool=node)), ResourceSlice))
        for node in ("a", "b")
    ]
    assert slices[0].spec.devices is slices[1].spec.devices
    assert slices[0].spec != slices[1].spec


def test_a_quantity_is_read_as_it_was_written() -> None:
    parts = SharedParts()
    for amount in ("1Gi", "1073741824", "1024Mi"):
        text = encode(resource_slice("a", device("gpu-0", capacity={"memory": amount})))
        assert encode(parts.share(decode(text, ResourceSlice))) == text


def test_what_is_remembered_is_bounded() -> None:
    parts = SharedParts()
    for number in range(3 * typed_resource.PARTS_MAX):
        parts.one("field", (number,))
    assert len(parts._seen) <= typed_resource.PARTS_MAX
