"""The page `ops`: which functions, modules, ops, ranges and calls take the time of the host and of the GPU?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from perfdoctor.metrics import grouping
from perfdoctor.metrics.host import sampled_lines
from perfdoctor.metrics.host.costs import HostCosts, call_costs, line_costs, op_costs, range_costs
from perfdoctor.metrics.host.sampled_lines import SampledLine
from perfdoctor.metrics.kernels.costs import short_types
from perfdoctor.model.run import Run
from perfdoctor.records.diagnosis import Diagnosis
from perfdoctor.records.views import Icicle, Table, TableColumn
from perfdoctor.views import icicles
from perfdoctor.views.pages.kernels import measured_columns
from perfdoctor.views.tables import a_step, basis, numbers, of_the_step, table, text

#: A large model has a few hundred ops with different shapes.
_MOST_ROWS = 1_000


def view(run: Run, diagnosis: Diagnosis) -> Iterator[Icicle | Table]:
    if len(run.timeline["stack_samples"]):
        yield from _on_clock(run) if sampled_lines.on_clock(run.timeline) else ()
        yield from _profile(run)
    yield from icicles.stacks(run)
    if (costs := line_costs(run)) is not None:
        explained = (
            "Functions of your code, including the library code that they call; costliest first. The number is the "
            f"line where the function begins, or the line it was at when the recording began. {basis(run)}"
        )
        yield from table("ops", "lines", "Your code", explained, _columns(run, costs, ("function",)), most=_MOST_ROWS)
    yield from icicles.modules(run, diagnosis.modules)
    if (costs := op_costs(run)) is not None:
        explained = f"Framework ops by shapes and types of their inputs; costliest first. {basis(run)}"
        keys = ("op", "input shapes", "input types")
        yield from table("ops", "ops", "Ops", explained, _columns(run, costs, keys), most=_MOST_ROWS)
    if (costs := range_costs(run)) is not None:
        explained = f"NVTX ranges and user annotations; # stands for a number that counts up. {basis(run)}"
        yield from table("ops", "ranges", "Ranges", explained, _columns(run, costs, ("range",)), most=_MOST_ROWS)
    if (costs := call_costs(run)) is not None:
        explained = f"Calls of the GPU's runtime and driver. {basis(run)}"
        yield from table("ops", "calls", "Runtime calls", explained, _columns(run, costs, ("call",)), most=_MOST_ROWS)


def _profile(run: Run) -> Iterator[Table]:
    """Own lines in the samples of another tool, of which only the number is known."""
    explained = (
        "Samples that are not on this recording's clock, so they are of all the time that was sampled, its start "
        "included; library code counts for the line that called it. Costliest line first."
    )
    for name, title, is_worker in (("profile", "Your code", False), ("worker-profile", "Your data", True)):
        lines = sampled_lines.of_profile(run.timeline, is_worker=is_worker)
        columns = _lines(run, lines, None)
        yield from table("ops", name, f"{title}, not on this recording's clock", explained, columns)


def _on_clock(run: Run) -> Iterator[Table]:
    """Own lines in the samples of stacks: of the training, and of its loader's workers."""
    windows = [(place.rank, place.window) for place in run.places]
    idle = [(place.rank, place.idle) for place in run.places]
    lines = sampled_lines.of_training(run.timeline, windows)
    while_idle = {line.name: line.samples for line in sampled_lines.of_training(run.timeline, idle)}
    explained = (
        "The training thread's line at each sample of its stack; library code counts for the line that called it, and "
        f"where it waits for another thread of yours, that one's line. Costliest line first. {basis(run)}"
    )
    yield from table("ops", "sampled", "Your code, line by line", explained, _lines(run, lines, while_idle))
    explained = "The same of the loader's workers, while they fetched samples; two of the workers are sampled."
    workers = sampled_lines.of_workers(run.timeline, windows)
    yield from table("ops", "workers", "Your data, line by line", explained, _lines(run, workers, None))


def _lines(run: Run, lines: Sequence[SampledLine], while_idle: Mapping[str, int] | None) -> list[TableColumn]:
    """`while_idle`: samples by name at which the device stood still; None where their time is no step's."""
    lines = sorted(lines, key=lambda line: -line.samples)
    shares = np.array([line.share for line in lines])
    columns = [
        text("line", [f"{file}:{number}" for file, number, _ in (line.place for line in lines)]),
        text("code", [" ".join(line.text(run.timeline)[:1]) for line in lines], "As it was when it was recorded."),
        text("function", [line.place[2] for line in lines]),
        numbers("samples", "count", [line.samples for line in lines], adds_up=True),
    ]
    if while_idle is None:
        return [*columns, numbers("of these samples", "share", shares, adds_up=True)]
    idle_share = np.array([while_idle.get(line.name, 0) / line.samples for line in lines])
    no_work = "no op ran" if run.places[0].device is None else "the GPU was idle"
    return [
        *columns,
        numbers(of_the_step(run), "share", shares, "Of all samples of the training thread.", adds_up=True),
        numbers(f"host time{a_step(run)}", "ns", shares * run.step_ns, "Share × step.", adds_up=True),
        numbers(f"while {no_work}{a_step(run)}", "ns", idle_share * shares * run.step_ns, adds_up=True),
    ]


def _columns(run: Run, costs: HostCosts, keys: tuple[str, ...]) -> list[TableColumn]:
    step = a_step(run)
    has_device = bool((np.nan_to_num(costs.own_device_ns) > 0).any())
    # Self time on the device, or on the host if there is no device, is the basis of the share of the step.
    own, what = (costs.own_device_ns, "Self GPU time") if has_device else (costs.own_host_ns, "Self host time")
    order = np.lexsort((-costs.own_host_ns, -np.nan_to_num(own) - np.nan_to_num(costs.idle_ns)))
    idle = costs.idle_ns if np.nan_to_num(costs.idle_ns).any() else np.full(costs.idle_ns.size, np.nan)
    mean = grouping.ratio(costs.host_ns, costs.count_per_step)
    texts = [text(key, [costs.keys[at][place] for at in order.tolist()]) for place, key in enumerate(keys)]
    return [
        *texts[:2],
        numbers(f"calls{step}", "count", costs.count_per_step[order], adds_up=True),
        numbers(
            of_the_step(run), "share", (own / max(run.step_ns, 1))[order],
            f"{what}, as a share of the step.", adds_up=True,
        ),
        numbers(f"host time{step}", "ns", costs.host_ns[order], f"Including nested {keys[0]}s."),
        numbers(f"self host time{step}", "ns", costs.own_host_ns[order], f"Without nested {keys[0]}s.", adds_up=True),
        numbers(f"GPU time{step}", "ns", costs.device_ns[order], "Of the kernels, collectives and copies it launches."),
        numbers(
            f"self GPU time{step}", "ns", costs.own_device_ns[order], f"Without nested {keys[0]}s.", adds_up=True
        ),
        numbers(
            f"GPU idle after it{step}", "ns", idle[order],
            "After its blocking calls had emptied the queue.", adds_up=True,
        ),
        *measured_columns({name: shares[order] for name, shares in costs.counted.items()}),
        numbers("mean", "ns", mean[order], "Host time of one call, within the window."),
        numbers("total calls", "count", costs.count[order], "In all ranks and steps analysed.", adds_up=True),
        *(text(types.name, [short_types(str(value)) for value in types.values]) for types in texts[2:]),
    ]  # fmt: skip
