"""How do Nsight Compute's reports and tables become rows of a Timeline?

A `.ncu-rep` is read with NVIDIA's package `ncu-report` where it is installed, else by `report_file`, else by an
installed ncu. The frames have their own clock: ncu measures each kernel alone, and does not record when it ran.
"""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from math import prod
from pathlib import Path

import numpy as np

from perfdoctor.errors import PerfdoctorError
from perfdoctor.model.profile_matches import matched, on_same_gpu
from perfdoctor.model.timeline import PROFILE_NUMBERS, UNKNOWN, Frame, Ints, Source, Text, Timeline
from perfdoctor.patterns import regex
from perfdoctor.readers.leaving_out import unopened
from perfdoctor.readers.ncu import csv_pages as ncu_csv
from perfdoctor.readers.ncu import nvidia_package as ncu_package
from perfdoctor.readers.ncu import report_file as ncu_file
from perfdoctor.readers.ncu import text_pages
from perfdoctor.readers.ncu import tool as ncu_tool
from perfdoctor.readers.ncu.metric_names import Launch, numbers, occupancy_limiter, tensor_type, top_stall
from perfdoctor.system import tool_process
from perfdoctor.vocabulary.names.base_names import base_name

_GZIP = b"\x1f\x8b"
#: ncu's progress messages, and the headings of its text pages.
_PRINTED = regex(
    rb"\A==PROF== |^\s*Section: [\w ]+\r?\n\s*-{3,}|^  Metric Name +Metric Unit +Metric Value\s*\r?\n  -{3,}",
    re.MULTILINE,
)
SIGNALS = ("kernel_profiles", "kernel_advice")
#: How many kernels a note names at most, and how long their names may be.
_NAMED, _LONGEST_NAME = 3, 60


def is_report(head: bytes) -> bool:
    """Do these first bytes belong to a .ncu-rep?"""
    return head.startswith(ncu_file.MAGIC)


def is_printed_text(head: bytes) -> bool:
    """Is it what ncu prints on a terminal, and no table?"""
    return _PRINTED.search(head) is not None and not ncu_csv.looks_like(head)


def read(path: Path) -> Timeline:
    """The measured kernels of a report, a CSV file or a text, as rank 0. PerfdoctorError where it cannot be read."""
    try:
        with path.open("rb") as stream:
            head = stream.read(len(ncu_file.MAGIC))
        if is_report(head):
            return _timeline(path, read_report(path), ())
        data = _bytes(path)
        if is_printed_text(data):
            return _timeline(path, text_pages.parse(ncu_csv.text_of(data), path.name), ())
        printed = ncu_csv.parse(data, path.name)
    except OSError as error:
        raise unopened(path, error) from error
    notes = []
    if printed.dropped:
        notes.append(f"{path.name}: {printed.dropped:,} lines are no rows of the table: left out.")
    if printed.unitless:
        lost = "durations, bytes and clocks are unknown"
        notes.append(f"{path.name}: its row of units is missing, so {lost}: print it again.")
    return _timeline(path, printed.launches, notes)


def read_report(report: Path) -> tuple[Launch, ...]:
    """The launches of a .ncu-rep: by NVIDIA's package, else from the file, else by ncu. PerfdoctorError if all fail."""
    tool = tool_process.find("ncu")
    ways: list[Callable[[], tuple[Launch, ...]]] = [lambda: ncu_file.read_launches(report)]
    if ncu_package.is_installed():
        ways.insert(0, lambda: ncu_package.read_apart(report))
    if tool is not None:
        ways.append(lambda: ncu_tool.read_launches(tool, report))
    *others, last = ways
    for way in others:
        with suppress(PerfdoctorError):
            return way()
    return last()


def with_profiles(timeline: Timeline, profiles: Sequence[Timeline]) -> Timeline:
    """The timeline with the kernels that `read` found in one or more files, as launches of its first rank."""
    rank, launches = (timeline.ranks or (0,))[0], len(timeline["kernel_profiles"])
    frames = {signal: [timeline[signal]] for signal in SIGNALS}
    for each in profiles:
        for signal in SIGNALS:
            rows = each[signal]
            at = np.full(len(rows), rank, np.int64)
            frames[signal].append(rows.with_columns(rank=at, launch=rows["launch"] + launches))
        launches += len(each["kernel_profiles"])
    joined = {signal: _on_one_clock(parts) for signal, parts in frames.items()}
    notes = [note for each in profiles for note in each.notes]
    if not len(timeline.kernels):
        held = ((each.sources[0].file, each["kernel_profiles"]) for each in profiles)
        notes += [_held(file, rows) for file, rows in held if len(rows)]
    return timeline.beside(profiles, joined, *notes, *_joined_notes(timeline, joined["kernel_profiles"]))


def _on_one_clock(parts: Sequence[Frame]) -> Frame:
    """The frames, each behind the end of the one before."""
    shifted, at = [], 0
    for part in parts:
        shifted.append(part.shifted(at))
        at += int(part.end_ns[-1]) if len(part) else 0
    return Frame.join(shifted)


def _held(file: str, profiles: Frame) -> str:
    """Say how many launches of which GPU are in the file."""
    kinds, gpus = len(set(profiles.name)), sorted({gpu for gpu in profiles.text("gpu") if gpu})
    on = f" on {', '.join(gpus)}" if gpus else ""
    return f"{file}: {_counted(len(profiles))} of {kinds:,} kernel{'s' * (kinds != 1)}{on}."


def _joined_notes(timeline: Timeline, profiles: Frame) -> Iterator[str]:
    """How much of the timeline's kernel time was measured, and which launches match no kernel."""
    kernels = timeline.kernels
    if not len(kernels):
        beside = (
            "the recording beside them holds no kernels" if timeline.sources else "there is no timeline beside them"
        )
        yield (
            f"Nsight Compute measured single kernels, and {beside}: their share of the whole is unknown, so no saving "
            "is predicted. Analyse both: perfdoctor analyze trace.nsys-rep kernels.ncu-rep"
        )
        return
    if timeline.devices and not any(on_same_gpu(profiles, device).any() for device in timeline.devices):
        gpus = ", ".join(sorted({gpu for gpu in profiles.text("gpu") if gpu})[:_NAMED])
        yield f"Nsight Compute measured on another GPU{f' ({gpus})' if gpus else ''}: its measurements are not used."
        return
    sets, stands_in = matched(kernels, profiles)
    known, used = stands_in != UNKNOWN, {int(launch) for launches in sets for launch in launches}
    share = kernels.duration_ns[known].sum() / max(int(kernels.duration_ns.sum()), 1)
    yield (
        f"Nsight Compute measured {_counted(len(profiles))}, which match {int(known.sum()):,} of {len(kernels):,} "
        f"kernels and {share:.0%} of their time. It replays each alone, with cold caches: times are the timeline's."
    )
    others = [name for launch, name in enumerate(profiles.name) if launch not in used]
    if others:
        names = list(dict.fromkeys(base_name(name)[:_LONGEST_NAME] for name in others))
        more = f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
        yield (
            f"{_counted(len(others))} match{'es' if len(others) == 1 else ''} no kernel of the timeline by name and "
            f"size: {', '.join(names[:_NAMED])}{more}."
        )


def _counted(launches: int) -> str:
    return f"{launches:,} launch{'es' if launches != 1 else ''}"


def _bytes(path: Path) -> bytes:
    """The content of a file, without compression."""
    data = path.read_bytes()
    if not data.startswith(_GZIP):
        return data
    try:
        return gzip.decompress(data)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise PerfdoctorError(f"{path.name} is damaged: {error}", do="Compress it again.") from error


# --- frames ---


def _timeline(path: Path, launches: Sequence[Launch], notes: Sequence[str]) -> Timeline:
    return Timeline.build(
        {"kernel_profiles": _profiles(launches), "kernel_advice": _advice(launches)},
        # Not all printed pages contain the results of NVIDIA's rules.
        {"kernel_profiles"} | ({"kernel_advice"} if any(launch.advice for launch in launches) else set()),
        sources=[Source("ncu", path.name, "", (0,))],
        notes=notes,
    )


def _profiles(launches: Sequence[Launch]) -> Frame:
    measured = [numbers(launch) for launch in launches]
    columns = {name: np.array([each[name] for each in measured], np.float64) for name in PROFILE_NUMBERS}
    time_ns = np.nan_to_num(columns["gpu_time_ns"]).round().astype(np.int64)
    end = np.cumsum(time_ns)

    def column(number: Callable[[Launch], int]) -> Ints:
        return np.array([number(launch) for launch in launches], np.int64)

    return Frame({
        "rank": np.zeros(len(launches), np.int64), "process": column(lambda launch: launch.process),
        "device": column(lambda launch: launch.device), "start_ns": end - time_ns, "end_ns": end,
        "launch": np.arange(len(launches), dtype=np.int64), "name": Text.of(launch.name for launch in launches),
        "blocks": column(lambda launch: _product(launch.grid)),
        "threads_per_block": column(lambda launch: _product(launch.block)),
        "gpu": Text.of(launch.gpu for launch in launches),
        "compute_capability": column(lambda launch: launch.compute_capability),
        "stall": Text.of(top_stall(launch)[0] for launch in launches),
        "tensor_type": Text.of(tensor_type(launch) for launch in launches),
        "occupancy_limiter": Text.of(occupancy_limiter(launch) for launch in launches),
        **columns,
    })  # fmt: skip


def _product(sizes: tuple[int, ...]) -> int:
    """The product of three sizes, UNKNOWN without any. A grid of more blocks than fit into 63 bits is no grid."""
    return product if sizes and (product := prod(sizes)) < 1 << 62 else UNKNOWN


def _advice(launches: Sequence[Launch]) -> Frame:
    rows = [(number, each) for number, launch in enumerate(launches) for each in launch.advice]
    at = np.array([number for number, _ in rows], np.int64)
    return Frame({
        "rank": np.zeros(len(rows), np.int64), "start_ns": at, "end_ns": at, "launch": at,
        "name": Text.of(each.rule for _, each in rows), "message": Text.of(each.message for _, each in rows),
        "speedup_share": np.array([each.share for _, each in rows], np.float64),
        "is_global": np.array([each.is_global for _, each in rows], np.bool_),
    })  # fmt: skip
