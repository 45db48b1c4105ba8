"""Threads that use the same types for the first time concurrently; in a process of their own, because a failure would
crash it.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

# Switch threads as often as possible, to make the race likely.
BEGINNING = """
import sys, threading
from dralloc.kube.codec import convert, decode
from dralloc.kube.resource_v1 import ResourceClaim
from dralloc.driver.claims import Config

def meet(work):
    threads = [threading.Thread(target=work) for _ in range(6)]
    sys.setswitchinterval(1e-6)
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
"""
STATUS = {"allocation": {"devices": {"results": [{"request": "r", "driver": "d", "pool": "p", "device": "x"}]}}}

WORK = {
    "decoding": f"meet(lambda: decode(msgspec.json.encode({{'status': {STATUS}}}), ResourceClaim))",
    "converting": f"meet(lambda: convert({{'status': {STATUS}}}, ResourceClaim))",
    "parameters of a driver": f"meet(lambda: Config('FromClaim', msgspec.json.encode({{'status': {STATUS}}})).read(ResourceClaim))",
}


@pytest.mark.slow
@pytest.mark.parametrize("work", WORK.values(), ids=WORK.keys())
def test_concurrent_first_use_of_a_type_is_safe(work: str) -> None:
    done = subprocess.run([sys.executable, "-c", f"import msgspec\n{BEGINNING}\n{work}"], timeout=250, check=False)
    assert done.returncode == 0
