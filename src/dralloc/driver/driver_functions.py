"""A driver made of functions instead of a subclass of `Driver`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from dralloc.driver.driver import Driver
from dralloc.driver.program import run

Function = TypeVar("Function", bound=Callable[..., Any])


class DriverFunctions:
    """A driver made of functions.

    driver = DriverFunctions("gpu.example.com")

    @driver.devices
    def devices(): ...

    @driver.prepare
    def prepare(claim): ...

    driver.run()
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._functions: dict[str, Callable[..., Any]] = {}

    def devices(self, function: Function) -> Function:
        """A decorator for the function that is `Driver.devices`."""
        return self._take("devices", function)

    def prepare(self, function: Function) -> Function:
        """A decorator for the function that is `Driver.prepare`."""
        return self._take("prepare", function)

    def unprepare(self, function: Function) -> Function:
        """A decorator for the function that is `Driver.unprepare`."""
        return self._take("unprepare", function)

    def health(self, function: Function) -> Function:
        """A decorator for the function that is `Driver.health`."""
        return self._take("health", function)

    def monitor(self, function: Function) -> Function:
        """A decorator for the function that is `Driver.monitor`."""
        return self._take("monitor", function)

    def driver(self) -> Driver:
        """The driver with these functions; raises `TypeError` if `devices` or `prepare` is missing."""
        if missing := [name for name in ("devices", "prepare") if name not in self._functions]:
            raise TypeError(f"driver {self.name} has no function for {' and '.join(missing)}")
        methods = {name: staticmethod(function) for name, function in self._functions.items()}
        return cast("Driver", type("FunctionDriver", (Driver,), {"name": self.name, **methods})())

    def run(self) -> None:
        """Run the driver as a program."""
        run(self.driver())

    def _take(self, name: str, function: Function) -> Function:
        if name in self._functions:
            raise TypeError(f"driver {self.name} has two functions for {name}")
        self._functions[name] = function
        return function
