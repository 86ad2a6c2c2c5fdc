"""Do our numbers agree with NVIDIA's own tools on the same report? Runs `nsys stats`, `nsys analyze`, `nsys recipe`.

Every sum covers the whole recording, not only the analysed steps. Nothing is written beside the user's file: nsys runs
in a temporary folder. What a version of nsys cannot do is reported and is no error; differences list both numbers.
"""

from __future__ import annotations

import csv
import io
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct

from perfdoctor.errors import PerfdoctorError
from perfdoctor.model.timeline import Frame, Timeline
from perfdoctor.readers.nsys import export as nsys_export
from perfdoctor.readers.nsys import timeline as nsys
from perfdoctor.system import tool_process
from perfdoctor.vocabulary.names import cuda as cuda_names
from perfdoctor.vocabulary.names import nccl as nccl_names
from perfdoctor.vocabulary.names.nccl import COLLECTIVE

#: A summary takes seconds; one that takes longer is reported as refused.
_TIMEOUT_S = 300
_DIRECTIONS = {
    "[CUDA memcpy Host-to-Device]": "h2d", "[CUDA memcpy HtoD]": "h2d",
    "[CUDA memcpy Device-to-Host]": "d2h", "[CUDA memcpy DtoH]": "d2h",
    "[CUDA memcpy Device-to-Device]": "d2d", "[CUDA memcpy DtoD]": "d2d",
    "[CUDA memcpy Peer-to-Peer]": "p2p", "[CUDA memcpy PtoP]": "p2p",
    "[CUDA memcpy Host-to-Host]": "h2h", "[CUDA memcpy HtoH]": "h2h",
    "[CUDA memset]": "memset",
}  # fmt: skip
#: `nsys stats` prints megabytes with three decimals.
_SIZE_GRAIN_BYTES = 1_000
#: NVIDIA's expert rules about GPU time.
EXPERT_RULES = (
    "cuda_memcpy_async", "cuda_memcpy_sync", "cuda_memset_sync", "cuda_api_sync", "gpu_gaps", "gpu_time_util",
)  # fmt: skip
#: Column names of `nsys stats`, and those that recipes use for the same.
_RECIPE_COLUMNS = (("Instances", "Count"), ("Total Time", "Sum"))
_RECIPES = ("cuda_gpu_kern_sum", "nccl_sum")


class Sum(Struct, frozen=True):
    """The number of rows, and their sum in ns (or bytes)."""

    count: int = 0
    total: int = 0

    def __add__(self, other: Sum) -> Sum:
        return Sum(self.count + other.count, self.total + other.total)


class Difference(Struct, frozen=True):
    """A name for which the sums differ; None where one side does not have it."""

    name: str
    ours: Sum | None
    theirs: Sum | None


class SummaryCheck(Struct, frozen=True):
    """One summary of nsys beside ours. `refused`: why nsys gave none, so that nothing was compared."""

    what: str
    source: str
    unit: str
    ours: Sum
    theirs: Sum
    names: int
    differences: tuple[Difference, ...] = ()
    refused: str = ""


class ExpertRule(Struct, frozen=True):
    """The result of one rule of `nsys analyze`; `ours`: our value of the same quantity, where we have one."""

    name: str
    rows: int
    total_ns: int
    ours: str = ""
    refused: str = ""


class CrossCheck(Struct, frozen=True):
    """All comparisons of one recording."""

    file: str
    version: str
    compared: tuple[SummaryCheck, ...]
    rules: tuple[ExpertRule, ...]
    notes: tuple[str, ...] = ()


def needed_nsys() -> str:
    """The nsys to use. Raises PerfdoctorError where there is none."""
    tool = tool_process.find("nsys")
    found = shutil.which(tool) if tool else None
    if found is None:
        raise PerfdoctorError(
            "--cross-check needs nsys, and none is installed here",
            do="Install Nsight Systems, or set PERFDOCTOR_NSYS to its nsys; without --cross-check none is needed.",
        )
    return str(Path(found).absolute())


def cross_check(file: str, report: Path | None, export: Path, tool: str) -> CrossCheck:
    """Compare our reading of one export with nsys. `report`: the file it was exported from, where it is available."""
    timeline = nsys.read(export)
    with tempfile.TemporaryDirectory(prefix="perfdoctor-") as folder:
        nsys_tool = _Nsys(tool, Path(folder), export.resolve())
        version = nsys_tool.version
        compared = _summaries(timeline, nsys_tool)
        rules = [_expert(name, nsys_tool, timeline) for name in EXPERT_RULES]
        recipes = [_recipe(name, nsys_tool, report, timeline) for name in _RECIPES]
    summaries = [each for each in recipes if isinstance(each, SummaryCheck)]
    notes = [each for each in recipes if isinstance(each, str)]
    return CrossCheck(file, version, (*compared, *summaries), tuple(rules), tuple(dict.fromkeys(notes)))


# --- running nsys ---


class _RefusedError(PerfdoctorError):
    """nsys gave no result: `what` is its reason, which is shown in place of a comparison."""

    def __init__(self, why: str) -> None:
        super().__init__(why, do="")


class _Nsys(Struct, frozen=True):
    tool: str
    folder: Path
    export: Path

    @property
    def version(self) -> str:
        found = re.search(r"version ([\d.]+)", self.run("--version"))
        return found[1] if found else ""

    def table(self, command: str, report: str) -> list[dict[str, str]]:
        """The rows that `nsys COMMAND -r REPORT` prints, of a summary or a rule. Raises _RefusedError."""
        printed = self.run(command, "-r", report, "--format", "csv", str(self.export))
        lines = printed.splitlines()
        head = next((i for i, line in enumerate(lines) if re.search(r"\((ns|MB|%)\)", line) and "," in line), None)
        if head is None:
            reasons = [line.strip() for line in lines if re.match(r"\s*(SKIPPED|ERROR)", line)]
            if reasons:
                raise _RefusedError(reasons[0].replace(f"{self.export.parent}/", "")[:200])
            return []
        return [row for row in csv.DictReader(io.StringIO("\n".join(lines[head:]))) if None not in row.values()]

    def run(self, *arguments: str) -> str:
        """What nsys prints, errors last. Raises _RefusedError where it fails without any output."""
        too_slow = _RefusedError(f"it took longer than {_TIMEOUT_S // 60} minutes")
        code, output, errors = nsys_export.run_nsys([self.tool, *arguments], self.folder, _TIMEOUT_S, too_slow)
        printed = (output + b"\n" + errors).decode("utf-8", errors="replace")
        if code and not output.strip():
            raise _RefusedError(nsys_export.last_line(printed, self.folder))
        return printed


Totals = dict[str, Sum]
_Ask = Callable[[], Totals]


def _gathered(
    rows: Sequence[Mapping[str, str]], name: str, count: str, total: str,
    scale: float = 1.0, rename: Callable[[str], str] = str,
) -> Totals:  # fmt: skip
    """The sums of nsys's rows by name. `name`, `count`, `total`: its columns; `scale`: from its unit to ours."""
    found: Totals = {}
    for row in rows:
        called = rename(row[name])
        found[called] = found.get(called, Sum()) + Sum(int(row[count]), round(float(row[total]) * scale))
    return found


# --- ours ---


def _by_name(*frames: Frame, column: str = "name", of: str = "") -> Totals:
    """The sums of our rows by a column of text: of their time in ns, or of the column `of`."""
    found: Totals = {}
    for frame in frames:
        text = frame.text(column)
        values = np.maximum(frame[of], 0) if of else frame.duration_ns
        count = np.bincount(text.codes, minlength=len(text.values))
        for code in np.flatnonzero(count).tolist():
            own = Sum(int(count[code]), int(values[text.codes == code].sum()))
            found[text.values[code]] = found.get(text.values[code], Sum()) + own
    return found


def _whole(totals: Totals) -> Sum:
    return sum(totals.values(), Sum())


def _against(what: str, source: str, ours: Totals, ask: _Ask, unit: str = "ns", grain: int = 0) -> SummaryCheck:
    try:
        theirs = ask()
    except _RefusedError as why:
        return SummaryCheck(what, source, unit, _whole(ours), Sum(), 0, refused=why.what)
    names = ours.keys() | theirs.keys()

    def is_same(name: str) -> bool:
        if name not in ours or name not in theirs:
            return False
        return ours[name].count == theirs[name].count and abs(ours[name].total - theirs[name].total) <= grain

    differences = tuple(
        Difference(name, ours.get(name), theirs.get(name))
        for name in sorted(names, key=lambda name: -max(totals.get(name, Sum()).total for totals in (ours, theirs)))
        if not is_same(name)
    )
    return SummaryCheck(what, source, unit, _whole(ours), _whole(theirs), len(names), differences)


# --- summaries ---


def _summaries(timeline: Timeline, nsys_tool: _Nsys) -> list[SummaryCheck]:
    """Compare the summaries of `nsys stats` with ours. Ranges are one sum: nsys adds arguments and domains to names."""

    def theirs(summary: str, name: str, count: str, total: str = "Total Time (ns)", **more: Any) -> _Ask:
        return lambda: _gathered(nsys_tool.table("stats", summary), name, count, total, **more)

    def their_collectives() -> Totals:
        return {name: total for name, total in kernels().items() if COLLECTIVE.search(name)}

    def their_ranges() -> Totals:
        return {"all": _whole(found)} if (found := ranges()) else {}

    def direction(name: str) -> str:
        return _DIRECTIONS.get(name, "unknown")

    kernels = theirs("cuda_gpu_kern_sum", "Name", "Instances")
    ranges = theirs("nvtx_sum", "Range", "Instances")
    times = theirs("cuda_gpu_mem_time_sum", "Operation", "Count", rename=direction)
    sizes = theirs("cuda_gpu_mem_size_sum", "Operation", "Count", "Total (MB)", scale=1e6, rename=direction)
    calls = theirs("cuda_api_sum", "Name", "Num Calls", rename=cuda_names.without_version)
    of_copies = _by_name(timeline.copies, column="direction")
    moved = _by_name(timeline.copies, column="direction", of="bytes")
    our_ranges = _whole(_by_name(timeline.ranges, timeline.ops))
    return [
        _against("kernels by name", "stats cuda_gpu_kern_sum", _our_kernels(timeline), kernels),
        _against("collectives by name", "stats cuda_gpu_kern_sum", _by_name(timeline.collectives), their_collectives),
        _against("memory operations by direction", "stats cuda_gpu_mem_time_sum", of_copies, times),
        _against("bytes moved by direction", "stats cuda_gpu_mem_size_sum", moved, sizes, "bytes", _SIZE_GRAIN_BYTES),
        _against("CUDA calls by name", "stats cuda_api_sum", _by_name(timeline.calls), calls),
        _against("NVTX ranges, all", "stats nvtx_sum", {"all": our_ranges} if our_ranges.count else {}, their_ranges),
    ]


def _our_kernels(timeline: Timeline) -> Totals:
    """The kernels by name, collectives included, without the graphs that were traced as a whole."""
    return _by_name(timeline.kernels.take(timeline.kernels["is_graph"] == 0), timeline.collectives)


# --- NVIDIA's expert rules ---


def _expert(name: str, nsys_tool: _Nsys, timeline: Timeline) -> ExpertRule:
    ours = _OURS[name](timeline) if name in _OURS else ""
    try:
        rows = nsys_tool.table("analyze", f"{name}:rows=-1")
    except _RefusedError as why:
        return ExpertRule(name, 0, 0, ours, why.what)
    total = sum(round(float(row["Duration (ns)"])) for row in rows if row.get("Duration (ns)"))
    return ExpertRule(name, len(rows), total, ours)


def _pageable(timeline: Timeline) -> str:
    rows = timeline.copies.take(timeline.copies.text("host_memory").equals("pageable"))
    return f"{len(rows)} copies from or to pageable memory, {int(rows.duration_ns.sum()) / 1e6:.3f} ms, by any call"


def _syncs(timeline: Timeline) -> str:
    rows = timeline.calls.named(cuda_names.SYNCHRONIZES)
    return f"{len(rows)} calls that synchronise, {int(rows.duration_ns.sum()) / 1e6:.3f} ms, of any kind"


def _gaps(timeline: Timeline) -> str:
    """Gaps of 500 ms and more on a device, as the rule counts them."""
    count = total = 0
    for rank, device in timeline.places:
        frames = [timeline[signal].of(rank=rank, device=device) for signal in ("kernels", "collectives", "copies")]
        starts = np.concatenate([frame.start_ns for frame in frames])
        order = np.argsort(starts, kind="stable")
        reach = np.maximum.accumulate(np.concatenate([frame.end_ns for frame in frames])[order])
        gaps = starts[order][1:] - reach[:-1]
        count += int((gaps >= _GAP_NS).sum())
        total += int(gaps[gaps >= _GAP_NS].sum())
    return f"{count} gap{'s' * (count != 1)} of 500 ms or more, {total / 1e6:.3f} ms"


#: The default of nsys's gpu_gaps.
_GAP_NS = 500_000_000
_OURS: Mapping[str, Callable[[Timeline], str]] = {
    "cuda_memcpy_async": _pageable,
    "cuda_api_sync": _syncs,
    "gpu_gaps": _gaps,
}


# --- recipes ---


def _recipe(name: str, nsys_tool: _Nsys, report: Path | None, timeline: Timeline) -> SummaryCheck | str:
    """The sums of the recipe `name` beside ours, or a note why there are none. `report`: None of an export."""
    if report is None:
        return "nsys recipe reads reports only, and this is an export: left out."
    copy = nsys_tool.folder / "report.nsys-rep"  # a recipe writes its export beside its input
    if not copy.exists():
        copy.symlink_to(report.resolve())
    target = nsys_tool.folder / f"recipe-{name}"
    try:
        printed = nsys_tool.run(
            "recipe", name, "--input", str(copy), "--output", str(target), "--force-overwrite", "--csv"
        )
    except _RefusedError as why:
        return f"nsys recipe cannot run here: {why.what}"
    sums = target / "all_stats.csv"  # the same as .parquet needs a library of 170 MB to read
    if not sums.exists():
        if "No output generated" in printed:
            return f"nsys recipe {name}: nothing in this recording."
        return f"nsys recipe cannot run here: {nsys_export.last_line(printed, nsys_tool.folder)}"
    theirs = dict(_recipe_sums(sums))
    source = f"recipe {name}"
    if name == "nccl_sum":
        ranges = timeline.ranges.named(nccl_names.OWN_RANGE)
        return _against("NCCL's own ranges", source, _by_name(ranges), lambda: theirs)
    return _against("kernels by name", source, _our_kernels(timeline), lambda: theirs)


def _recipe_sums(path: Path) -> Iterator[tuple[str, Sum]]:
    """The names in a recipe's table of all ranks. Their column has no heading where pandas' index had no name."""
    with path.open(encoding="utf-8", errors="replace", newline="") as stream:
        for row in csv.DictReader(stream):
            name = next(row[column] for column in ("Name", "Text", "") if column in row)
            count, total = (next(row[column] for column in known if column in row) for known in _RECIPE_COLUMNS)
            yield name, Sum(round(float(count)), round(float(total)))
