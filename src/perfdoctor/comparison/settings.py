"""What did a run run with, beside its code: GPU, clocks, versions, batch, ranks, options, number of steps?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from perfdoctor.comparison.records import Setting, Snapshot
from perfdoctor.metrics.host.batch_items import items_per_step
from perfdoctor.metrics.machine.gpu_samples import AT_WORK, gpus
from perfdoctor.metrics.machine.software import software
from perfdoctor.model.run import Run
from perfdoctor.system.run_folder import RunFolder

#: Each with whether steps that differ in it are other work, so that their times say little about the code.
SETTINGS: Mapping[str, bool] = {
    "GPU": True, "number of GPUs": True, "ranks": True, "batch": True, "SM clock": True, "driver": True,
    "CUDA": True, "torch": True, "recorder": False, "recorded": False, "options": False, "project": False,
    "program": False, "steps analysed": False, "steps found by": False,
}  # fmt: skip
#: A variable of the environment, in front of its name.
VARIABLE, NOT_SET = "$", "not set"
#: Not worth a line where both sides lack it.
_ASKED_FOR = ("GPU", "SM clock", "driver", "torch", "batch")
#: Clocks of one setting move by so much from second to second.
_SAME_CLOCK = 0.02
_SIGNALS = ("ops", "functions", "ranges", "calls", "os_calls", "device_samples")


def settings_of(run: Run, paths: Sequence[Path]) -> dict[str, str]:
    """The settings of the run in words, by the names of SETTINGS; without those that were not recorded."""
    names = sorted({place.info.name for place in run.job.places if place.device is not None and place.info.name})
    found = {
        "GPU": " and ".join(names),
        "number of GPUs": str(sum(place.device is not None for place in run.job.places)),
        "ranks": str(max(run.timeline.world_size, len(run.ranks))),
        "batch": batch_words(items_per_step(run)),
        "SM clock": _clock(run),
        "recorder": recorder_words((source.kind, source.tool_version) for source in run.timeline.sources),
        "recorded": ", ".join(name for name in _SIGNALS if name in run.timeline.recorded),
        "steps analysed": str(min((place.steps.used for place in run.places), default=0)),
        "project": run.timeline.project.name if run.timeline.project else "",
        "steps found by": next((place.steps.found_by for place in run.places), ""),
        **_of_folder(run, paths),
    }
    return {name: value for name, value in found.items() if value}


def batch_words(items: float | None) -> str:
    return f"{items:,.0f} items a step and rank" if items else ""


def _clock(run: Run) -> str:
    clocks = []
    for gpu in gpus(run.timeline):
        loaded = gpu.floats("sm_clock_mhz")[gpu.under_load(AT_WORK)]
        clocks += loaded[~np.isnan(loaded)].tolist()
    return f"{np.median(clocks):.0f} MHz under load" if clocks else ""


def recorder_words(tools: Iterable[tuple[str, str]]) -> str:
    """The recorders among these (kind of source, version): `kineto 2.7 and nsys 2025.1`."""
    named = {f"{kind} {version}".strip() for kind, version in tools if kind in ("nsys", "kineto")}
    return " and ".join(sorted(named))


def _of_folder(run: Run, paths: Sequence[Path]) -> dict[str, str]:
    """What `perfdoctor run` and what measures the machine wrote down."""
    folder = RunFolder.open(paths[0]) if len(paths) == 1 and paths[0].is_dir() else None
    known = software(run, folder)
    found = {"torch": known.torch, "CUDA": known.cuda, "driver": known.driver}
    if folder is None:
        return found
    variables = {f"{VARIABLE}{name}": value for name, value in (known.environment or {}).items()}
    passes = " and ".join(record.name for record in folder.manifest.passes)
    command = folder.manifest.command  # as it was called, but without the folder of the interpreter
    program = " ".join([Path(command[0]).name, *command[1:]]) if command else ""
    return {**found, **variables, "options": passes, "program": program}


def differing(before: Sequence[Snapshot], after: Sequence[Snapshot]) -> tuple[tuple[Setting, ...], tuple[str, ...]]:
    """The settings that differ, those that matter first; and those that one side did not record."""
    found, unknown = [], []
    for name, matters in SETTINGS.items():
        sides = [sorted({each.settings.get(name, "") for each in side}) for side in (before, after)]
        if "" in (*sides[0], *sides[1]):
            if name in _ASKED_FOR and not (name in ("GPU", "SM clock", "driver") and before[0].without_gpu):
                unknown.append(name)
            continue
        if sides[0] != sides[1] and not same_clock(name, *sides):
            was, now = (" or ".join(side) for side in sides)
            found.append(Setting(name, was, now, matters=matters))
    found += _variables(before, after)
    return tuple(sorted(found, key=lambda each: not each.matters)), tuple(unknown)


def _variables(before: Sequence[Snapshot], after: Sequence[Snapshot]) -> Iterator[Setting]:
    """The variables of the environment that differ, if both sides recorded it."""
    if not all("program" in each.settings for each in (*before, *after)):
        return
    names = sorted({name for each in (*before, *after) for name in each.settings if name.startswith(VARIABLE)})
    for name in names:
        was, now = (sorted({each.settings.get(name, NOT_SET) for each in side}) for side in (before, after))
        if was != now:
            yield Setting(name.removeprefix(VARIABLE), " or ".join(was), " or ".join(now))


def same_clock(name: str, before: Sequence[str], after: Sequence[str]) -> bool:
    """Do these values of a setting differ by as little as clocks do from second to second?"""
    if name != "SM clock" or not before[0] or not after[0]:
        return False
    one, other = (float(side[0].split()[0]) for side in (before, after))
    return abs(one - other) <= _SAME_CLOCK * max(one, other)
