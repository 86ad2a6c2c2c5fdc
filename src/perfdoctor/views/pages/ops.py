"""The page `ops`: which ops, ranges, functions and calls take the time, of the host and of the GPU?"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from perfdoctor.metrics import grouping
from perfdoctor.metrics.host.costs import HostCosts, call_costs, line_costs, op_costs, range_costs
from perfdoctor.metrics.kernels.costs import short_types
from perfdoctor.model.columns import Floats, Ints
from perfdoctor.model.run import Run
from perfdoctor.records.diagnosis import Diagnosis
from perfdoctor.records.views import Table, TableColumn
from perfdoctor.views.tables import a_step, looked_at, numbers, of_the_step, table, text

#: A large model has a few hundred ops that differ in their shapes.
_MOST_ROWS = 1_000


def view(run: Run, diagnosis: Diagnosis) -> Iterator[Table]:
    if (costs := line_costs(run)) is not None:
        told = (
            "What your own functions cost, with all that libraries do for them; the costliest first. The number is the "
            f"line on which the function begins, or stood when the recording began. {looked_at(run)}"
        )
        yield from table("ops", "lines", "Your own code", told, _columns(run, costs, ("function",)), most=_MOST_ROWS)
    if (costs := op_costs(run)) is not None:
        told = f"Calls of the framework by shapes and types of their inputs; the costliest first. {looked_at(run)}"
        keys = ("op", "input shapes", "input types")
        yield from table("ops", "ops", "Ops", told, _columns(run, costs, keys), most=_MOST_ROWS)
    if (costs := range_costs(run)) is not None:
        told = f"What the program marked; # stands for a number that counts up. {looked_at(run)}"
        yield from table("ops", "ranges", "Ranges", told, _columns(run, costs, ("range",)), most=_MOST_ROWS)
    if (costs := call_costs(run)) is not None:
        told = f"Calls of the GPU's runtime and driver. {looked_at(run)}"
        yield from table("ops", "calls", "Runtime calls", told, _columns(run, costs, ("call",)), most=_MOST_ROWS)


def _columns(run: Run, costs: HostCosts, keys: tuple[str, ...]) -> list[TableColumn]:
    step, order = a_step(run), _order(costs)
    own = _own_ns(costs)
    what = "GPU work that it asked for" if _has_device(costs) else "Host time"
    mean = grouping.ratio(costs.host_ns, costs.count_per_step)
    texts = [text(key, [costs.keys[at][place] for at in order.tolist()]) for place, key in enumerate(keys)]
    return [
        *texts[:2],
        numbers(f"calls{step}", "count", costs.count_per_step[order], adds_up=True),
        numbers(
            of_the_step(run), "share", (own / max(run.step_ns, 1))[order],
            f"{what} itself, and no {keys[0]} inside it, as a share of the step.", adds_up=True,
        ),
        numbers(f"host time{step}", "ns", costs.host_ns[order], "From begin to end, with all that it calls."),
        numbers(f"own host time{step}", "ns", costs.own_host_ns[order], f"Without {keys[0]}s inside.", adds_up=True),
        numbers(f"GPU time{step}", "ns", costs.device_ns[order], "Kernels, collectives and copies asked for in it."),
        numbers(
            f"own GPU time{step}", "ns", costs.own_device_ns[order], f"Asked for in no {keys[0]} inside.", adds_up=True
        ),
        numbers(
            f"GPU idle behind it{step}", "ns", _if_any(costs.idle_ns)[order],
            "After its blocking calls had emptied the queue.", adds_up=True,
        ),
        numbers("mean", "ns", mean[order], "Host time of one call, as far as it lies in the window."),
        numbers("calls in all", "count", costs.count[order], "Of all ranks and steps looked at.", adds_up=True),
        *(text(types.name, [short_types(str(told)) for told in types.values]) for types in texts[2:]),
    ]  # fmt: skip


def _if_any(quantity: Floats) -> Floats:
    return quantity if np.nan_to_num(quantity).any() else np.full(quantity.size, np.nan)


def _has_device(costs: HostCosts) -> bool:
    return bool((np.nan_to_num(costs.own_device_ns) > 0).any())


def _own_ns(costs: HostCosts) -> Floats:
    """What a share of the step is of: work of the device, where there was one."""
    return costs.own_device_ns if _has_device(costs) else costs.own_host_ns


def _order(costs: HostCosts) -> Ints:
    cost = np.nan_to_num(_own_ns(costs)) + np.nan_to_num(costs.idle_ns)
    return np.lexsort((-costs.own_host_ns, -cost))
