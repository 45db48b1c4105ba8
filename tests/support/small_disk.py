"""A disk of two megabytes that a test can fill or make read-only."""

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

    def make_read_only(self) -> None:
        """No file of it is open."""
        if self.mounted:
            subprocess.run(["mount", "-o", "remount,ro", str(self.directory)], check=True)
        for path in () if self.mounted else self.directory.iterdir():
            path.chmod(0o400)

    def make_writable(self) -> None:
        if self.mounted:
            subprocess.run(["mount", "-o", "remount,rw", str(self.directory)], check=True)
        for path in () if self.mounted else self.directory.iterdir():
            path.chmod(0o600)

    def remove(self) -> None:
        self.make_writable()
        self.free()
        if self.mounted:
            subprocess.run(["umount", str(self.directory)], check=True)
