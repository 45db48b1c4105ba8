"""A directory for PATH with a kubectl that can patch a status, whichever kubectl the machine has.

`patch --subresource` came with kubectl 1.24; Debian has 1.20. For an older kubectl, this program sends that patch itself.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

_SCRIPT = """\
#!/bin/sh
case " $* " in *" --subresource=status "*) exec {python} -m {module} "$@";; esac
exec {kubectl} "$@"
"""


def kubectl_directory(directory: Path) -> Path:
    """The directory with the program; `tests` must be importable where it runs."""
    kubectl = shutil.which("kubectl")
    assert kubectl is not None, "needs kubectl: scripts/install-system-tools installs it as root on Debian"
    programs = directory / "bin"
    programs.mkdir()
    helped = subprocess.run([kubectl, "patch", "--help"], capture_output=True, text=True, check=True).stdout
    program = programs / "kubectl"
    if "--subresource" in helped:
        program.symlink_to(kubectl)
    else:
        program.write_text(_SCRIPT.format(python=sys.executable, module=__name__, kubectl=kubectl))
        program.chmod(0o755)
    return programs


def _patch_status(arguments: list[str]) -> None:
    """`patch resourceclaim NAME --type=json --subresource=status -p PATCH -n NAMESPACE`"""
    from dralloc.client.api_calls import PatchType
    from dralloc.client.blocking_client import connect
    from dralloc.kube.resource_v1 import ResourceClaim

    verb, kind, name, *options = arguments
    assert (verb, kind) == ("patch", "resourceclaim"), arguments
    patch, namespace = (options[options.index(option) + 1] for option in ("-p", "-n"))
    with connect(os.environ["KUBECONFIG"]) as client:
        client.patch(
            ResourceClaim, name, json.loads(patch), namespace=namespace, type=PatchType.JSON, subresource="status"
        )


if __name__ == "__main__":
    _patch_status(sys.argv[1:])
