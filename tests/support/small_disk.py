"""A disk of two megabytes that a test can fill."""

from __future__ import annotations

import contextlib
import resource
import subprocess
from pathlib import Path


class SmallDisk:
    """A directory on a disk that can be filled and freed: a small tmpfs if we may mount one, else a limit on file
    sizes.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.directory.mkdir()
        mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(directory)]
        self.mounted = subprocess.run(mount, capture_output=True, check=False).returncode == 0
        self._limits = resource.getrlimit(resource.RLIMIT_FSIZE)

    def fill(self) -> None:
        if not self.mounted:
            resource.setrlimit(resource.RLIMIT_FSIZE, (256 << 10, self._limits[1]))
            return
        with contextlib.suppress(OSError), (self.directory / "filler").open("wb", buffering=0) as filler:
            while True:
                filler.write(bytes(4096))

    def free(self) -> None:
        if self.mounted:
            (self.directory / "filler").unlink(missing_ok=True)
        else:
            resource.setrlimit(resource.RLIMIT_FSIZE, self._limits)

    def remove(self) -> None:
        self.free()
        if self.mounted:
            subprocess.run(["umount", str(self.directory)], check=True)
