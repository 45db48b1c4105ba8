"""The evaluator: runs any expression with exact values, errors and costs."""

from __future__ import annotations

from dralloc.cel.closure_runtime import EvaluationFrame, Observer, finish
from dralloc.cel.closures import ClosureBuilder
from dralloc.cel.code_planner import DEVICE_SLOT, CodePlanner
from dralloc.cel.errors import CelEvaluationError
from dralloc.cel.meter import COST_MAX
from dralloc.cel.type_checker import TypedExpression
from dralloc.cel.values import Map, Value
from dralloc.primitives.work_allowance import work_done


class Evaluator:
    """An expression that is ready to evaluate."""

    def __init__(self, typed: TypedExpression, observe: Observer | None = None) -> None:
        planner = CodePlanner(typed, ClosureBuilder(typed, observe))
        self._run = finish(planner.plan())
        self._slots_count = planner.slots_count

    def evaluate(self, device: Map, cost_max: int = COST_MAX) -> Value:
        """Returns the value for a device. Raises `CelEvaluationError`."""
        return self.measure(device, cost_max)[0]

    def measure(self, device: Map, cost_max: int = COST_MAX) -> tuple[Value, int]:
        """Returns the value for a device, and its cost."""
        frame = EvaluationFrame(self._slots_count, cost_max)
        frame.slots[DEVICE_SLOT] = device
        try:
            value = self._run(frame)
        except RecursionError:
            raise CelEvaluationError("the expression is nested too deeply to be evaluated") from None
        finally:
            work_done(max(frame.cost, frame.work))
        # Small costs are only accumulated before; check the limit now.
        frame.charge(0)
        return value, frame.cost
