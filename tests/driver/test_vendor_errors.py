"""Mistakes of a driver's author are told in one line, with the type, the place and what is expected."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import dralloc.driver as driver_sdk
import dralloc.driver.devices as devices_module
from dralloc.driver import (
    AllocatedDevice,
    DeviceHealth,
    DeviceKey,
    Health,
    Pool,
    capacity,
    device,
    taint,
    version,
)
from dralloc.driver.slices import check_pools
from dralloc.driver.vendor_errors import UnknownArgument, place_of, text_of
from dralloc.kube.resource_v1 import DeviceCapacity

# Drivers need not have types.
UNTYPED: Any = driver_sdk
SHARE = AllocatedDevice(key=DeviceKey("pool", "gpu-0"), request="gpu")


@pytest.mark.parametrize(
    ("call", "want"),
    [
        (lambda: capacity("80Gi", minimun="1Gi"), "capacity() has no argument 'minimun'; did you mean 'minimum'? It has: value, default, valid, "),  # type: ignore[call-arg]
        (lambda: capacity("80Gi", valid_values=["1Gi"]), "did you mean 'valid'?"),  # type: ignore[call-arg]
        (lambda: device("d", sharable=True), "did you mean 'shareable'?"),  # type: ignore[call-arg]
        (lambda: device("d", xyz=True), "device() has no argument 'xyz'. It has: name, attributes, "),  # type: ignore[call-arg]
        (lambda: taint("k", efect="NoExecute"), "did you mean 'effect'?"),  # type: ignore[call-arg]
        (lambda: version("1.0", txt=""), "did you mean 'text'?"),  # type: ignore[call-arg]
        (lambda: Pool(name="p", device=()), "Pool() has no argument 'device'; did you mean 'devices'?"),  # type: ignore[call-arg]
        (lambda: DeviceHealth(device="d", health=Health.HEALTHY, mesage=""), "did you mean 'message'?"),  # type: ignore[call-arg]
        (lambda: SHARE.prepared(environment={}), "prepared() has no argument 'environment'; did you mean 'env'? It has: env, "),  # type: ignore[call-arg]
    ],
)  # fmt: skip
def test_an_argument_that_does_not_exist_is_answered_with_those_that_do(call: Callable[[], object], want: str) -> None:
    with pytest.raises(UnknownArgument) as raised:
        call()
    assert want in str(raised.value)


@pytest.mark.parametrize(
    ("call", "want"),
    [
        (lambda: UNTYPED.device("d", attributes={"speed": 1.5}), "device d, attribute speed: 1.5 is a float; use a str, an int, a bool or version(...)"),
        (lambda: UNTYPED.device("d", attributes={"links": ["a"]}), "attribute links: ['a'] is a list; use a str"),
        (lambda: UNTYPED.device("d", attributes={"model": None}), "attribute model: None is a NoneType; use a str"),
        (lambda: UNTYPED.device("d", attributes={"firmware": UNTYPED.version(1.2)}), "version(): 1.2 is a float; use a str"),
        (lambda: UNTYPED.device("d", attributes=["model"]), "device d: attributes is a list; use a dict by name"),
        (lambda: UNTYPED.device("d", capacity={"memory": 1.5}), "device d, capacity memory: 1.5 is a float; use an int or a str such as '1500m' or '10Gi'"),
        (lambda: UNTYPED.device("d", capacity={"memory": "8GiB"}), "device d, capacity memory: '8GiB' is not a quantity"),
        (lambda: UNTYPED.device("d", capacity={"memory": None}), "device d, capacity memory: None is a NoneType; use an int or a str"),
        (lambda: UNTYPED.device("d", capacity="80Gi"), "device d: capacity is a str; use a dict by name"),
        (lambda: UNTYPED.device("d", draws={"card": {"memory": 1.5}}), "device d, draws card: 1.5 is a float; use an int or a str"),
        (lambda: UNTYPED.device("d", draws={"card": "80Gi"}), "device d, draws card: '80Gi' is a str; use a dict by name"),
        (lambda: UNTYPED.device("d", taints="hot"), "device d: taints is a str; use a list of taint(...)"),
        (lambda: UNTYPED.device("d", taints=UNTYPED.taint("hot")), "device d: taints is a DeviceTaint; use a list of taint(...)"),
        (lambda: UNTYPED.device("d", taints=["hot"]), "device d: taints has 'hot'; use a list of taint(...)"),
        (lambda: UNTYPED.device(7), "device(): the name 7 is not a str"),
        (lambda: UNTYPED.capacity("80Gi", default=1.5), "1.5 is a float; use an int or a str"),
        (lambda: UNTYPED.capacity("80Gi", valid="10Gi"), "capacity(): valid is a str; use a list of amounts"),
        (lambda: UNTYPED.counter_set("card", memory=1.5), "1.5 is a float; use an int or a str"),
    ],
)  # fmt: skip
def test_a_value_of_another_type_is_answered_with_those_that_can_be_given(
    call: Callable[[], object], want: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(want)):
        call()


EXAMPLES = [
    paragraph.strip()
    for described in (devices_module, *(getattr(driver_sdk, name) for name in driver_sdk.__all__))
    for paragraph in re.split(r"\n\s*\n", inspect.getdoc(described) or "")
    if re.match(r"\s*(device|capacity|counter_set|taint|version|Pool)\(", paragraph)
]


@pytest.mark.parametrize("example", [line for lines in EXAMPLES for line in lines.splitlines()])
def test_examples_of_the_sdk_are_accepted_by_an_api_server(example: str) -> None:
    made = eval(example, vars(driver_sdk))
    if isinstance(made, DeviceCapacity):
        made = device("d", capacity={"memory": made}, shareable=True)
    check_pools([made if isinstance(made, Pool) else Pool(name="n", devices=(made,))], "gpu.example.com", "n")


def test_there_are_examples() -> None:
    assert any(example.startswith("device(") for example in EXAMPLES)


@pytest.mark.parametrize(
    ("error", "want"),
    [
        (ValueError("too hot"), "ValueError: too hot"),
        (KeyError("gpu-7"), "KeyError: 'gpu-7'"),
        (RuntimeError(), "RuntimeError"),
        (AssertionError(), "AssertionError"),
    ],
)
def test_an_exception_is_shown_with_its_type(error: Exception, want: str) -> None:
    assert text_of(error) == want


@pytest.mark.parametrize(
    ("file", "want"),
    [
        ("/srv/driver.py", "driver.py, line 1"),
        (f"{sys.base_prefix}/lib/python3.11/site-packages/driver.py", "driver.py, line 1"),
        (f"{sys.base_prefix}/lib/python3.11/json/decoder.py", "test_vendor_errors.py"),
        (driver_sdk.__file__, "test_vendor_errors.py"),
    ],
    ids=["a file", "installed in an image", "the standard library", "the SDK"],
)
def test_the_place_of_an_exception_is_in_the_code_of_the_vendor(file: str, want: str) -> None:
    with pytest.raises(ZeroDivisionError) as raised:
        exec(compile("1 / 0", file, "exec"))
    assert place_of(raised.value).startswith(want)


PROGRAM = """
from dralloc.driver import DriverFunctions, capacity, device
{top}
driver = DriverFunctions("gpu.example.com")
@driver.devices
def devices():
    return {returned}
driver.prepare(lambda claim: [])
driver.run()
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("top", "returned", "want"),
    [
        ('memory = capacity("80Gi", minimun="1Gi")', "[]", "driver.py, line 3: UnknownArgument: capacity() has no"),
        ("", '[device("a", capacity={"m": capacity("8Gi", stp="1Gi")})]', "devices() failed: driver.py, line 7: UnknownArgument"),
        ("", '[device("a", capacity={"m": capacity("8GiB")})]', "devices() failed: driver.py, line 7: QuantityError: '8GiB'"),
        ("", "1 / 0", "devices() failed: driver.py, line 7: ZeroDivisionError: division by zero"),
        ("", "None", "devices() has to return a list of device(...) or Pool(...), not None"),
        ("", "['gpu-0']", "devices() has to return a list of device(...) or Pool(...), not of 'gpu-0'"),
    ],
    ids=["at the top", "in devices", "an amount", "another exception", "nothing", "names"],
)  # fmt: skip
def test_a_person_who_runs_the_driver_sees_no_traceback(tmp_path: Path, top: str, returned: str, want: str) -> None:
    program = tmp_path / "driver.py"
    program.write_text(PROGRAM.format(top=top, returned=returned))
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(
        "{current-context: c, contexts: [{name: c, context: {cluster: c}}], "
        "clusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}]}"
    )
    directories = {f"DRA_{name}_DIR": str(tmp_path / name) for name in ("PLUGINS", "REGISTRY", "CDI")}
    done = subprocess.run(
        [sys.executable, program],
        env={"NODE_NAME": "n", "KUBECONFIG": str(kubeconfig), **directories},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode != 0
    assert want in done.stderr
    assert "Traceback" not in done.stderr
