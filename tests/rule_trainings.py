"""On which training does each rule fire, and in which healthy ones does it look and stay silent? Each is diagnosed."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

import plant
from builders import draw, draw_steps
from counters_builder import sampled
from idle_cause_cases import ALLOCATES
from machine_builders import on_cores
from msgspec.structs import replace
from whole_runs import EVERY_KIND, run_with, whole_run

from perfdoctor.diagnosis.engine import Examination, examine
from perfdoctor.metrics.accounting.prepare import prepare
from perfdoctor.model.timeline import Device, Text, Timeline
from perfdoctor.model.whole_run import WholeRun
from perfdoctor.readers.open import read
from perfdoctor.records.views import TimelineView, Views
from perfdoctor.report import html
from perfdoctor.views.build import views
from perfdoctor.vocabulary.pauses import PAUSES
from perfdoctor.vocabulary.rulebook import load_rules

#: The planted share of a step that every rule must see.
_SHARE = 0.3
#: Healthy trainings, each with one of these recorded as well: counters, GPU samples, the network, memory.
_TWINS = (
    "kernels-near-their-limits", "passes-that-the-memory-does-not-limit", "cool-gpus", "links-and-network-in-order",
    "memory-that-is-enough",
)  # fmt: skip
#: What the GPU's counters show while kernels with these words in their names run.
_COUNTED = {"gemm": {"tensor_active_share": 0.6}, "flash": {"tensor_active_share": 0.5}}
_ON_CPU = draw(host=["o" * 39 + " "], repeat=6, unit_us=1000)


def _start() -> Timeline:
    """A kernel is loaded for 20 ms; then four more are launched."""
    return draw(
        kernels="e" + " " * 2_001 + "S" + "  + #" * 4,
        host=["l" + " " + "c" * 2_000 + " " + "  l  " * 4, "p" * 2_002],
        legend={"c": ("calls", "cudaLaunchKernel"), "p": ("ops", "aten::add")},
        unit_us=10,
    )


def _short_ops() -> Timeline:
    """Steps of 200 ops of 5 µs each, in no order."""
    names = {"x": ("ops", "aten::mm"), "e": ("ops", "aten::add_"), "n": ("ops", "aten::t"), "y": ("ops", "aten::mul")}
    return draw(host=" ".join(random.Random(3).choices("xeny", k=200)), legend=names, repeat=6, unit_us=5)


def _new_iterators() -> Timeline:
    """Each step makes a new iterator of the loader, and the GPU computes meanwhile."""
    making = {"B": ("functions", "torch/utils/data/dataloader.py(440): _get_iterator")}
    return draw(
        kernels="#" * 40, host=["l" + " " * 39, " " * 10 + "B" * 11 + " " * 19], repeat=6, unit_us=1000, legend=making
    )


def _known_shapes() -> Timeline:
    """Steps with one bf16 matrix product of 8192 × 8192 by 8192 × 8192, which the roofline knows."""
    product = {"m": ("ops", "aten::mm")}
    drawn = draw_steps(kernels="####GG####", host=["   mmm    "], legend=product, gpu="NVIDIA H100 80GB HBM3")
    shapes = Text.of(["[[8192, 8192], [8192, 8192]]"] * len(drawn.ops))
    return replace(drawn, frames={**drawn.frames, "ops": drawn.ops.with_columns(input_shapes=shapes)})


def _whole(run: WholeRun) -> Timeline:
    """Steps on a CPU, recorded in the middle of this run."""
    return replace(_ON_CPU, whole_runs=(run,))


def _convolutions_on_cpu() -> Timeline:
    convolves = {"m": ("ops", "aten::mkldnn_convolution")}
    return draw(host=["m" * 39 + " "], repeat=6, unit_us=1000, legend=convolves)


#: Rules whose fault cannot be planted.
_DRAWN: Mapping[str, Callable[[], Timeline]] = {
    "one-time-costs": _start,
    "small-batch": _short_ops,
    "one-long-step": lambda: ALLOCATES.one_step_of_six(longer=40),
    "busy-machine": lambda: on_cores(_ON_CPU, waited=0.5, program_cores=1.0, waiting_threads=1.0),
    "cpu-oversubscription": lambda: on_cores(
        _ON_CPU, waited=0.6, program_cores=1.9, waiting_threads=13.0, torch_threads=16
    ),
    "unused-gpu": lambda: replace(_convolutions_on_cpu(), devices=(Device(0, 0, "Tesla T4"),)),
    "cpu-threads-unused": lambda: on_cores(
        _ON_CPU, process_cores=16, allowed_cores=16, busy_cores=1, program_cores=1, idle_cores=15.0, torch_threads=1
    ),
    **{PAUSES[kind].rule: lambda kind=kind: _whole(run_with(kind)) for kind in EVERY_KIND},  # type: ignore[misc]
}
_HEALTHY: Mapping[str, Callable[[], Timeline]] = {
    "one GPU": lambda: _planted({}, 1),
    "four GPUs": lambda: _planted({}, 4),
    **{twin: lambda twin=twin: _planted({}, 1, twin) for twin in _TWINS},  # type: ignore[misc]
    "one GPU with its counters": lambda: sampled(_planted({}, 1), _COUNTED),
    "cores for all": lambda: on_cores(_ON_CPU),
    "steps and nothing between": lambda: _whole(whole_run(noise=0.05)),
    "products of known shapes": _known_shapes,
    "iterators beside work": _new_iterators,
    "time of the profiler's own beside work": lambda: draw(
        kernels="#" * 40, host=["l" + " " * 39, " " * 10 + "P" * 10 + " " * 20], repeat=6, unit_us=1000
    ),
}


def _planted(shares: Mapping[str, float], ranks: int, twin: str = "") -> Timeline:
    """A planted training, written by a tool that records what its faults show in, and read back."""
    forms = {form for rule in shares for form in plant.FAULTS[rule].forms} or {"nsys"}
    write = plant.write_nsys if "nsys" in forms else plant.write_kineto
    with tempfile.TemporaryDirectory() as scratch:
        machines = plant.faulty(shares, ranks, 1, twin).machines
        return read(plant.paths(write(machines, Path(scratch) / "run")))


def _examined(recording: Timeline) -> Examination:
    return examine(prepare(recording), list(load_rules().values()))


@cache
def with_its_fault(rule_id: str) -> Examination:
    """The diagnosis of a training with the fault of this rule, planted or drawn."""
    if rule_id in _DRAWN:
        return _examined(_DRAWN[rule_id]())
    return _examined(_planted({rule_id: _SHARE}, plant.FAULTS[rule_id].fewest_ranks))


@cache
def healthy() -> Mapping[str, Examination]:
    """The diagnosis of each healthy training."""
    return {name: _examined(training()) for name, training in _HEALTHY.items()}


def status(examination: Examination, rule_id: str) -> str:
    """found, clear, skipped or failed."""
    (outcome,) = (outcome for outcome in examination.diagnosis.outcomes if outcome.rule == rule_id)
    return outcome.status


@cache
def pages() -> list[tuple[Views, str]]:
    """The pages of each healthy training as records, and the report that draws them."""
    made = [(views(each.run, each.diagnosis), each.diagnosis) for each in healthy().values()]
    return [(shown, html.render(diagnosis, shown)) for shown, diagnosis in made]


def content_of(shown: Views, page: str) -> list[str]:
    """The titles of all that is on this page and has something in it."""
    tables = [each for each in shown.tables if any(len(column.values) for column in each.columns)]
    charts = [each for each in shown.charts if any(series.x.size for series in each.series)]
    heats = [each for each in shown.heats if each.values.size]
    icicles = [each for each in shown.icicles if each.root.children]
    titles = [each.title for each in (*tables, *charts, *heats, *icicles) if each.page == page]
    drawn = isinstance(shown.timeline, TimelineView) and any(track.start_ns.size for track in shown.timeline.tracks)
    return [*titles, *(["Timeline"] if page == "timeline" and drawn else [])]
