"""Which signals can a recording hold: which columns has each, what is it called, and how is it recorded?

Each is a row of signals.toml, from which all else follows. Also what a rule may need that is no signal but follows from
several: steps, places, ranks. Without numpy, so that `perfdoctor explain` need not wait for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from msgspec import Struct

from perfdoctor.system.toml_tables import Table, shipped_table
from perfdoctor.vocabulary.kinds import PROFILE_SECTIONS

_TYPES: Mapping[str, type] = {"int": int, "float": float, "bool": bool, "str": str}
#: The end of a column's name says its unit.
_UNITS: Mapping[str, str] = {
    "_bytes_per_second": "bytes/s", "_ns_per_step": "ns per step", "_ns": "ns", "_bytes": "bytes", "_share": "0 to 1",
    "_mhz": "MHz", "_hz": "Hz", "_w": "W", "_c": "°C", "_cores": "cores",
}  # fmt: skip
_A_TRAINING = "record the training itself: `perfdoctor run -- python train.py`"


class DeclaredColumn(Struct, frozen=True):
    """A column as signals.toml or tables.toml declares it: what each field means stands there.

    `kind`: int, float, bool or str. `unit`: "" for numbers without one, and for text. `label` is always given.
    """

    kind: type
    unit: str
    meaning: str
    label: str
    shown: str = ""
    refers: str = ""
    is_signed: bool = False


def declared(names: list[str], known: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, DeclaredColumn]:
    """The columns with these names. `known`: each as the file declares it; `own`: what one table says differently."""
    found = {}
    for name in names:
        other = own.get(name, {})
        other = {"meaning": other} if isinstance(other, str) else other
        said = {"label": name.replace("_", " "), **known[name], **other}
        kind = _TYPES[said.pop("type")]
        by_name = next((unit for ending, unit in _UNITS.items() if kind is not str and name.endswith(ending)), "")
        unit = "0 or 1" if kind is bool else name if name in ("bytes", "cores") else by_name
        found[name] = DeclaredColumn(kind, unit, **said)
    return found


class Need(Struct, frozen=True):
    """What rules may need. `label` fits "rules without …" and "measured from …"; `hint` says how to record it."""

    label: str
    hint: str


class Signal(Need, frozen=True, dict=True):
    """One frame of a Timeline. What each field means stands in signals.toml."""

    meaning: str
    declared: Mapping[str, DeclaredColumn]
    event: str = ""
    track: str = ""
    has_time: bool = True
    of_machine: bool = False
    of_gpu: bool = False
    of_nvidia: bool = False

    @cached_property
    def columns(self) -> Mapping[str, type]:
        """Each column's type by its name: `int` and `float` stand for 64-bit numbers."""
        return {name: column.kind for name, column in self.declared.items()}

    @property
    def details(self) -> Mapping[str, DeclaredColumn]:
        """The columns beyond those that say where and when an event is, and what it is called."""
        of_every_event = " ".join(DECLARED["groups"].values()).split()
        return {name: column for name, column in self.declared.items() if name not in of_every_event}

    @property
    def measured(self) -> tuple[str, ...]:
        """The names of its float columns."""
        return tuple(name for name, column in self.declared.items() if column.kind is float)


#: What signals.toml says.
DECLARED: Table = shipped_table(Path(__file__).with_name("signals.toml"))


def _signals() -> Iterator[tuple[str, Signal]]:
    for name, row in DECLARED["signals"].items():
        fields = dict(row)
        columns = " ".join(DECLARED["groups"].get(each, each) for each in fields.pop("columns").split()).split()
        yield name, Signal(declared=declared(columns, DECLARED["columns"], fields.pop("own", {})), **fields)


#: Every signal by name.
SIGNALS: Mapping[str, Signal] = dict(_signals())

#: What Nsight Compute measures of a kernel.
PROFILE_NUMBERS = SIGNALS["kernel_profiles"].measured
#: What a GPU reported at one moment.
SAMPLE_NUMBERS = SIGNALS["device_samples"].measured
#: What the processor's cores did between two samples.
CPU_NUMBERS = SIGNALS["cpu_samples"].measured
#: What a training process used of the processor over its recorded steps.
CPU_USE_NUMBERS = SIGNALS["cpu_processes"].measured

#: What rules need beside signals; `diagnosis/engine.py` finds out whether a run has it.
DERIVED_NEEDS: Mapping[str, Need] = {
    "places": Need("any work to account for", _A_TRAINING),
    "steps": Need("steps", "record at least three whole steps: `perfdoctor run --steps 10`"),
    "whole_run": Need("the steps of the whole run", "record with `perfdoctor run`, and let the program end by itself"),
    "ranks": Need("a second rank", "record every rank: `perfdoctor run -- torchrun …`"),
    # Rules about kernels know them by their names.
    "single_kernels": Need(
        "the kernels inside CUDA graphs", "record with nsys --cuda-graph-trace=node, or torch.profiler"
    ),
    # Of a report of Nsight Compute, the sections without which a rule about its kernels cannot judge them.
    **{
        name: Need(
            f"{PROFILE_SECTIONS[name].shows} by Nsight Compute", f"record with ncu --set full or --section {name}"
        )
        for name in ("SpeedOfLight", "Occupancy", "SourceCounters")
    },
    # What all rules about time lack where only memory or a machine was recorded.
    "time": Need("a timeline", _A_TRAINING),
}

NEEDS: Mapping[str, Need] = {**SIGNALS, **DERIVED_NEEDS}
#: How signals are recorded of a program without PyTorch: nsys records any.
_BY_NSYS = "record with nsys --trace=cuda,nvtx,osrt"
_BY_ANY_TOOL: Mapping[str, str] = {
    "places": "record the program itself: `nsys profile --trace=cuda,nvtx,osrt ./program`",
    "time": "record the program itself: `nsys profile --trace=cuda,nvtx,osrt ./program`",
    "steps": "put an NVTX range around each iteration, and record at least three with nsys --trace=cuda,nvtx",
    "ranks": "record every rank with nsys, and analyse all files together",
    "collectives": "record a run of several ranks",
    "calls": "record with nsys --trace=cuda",
    "ranges": "record with nsys --trace=nvtx and ranges in the program",
    "functions": "record with nsys --python-sampling=true, where the program is Python",
    "memory_totals": "record with nsys --cuda-memory-usage=true",
}
GPU_SIGNALS = frozenset(name for name, signal in SIGNALS.items() if signal.of_gpu)
NVIDIA_NEEDS = frozenset((*(name for name, signal in SIGNALS.items() if signal.of_nvidia), *PROFILE_SECTIONS))
MACHINE_SIGNALS = tuple(name for name, signal in SIGNALS.items() if signal.of_machine)
#: The signals whose rows are the timeline: those with tracks.
EVENTS = tuple(name for name, signal in SIGNALS.items() if signal.track)


def host_events(*first: str) -> tuple[str, ...]:
    """The signals with events of host threads: these `first`, then all others."""
    others = (name for name, signal in SIGNALS.items() if signal.event and "thread" in signal.declared)
    return tuple(dict.fromkeys((*first, *others)))


def needs_gpu(need: str) -> bool:
    """Can the need only be recorded on a GPU? Collectives of the host, as another choice, do not count."""
    choices = set(need.split("|"))
    return bool(choices - {"collectives"}) and choices - {"collectives"} <= GPU_SIGNALS


def needs_nvidia(need: str) -> bool:
    """Can the need only be recorded with NVIDIA's tools?"""
    return NVIDIA_NEEDS.issuperset(need.split("|"))


def hint(need: str, framework: str) -> str:
    """How to record what a rule needs, of a program of this framework: what PyTorch's tools record, others lack."""
    said = NEEDS[need].hint
    if framework in ("torch", "unknown"):
        return said
    return _BY_ANY_TOOL.get(need, _BY_NSYS if "torch" in said else said)


def need_label(need: str) -> str:
    """Describe what a rule needs; `a|b` is met by either of two: `host calls or framework ops`."""
    labels = (NEEDS[each].label if each in NEEDS else each.replace("_", " ") for each in need.split("|"))
    return " or ".join(dict.fromkeys(labels))
