"""Mistakes of a driver's author are told in one line, with the type, the place and what is expected."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from dralloc.driver import AllocatedDevice, DeviceHealth, DeviceKey, Health, Pool, capacity, device, taint, version
from dralloc.driver.vendor_errors import UnknownArgument, text_of

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
