"""Which names do Nsight Compute's metrics have in its versions, and which of our columns do they fill?

A metric has a name (`gpu__time_duration.sum`) in reports and on the page `raw`, and a label ("Duration") on the page
`details`; both changed over the years, and a label may be used twice, with different units. Which metrics
there are depends on the sections that were collected: what is missing is unknown, NaN, and never 0.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from math import fsum, isnan, nan
from pathlib import Path

from msgspec import Struct, field

from perfdoctor.patterns import regex
from perfdoctor.readers.ncu.cell_numbers import BYTES, BYTES_PER_SECOND, COUNT, SHARE, unit_of
from perfdoctor.system.toml_tables import Table, shipped_table


def speedup_share(percent: float) -> float:
    """An estimated speedup as a share of 1 at most; NaN where it is unknown or below 0."""
    return min(percent / 100, 1.0) if percent >= 0 else nan


class RuleAdvice(Struct, frozen=True):
    """The result of one of NVIDIA's rules. `share`: the estimated speedup as a share of the kernel's time, NaN without.

    `is_global` as NVIDIA has it: of the whole kernel, not of one of its parts.
    """

    rule: str
    share: float
    is_global: bool
    message: str


#: `@section:LaunchStats:Launch Statistics@`, `@url:a guide:https://…@`: links in what rules say.
_LINK = regex(r"@(section|url):([^:@]*):([^@]*)@")


def plain_message(text: str) -> str:
    """What a rule says, with links as ncu prints them: a section's name, or a text and its address."""
    return _LINK.sub(lambda link: link[3] if link[1] == "section" else f"{link[2]} ({link[3]})", text)


class Launch(Struct):
    """One measured launch as in the file: metrics by name or label, each with all its (value, unit)."""

    name: str
    device: int = -1
    process: int = -1
    grid: tuple[int, ...] = ()
    block: tuple[int, ...] = ()
    gpu: str = ""
    compute_capability: int = -1
    metrics: dict[str, list[tuple[float, str]]] = field(default_factory=dict)
    advice: list[RuleAdvice] = field(default_factory=list)


@cache
def _known() -> Table:
    """For each of our columns its base unit and the names it may have, and for each limit of blocks its names."""
    return shipped_table(Path(__file__).with_suffix(".toml"))


#: How often each of these instructions counts as an operation: a fused multiply-add does two.
_FLOP = {"fadd": 1, "fmul": 1, "ffma": 2, "dadd": 1, "dmul": 1, "dfma": 2}
#: What an issue slot waited for: by measurement, else by samples of the program counter. `selected` is no wait.
_STALLS = (
    regex(r"^smsp__average_warps?_issue_stalled_(\w+?)_per_issue_active\.ratio$"),
    regex(r"^smsp__average_warp_latency_issue_stalled_(\w+?)\.ratio$"),
    regex(r"^(?:Stall )?((?<=^Stall ).+|Selected)$"),
    regex(r"^smsp__pcsamp_warps_issue_stalled_(?!\w+_not_issued$)(\w+)$"),
)
_NO_WAIT = "selected"
#: Larger numbers are damage: no launch takes so many ns (a month), moves so many bytes or counts as much.
_LARGEST = 2.6e15
#: Counters from several passes may together slightly exceed a unit's peak.
_LARGEST_SHARE = 2.0
#: What the memory moves, and the lanes that do an fma, in a cycle of their clock.
_PEAK_DRAM = "dram__bytes.sum.peak_sustained"
_PEAK_FMA = "sm__sass_thread_inst_executed_op_{}fma_pred_on.sum.peak_sustained"
#: Operations of tensor cores by the type of their inputs, an fma as two. The section of their roofline has them since
#: 2024; before, it counted instructions, which do 512 operations on a V100 and others on later GPUs.
_TENSOR_FLOP = regex(r"^sm__ops_path_tensor_src_((?:bf|fp|tf)\d\w*)\.sum(?:\.per_cycle_elapsed)?$")
_SECTORS = "memory_l2_theoretical_sectors_global"
_EXCESS_RULE = "UncoalescedGlobalAccess"
_EXCESS_MESSAGE = regex(r"total of (\d{1,20}) excessive sectors \(\d+% of the total (\d{1,20}) sectors\)")
_SECTOR_BYTES = 32


def numbers(launch: Launch) -> dict[str, float]:
    """The launch's numbers by column: ns, bytes, Hz, shares of 1, counts. NaN for what was not measured."""
    found = {column: _first(launch, row["unit"], row["names"]) for column, row in _known()["column"].items()}
    _, stall_share = top_stall(launch)
    requested, needed = _sectors(launch)
    cycles = _cycles(launch, found["sm_clock_hz"] * found["gpu_time_ns"] / 1e9)
    fp32, fp64 = _flop(launch, cycles)
    tensor_flop = _tensor_flop(launch, cycles)
    peaks = {kind: _first(launch, COUNT, (_PEAK_FMA.format(kind),)) for kind in "fd"}
    return {
        **found,
        "dram_bytes": _dram_bytes(launch, found["gpu_time_ns"]),
        "flop": fp32 + (0.0 if isnan(fp64) else fp64),
        "tensor_flop": fsum(tensor_flop.values()) if tensor_flop else nan,
        # An fma in each lane and cycle, as NVIDIA's section SpeedOfLight_RooflineChart draws the roof.
        "peak_flop_per_second": 2 * peaks["d" if fp64 > fp32 else "f"] * found["sm_clock_hz"],
        "peak_dram_bytes_per_second": _first(launch, COUNT, (_PEAK_DRAM,)) * found["memory_clock_hz"],
        "excess_sector_share": (requested - needed) / requested if requested else requested - needed,
        "useful_bytes": needed * _SECTOR_BYTES,
        "stall_share": stall_share,
    }


def occupancy_limiter(launch: Launch) -> str:
    """What allows the fewest blocks on a processor: registers, shared memory, warps, blocks or barriers; "" unknown."""
    limits = {what: _first(launch, COUNT, names) for what, names in _known()["block_limit"].items()}
    known = {what: limit for what, limit in limits.items() if not isnan(limit)}
    return min(known, key=lambda what: known[what]) if known else ""


def top_stall(launch: Launch) -> tuple[str, float]:
    """What warps waited for most, like `long scoreboard`, and its share of all their time; ("", NaN) unknown."""
    for pattern in _STALLS:
        waits = {found[1]: _first(launch, COUNT, (name,)) for name in launch.metrics if (found := pattern.match(name))}
        waits = {name.replace("_", " ").strip().lower(): wait for name, wait in waits.items() if not isnan(wait)}
        total = fsum(waits.values())  # independent of their order
        waits.pop(_NO_WAIT, None)
        if waits and total > 0:
            top = max(waits, key=lambda reason: waits[reason])
            return (top, waits[top] / total) if waits[top] > 0 else ("", nan)
    return "", nan


def _first(launch: Launch, kind: str, names: Sequence[str]) -> float:
    """The first value under these names that has this base unit; NaN without any."""
    for name in names:
        for value, unit in launch.metrics.get(name, ()):
            factor, counted = unit_of(unit)
            if counted == kind and 0 <= value * factor < (_LARGEST_SHARE if kind == SHARE else _LARGEST):
                return value * factor
    return nan


def _dram_bytes(launch: Launch, time_ns: float) -> float:
    """Bytes read and written in DRAM: as counted, or their rate times `time_ns`; NaN unknown."""
    both = _first(launch, BYTES, ("dram__bytes.sum",))
    parts = sum(_first(launch, BYTES, (f"dram__bytes_{way}.sum",)) for way in ("read", "write"))
    rate = _first(launch, BYTES_PER_SECOND, ("dram__bytes.sum.per_second", "Memory Throughput"))
    return next((each for each in (both, parts, rate * time_ns / 1e9) if not isnan(each)), nan)


def _cycles(launch: Launch, about: float) -> float:
    """The cycles of the SMs; `about` so many, clock times time, where the report does not count them."""
    counted = _first(launch, COUNT, ("smsp__cycles_elapsed.avg", "sm__cycles_elapsed.avg"))
    return about if isnan(counted) else counted


def _flop(launch: Launch, cycles: float) -> tuple[float, float]:
    """Operations of the fp32 and of the fp64 units, without those of tensor cores. NaN where not counted.

    The roofline sections collect instructions per cycle, `sass` metrics their sum.
    """
    counts = {}
    for op in _FLOP:
        name = f"sass_thread_inst_executed_op_{op}_pred_on.sum"
        counted = _first(launch, COUNT, (f"smsp__{name}", f"sm__{name}"))
        per_cycle = _first(launch, COUNT, (f"smsp__{name}.per_cycle_elapsed",))
        counts[op] = per_cycle * cycles if isnan(counted) else counted
    fp32, fp64 = (sum(counts[op] * weight for op, weight in _FLOP.items() if op[0] == kind) for kind in "fd")
    return fp32, fp64


def tensor_type(launch: Launch) -> str:
    """The type of the inputs of most operations of tensor cores: bf16, fp8, …; "" unknown, or where none ran."""
    flop = _tensor_flop(launch, 1.0)
    most = max(flop, key=lambda kind: flop[kind], default="")
    kinds = re.split("_dst_|_sparsity_", most)[0].split("_")
    # Turing counts what only later GPUs tell apart, and has fp16 alone.
    return kinds[0] if flop.get(most) and (len(kinds) == 1 or kinds[0] == "fp16") else ""


def _tensor_flop(launch: Launch, cycles: float) -> dict[str, float]:
    """Operations of tensor cores by type of their inputs and results: those of a kind are not again in its parts."""
    counted: dict[str, float] = {}
    for name in launch.metrics:
        if (found := _TENSOR_FLOP.match(name)) and not isnan(value := _first(launch, COUNT, (name,))):
            counted[found[1]] = value * (cycles if name.endswith("per_cycle_elapsed") else 1)
    return {kind: flop for kind, flop in counted.items() if not any(kind.startswith(f"{of}_") for of in counted)}


def rule_named(message: str) -> str:
    """The name of the rule that says this: the one of which numbers are read, else ""."""
    return _EXCESS_RULE if _EXCESS_MESSAGE.search(message) else ""


def _sectors(launch: Launch) -> tuple[float, float]:
    """The sectors requested from L2, and those that coalesced accesses would need; NaN unknown."""
    requested, needed = (_first(launch, COUNT, (name,)) for name in (_SECTORS, f"{_SECTORS}_ideal"))
    if not isnan(requested) and not isnan(needed):
        return requested, min(needed, requested)
    for advice in launch.advice:
        if advice.rule == _EXCESS_RULE and (found := _EXCESS_MESSAGE.search(advice.message)):
            excess, total = int(found[1]), int(found[2])
            return float(total), float(max(total - excess, 0))
    return nan, nan


@cache
def wanted_names() -> tuple[str, ...]:
    """The metrics to read from a report, beside those of `is_one_of_many`: reading all takes most of the time."""
    flop = [f"{unit}__sass_thread_inst_executed_op_{op}_pred_on.sum{per}" for op in _FLOP
            for unit in ("smsp", "sm") for per in ("", ".per_cycle_elapsed")]  # fmt: skip
    return (
        *(name for row in _known()["column"].values() for name in row["names"]),
        *(names[0] for names in _known()["block_limit"].values()),
        "dram__bytes.sum", "dram__bytes_read.sum", "dram__bytes_write.sum", "dram__bytes.sum.per_second",
        _PEAK_DRAM, *(_PEAK_FMA.format(kind) for kind in "fd"),
        "smsp__cycles_elapsed.avg", "sm__cycles_elapsed.avg", _SECTORS, f"{_SECTORS}_ideal", *flop,
    )  # fmt: skip


@cache
def base_unit(name: str) -> str:
    """The unit of a metric's number where nothing is scaled and the file has no units."""
    if "pct" in name:
        return "%"
    kind = next((row["unit"] for row in _known()["column"].values() if name in row["names"]), COUNT)
    if name.startswith("dram__bytes") and not name.endswith("peak_sustained"):
        kind = BYTES_PER_SECOND if name.endswith("per_second") else BYTES
    return "" if kind == COUNT else "%" if kind == SHARE else kind


@cache
def is_one_of_many(name: str) -> bool:
    """Is it a metric of what warps waited for, or of what tensor cores computed? Their names differ by GPU."""
    return any(pattern.match(name) for pattern in (*_STALLS, _TENSOR_FLOP))
