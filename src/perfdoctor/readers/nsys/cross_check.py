"""Do our numbers agree with NVIDIA's own tools on the same report? Runs `nsys stats`, `nsys analyze`, `nsys recipe`.

Every sum covers the whole recording, not only the analysed steps. Nothing is written beside the user's file: nsys runs
in a temporary folder. What a version of nsys cannot do is reported and is no error; differences list both numbers.
"""

from __future__ import annotations

import csv
import io
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from msgspec import Struct

from perfdoctor.errors import PerfdoctorError
from perfdoctor.model.timeline import Frame, Timeline
from perfdoctor.readers.nsys import export as nsys_export
from perfdoctor.readers.nsys import timeline as nsys
from perfdoctor.vocabulary.names import cuda as cuda_names
from perfdoctor.vocabulary.names import nccl as nccl_names
from perfdoctor.vocabulary.names.nccl import COLLECTIVE

#: A summary takes seconds; one that takes longer is reported as refused.
_TIMEOUT_S = 300
#: Environment variables that nsys gets; a recipe runs the python3 on PATH.
_PASSED_ON = ("PATH", "HOME", "LANG", "LC_ALL", "LD_LIBRARY_PATH")
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
    """How many rows, and their sum in ns (or bytes)."""

    count: int
    total: int


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
    tool = nsys_export.find_nsys()
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
        compared = [
            compare(timeline, nsys_tool) for compare in (_kernels, _collectives, _copies, _bytes, _calls, _ranges)
        ]
        rules = [_expert(name, nsys_tool, timeline) for name in EXPERT_RULES]
        recipes = [_recipe(name, nsys_tool, report, timeline) for name in _RECIPES]
    summaries = [each for each in recipes if isinstance(each, SummaryCheck)]
    notes = [each for each in recipes if isinstance(each, str)]
    return CrossCheck(file, version, (*compared, *summaries), tuple(rules), tuple(dict.fromkeys(notes)))


# --- running nsys ---


class _RefusedError(Exception):
    """nsys gave no result; the text is its reason."""


class _Nsys(Struct, frozen=True):
    tool: str
    folder: Path
    export: Path

    @property
    def version(self) -> str:
        found = re.search(r"version ([\d.]+)", self.run("--version"))
        return found[1] if found else ""

    def table(self, command: str, report: str) -> list[dict[str, str]]:
        """The rows of one summary or rule. Raises _RefusedError."""
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
        passed_on = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
        environment = passed_on | {"TMPDIR": str(self.folder)}
        try:
            done = subprocess.run(
                [self.tool, *arguments], capture_output=True, stdin=subprocess.DEVNULL, env=environment,
                cwd=self.folder, timeout=_TIMEOUT_S, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise _RefusedError(f"it took longer than {_TIMEOUT_S // 60} minutes") from None
        except OSError as error:
            raise PerfdoctorError(
                f"{self.tool} cannot be started: {error.strerror}", do="Set PERFDOCTOR_NSYS to the nsys program."
            ) from error
        printed = (done.stdout + b"\n" + done.stderr).decode("utf-8", errors="replace")
        if done.returncode and not done.stdout.strip():
            raise _RefusedError(nsys_export.last_line(printed, self.folder))
        return printed


Totals = dict[str, Sum]


def _gathered(rows: Sequence[Mapping[str, str]], name: str, count: str, total: str, scale: float = 1.0) -> Totals:
    found: Totals = {}
    for row in rows:
        before = found.get(row[name], Sum(0, 0))
        found[row[name]] = Sum(before.count + int(row[count]), before.total + round(float(row[total]) * scale))
    return found


# --- ours ---


def _by_name(*frames: Frame, column: str = "name", of: str = "") -> Totals:
    found: Totals = {}
    for frame in frames:
        text = frame.text(column)
        values = np.maximum(frame[of], 0) if of else frame.duration_ns
        count = np.bincount(text.codes, minlength=len(text.values))
        for code in np.flatnonzero(count).tolist():
            before = found.get(text.values[code], Sum(0, 0))
            total = int(values[text.codes == code].sum())
            found[text.values[code]] = Sum(before.count + int(count[code]), before.total + total)
    return found


def _whole(totals: Totals) -> Sum:
    return Sum(sum(each.count for each in totals.values()), sum(each.total for each in totals.values()))


def _against(
    what: str, source: str, ours: Totals, ask: Callable[[], Totals], unit: str = "ns", grain: int = 0
) -> SummaryCheck:
    try:
        theirs = ask()
    except _RefusedError as why:
        return SummaryCheck(what, source, unit, _whole(ours), Sum(0, 0), 0, refused=str(why))
    differences = tuple(
        Difference(name, ours.get(name), theirs.get(name))
        for name in sorted(ours.keys() | theirs.keys(), key=lambda name: -max(_total(ours, name), _total(theirs, name)))
        if not _same(ours.get(name), theirs.get(name), grain)
    )
    return SummaryCheck(what, source, unit, _whole(ours), _whole(theirs), len(ours.keys() | theirs.keys()), differences)


def _total(totals: Totals, name: str) -> int:
    return totals[name].total if name in totals else 0


def _same(one: Sum | None, other: Sum | None, grain: int) -> bool:
    if one is None or other is None:
        return False
    return one.count == other.count and abs(one.total - other.total) <= grain


# --- summaries ---


def _kernels(timeline: Timeline, nsys_tool: _Nsys) -> SummaryCheck:
    plain = timeline.kernels.take(~(timeline.kernels["is_graph"] != 0))
    ours = _by_name(plain, timeline.collectives)
    return _against("kernels by name", "stats cuda_gpu_kern_sum", ours, lambda: _their_kernels(nsys_tool))


def _their_kernels(nsys_tool: _Nsys) -> Totals:
    return _gathered(nsys_tool.table("stats", "cuda_gpu_kern_sum"), "Name", "Instances", "Total Time (ns)")


def _collectives(timeline: Timeline, nsys_tool: _Nsys) -> SummaryCheck:
    def theirs() -> Totals:
        return {name: total for name, total in _their_kernels(nsys_tool).items() if COLLECTIVE.search(name)}

    return _against("collectives by name", "stats cuda_gpu_kern_sum", _by_name(timeline.collectives), theirs)


def _copies(timeline: Timeline, nsys_tool: _Nsys) -> SummaryCheck:
    def theirs() -> Totals:
        found = _gathered(nsys_tool.table("stats", "cuda_gpu_mem_time_sum"), "Operation", "Count", "Total Time (ns)")
        return _with_our_directions(found)

    ours = _by_name(timeline.copies, column="direction")
    return _against("memory operations by direction", "stats cuda_gpu_mem_time_sum", ours, theirs)


def _bytes(timeline: Timeline, nsys_tool: _Nsys) -> SummaryCheck:
    def theirs() -> Totals:
        rows = nsys_tool.table("stats", "cuda_gpu_mem_size_sum")
        return _with_our_directions(_gathered(rows, "Operation", "Count", "Total (MB)", 1e6))

    ours = _by_name(timeline.copies, column="direction", of="bytes")
    return _against("bytes moved by direction", "stats cuda_gpu_mem_size_sum", ours, theirs, "bytes", _SIZE_GRAIN_BYTES)


def _with_our_directions(totals: Totals) -> Totals:
    found: Totals = {}
    for name, total in totals.items():
        direction = _DIRECTIONS.get(name, "unknown")
        before = found.get(direction, Sum(0, 0))
        found[direction] = Sum(before.count + total.count, before.total + total.total)
    return found


def _calls(timeline: Timeline, nsys_tool: _Nsys) -> SummaryCheck:
    def theirs() -> Totals:
        rows = nsys_tool.table("stats", "cuda_api_sum")
        plain = [{**row, "Name": cuda_names.without_version(row["Name"])} for row in rows]
        return _gathered(plain, "Name", "Num Calls", "Total Time (ns)")

    return _against("CUDA calls by name", "stats cuda_api_sum", _by_name(timeline.calls), theirs)


def _ranges(timeline: Timeline, nsys_tool: _Nsys) -> SummaryCheck:
    """All ranges as one sum: nsys makes an op's arguments and a range's domain part of the name."""

    def theirs() -> Totals:
        rows = nsys_tool.table("stats", "nvtx_sum")
        return {"all": _whole(_gathered(rows, "Range", "Instances", "Total Time (ns)"))} if rows else {}

    ours = _whole(_by_name(timeline.ranges, timeline.ops))
    return _against("NVTX ranges, all", "stats nvtx_sum", {"all": ours} if ours.count else {}, theirs)


# --- NVIDIA's expert rules ---


def _expert(name: str, nsys_tool: _Nsys, timeline: Timeline) -> ExpertRule:
    ours = _OURS[name](timeline) if name in _OURS else ""
    try:
        rows = nsys_tool.table("analyze", f"{name}:rows=-1")
    except _RefusedError as why:
        return ExpertRule(name, 0, 0, ours, str(why))
    total = sum(round(float(row["Duration (ns)"])) for row in rows if row.get("Duration (ns)"))
    return ExpertRule(name, len(rows), total, ours)


def _pageable(timeline: Timeline) -> str:
    rows = timeline.copies.take(timeline.copies.text("host_memory").equals("pageable"))
    return f"{len(rows)} copies from or to pageable memory, {int(rows.duration_ns.sum()) / 1e6:.3f} ms, by any call"


def _syncs(timeline: Timeline) -> str:
    rows = timeline.calls.take(timeline.calls.name.matches(cuda_names.SYNCHRONIZES))
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
    """A recipe's sums beside ours, or a note why there are none."""
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
        return f"nsys recipe cannot run here: {why}"
    sums = target / "all_stats.csv"  # the same as .parquet needs a library of 170 MB to read
    if not sums.exists():
        if "No output generated" in printed:
            return f"nsys recipe {name}: nothing in this recording."
        return f"nsys recipe cannot run here: {nsys_export.last_line(printed, nsys_tool.folder)}"
    theirs = dict(_recipe_sums(sums))
    source = f"recipe {name}"
    if name == "nccl_sum":
        ranges = timeline.ranges.take(timeline.ranges.name.matches(nccl_names.OWN_RANGE))
        return _against("NCCL's own ranges", source, _by_name(ranges), lambda: theirs)
    plain = timeline.kernels.take(~(timeline.kernels["is_graph"] != 0))
    return _against("kernels by name", source, _by_name(plain, timeline.collectives), lambda: theirs)


def _recipe_sums(path: Path) -> Iterator[tuple[str, Sum]]:
    """The names in a recipe's table of all ranks. Their column has no heading where pandas' index had no name."""
    with path.open(encoding="utf-8", errors="replace", newline="") as stream:
        for row in csv.DictReader(stream):
            name = next(row[column] for column in ("Name", "Text", "") if column in row)
            count, total = (next(row[column] for column in known if column in row) for known in _RECIPE_COLUMNS)
            yield name, Sum(round(float(count)), round(float(total)))
