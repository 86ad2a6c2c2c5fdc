"""How fast is perfdoctor, against its peers and the floor, and how does it grow? Writes docs/performance.md: `make bench`.

    python benchmarks/bench.py                     everything, about ten minutes on two quiet cores; writes the page
    python benchmarks/bench.py --quick             small files and one round, to try the bench itself; writes nothing
    python benchmarks/bench.py --only trace growth some parts of it; writes nothing
    python benchmarks/bench.py --huge              4 GB of Kineto alone, some minutes, 6 GB of disk; writes its part of the page

What counts are ratios within a round: who is compared runs on the same file, one behind the other, and a noisy machine slows
all of them. A ratio is the median of the rounds, with the least and the greatest behind it. Recordings are grown
(`grown.py`) and deleted afterwards: 2 GB. It runs on Linux. On a busy machine the page is not written, unless `--busy` says that it may be.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import math
import os
import platform
import re
import resource
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

import contestants
import grown
import overhead
import page
from contestants import Contestant, perfdoctor
from measured import CommandError, Taken, run

_ROOT = Path(__file__).parents[1]
PAGE = _ROOT / "docs" / "performance.md"
BEGIN, END = "<!-- bench: begin, `make bench` writes this -->", "<!-- bench: end -->"
BEGIN_HUGE = "<!-- huge: begin, `python benchmarks/bench.py --huge` writes this -->"
END_HUGE = "<!-- huge: end -->"
#: Cores that other programs have before the bench begins: a fifth of one changes what is measured.
_MOST_BUSY = 0.2
_LOOKED_AT_S = 3
#: Cores of a machine on which ranks are trained: what its diagnosis would take follows from one core and all.
_MANY_CORES = 16
_GROWTH = (1, 4, 16)
HUGE_MB = 4_000

Round = Mapping[str, Taken]


@dataclass(frozen=True)
class Plan:
    """How much is measured, in MB of what is compared; growth begins at a quarter of it."""

    rounds: int
    sizes_mb: Mapping[str, float]
    is_quick: bool = False

    def source(self, kind: str, folder: Path) -> Path:
        if kind == STEPS:
            return grown.nsys_steps_source(folder, contestants.nsys(), fixture=self.is_quick)
        return (grown.nsys_source if kind == OPS else grown.kineto_source)(fixture=self.is_quick)

    def file(self, kind: str, folder: Path, times: float = 1) -> Path:
        """A grown recording in this folder, of so many times the compared size; made once."""
        source = self.source(kind, folder)
        into = folder / f"{kind.replace(' ', '-')}-{times:g}{'.json' if kind == TRACE else '.sqlite'}"
        if into.exists():
            return into
        return grown.grow(source, into, grown.copies_for(source, times * self.sizes_mb[kind]))


TRACE, STEPS, OPS = "trace", "export", "export with ops"
FULL = Plan(rounds=3, sizes_mb={TRACE: 215, STEPS: 100, OPS: 80})
QUICK = Plan(rounds=1, sizes_mb=dict.fromkeys((TRACE, STEPS, OPS), 6), is_quick=True)


# --- what is measured ----------------------------------------------------------------------------------------------


def compared(kind: str, all_of_them: Sequence[Contestant], plan: Plan, folder: Path) -> Iterator[str]:
    """Everybody on the same file, as multiples of perfdoctor on all cores."""
    file = plan.file(kind, folder)
    rounds, failed = rounds_of(all_of_them, file, plan.rounds)
    base, one = (contestant.name for contestant in (all_of_them[0], perfdoctor(1)))
    yield from table(f"{of(file)}, {contents(file, kind)}", base, rounds)
    yield from failed
    if (cores := os.cpu_count() or 1) > 1 and kind == TRACE:
        yield from with_many_cores(rounds, one, base, cores)


def rounds_of(all_of_them: Sequence[Contestant], file: Path, count: int) -> tuple[list[Round], list[str]]:
    """What each took in each round; and of those who cannot do it, why. CommandError where perfdoctor cannot."""
    failed: dict[str, str] = {}
    rounds = []
    for _ in range(count):
        taken: dict[str, Taken] = {}
        for each in all_of_them:
            try:
                taken |= each.measured(file) if each.name not in failed else {}
            except CommandError as error:  # noqa: PERF203 it comes once in minutes
                if each.name.startswith("perfdoctor"):
                    raise
                failed[each.name] = f"\n{each.name.rstrip(', ')} cannot do it: {str(error).splitlines()[-1]}"
        rounds.append(taken)
    return [{name: each[name] for name in rounds[-1]} for each in rounds], list(failed.values())


def with_many_cores(rounds: Sequence[Round], one: str, base: str, cores: int) -> Iterator[str]:
    """What more cores would bring, from what these do: Amdahl's law with the measured share that is not in parallel."""
    serial = [serial_share(each[one].seconds, each[base].seconds, cores) for each in rounds]
    faster = [share + (1 - share) / _MANY_CORES for share in serial]
    peer = next((name for name in rounds[0] if name.startswith("Holistic") and name.endswith("load")), None)
    yield ""
    yield (
        f"From one and {cores} cores follows a share of {spread(serial, '.0%')} that is not in parallel. By that, not measured, "
        f"{_MANY_CORES} cores take {spread(faster)} of the time on one"
        + (
            f": {peer} takes {spread([r[peer].seconds / r[one].seconds / f for r, f in zip(rounds, faster, strict=True)])} times as long."
            if peer
            else "."
        )
    )


def serial_share(one_s: float, all_s: float, cores: int) -> float:
    """0 where all cores are as many times as fast as one, 1 where they bring nothing."""
    return min(max((cores * all_s / one_s - 1) / (cores - 1), 0.0), 1.0)


def growth(kind: str, plan: Plan, folder: Path) -> Iterator[str]:
    """The same recording, 1, 4 and 16 times as long, as multiples of the shortest."""
    files = {f"{times} ×": plan.file(kind, folder, times / _GROWTH[1]) for times in _GROWTH}
    contestant = perfdoctor(os.cpu_count() or 1)
    names = {
        name: of(file) if name == "1 ×" else f"{of(file)}, {name[:-2]} times as long" for name, file in files.items()
    }
    rounds = []
    for _ in range(plan.rounds):
        taken = {name: contestant.measured(file)[contestant.name] for name, file in files.items()}
        rounds.append({names[name]: each for name, each in taken.items()})
    first, middle, last = names.values()
    yield from table(f"{kind.capitalize()}, {contestant.name}", first, rounds)
    powers = [power([each[middle], each[last]], _GROWTH[2] / _GROWTH[1]) for each in rounds]
    yield ""
    yield (
        f"From {_GROWTH[1]} to {_GROWTH[2]} times the length, time grows as length to the power "
        f"{spread([time for time, _ in powers])}, memory to the power {spread([memory for _, memory in powers])}: 1 is linear."
    )


def huge(folder: Path, megabytes: float = HUGE_MB) -> Iterator[str]:
    """A trace as long as no viewer opens, and a quarter of it, once each: what counts is memory."""
    source, cores = grown.kineto_source(), os.cpu_count() or 1
    copies = grown.copies_for(source, megabytes)
    quarter = grown.grow(source, folder / "quarter.json", max(copies // 4, 1))
    whole = grown.grow(source, folder / "whole.json", copies)
    packed = grown.grow(source, folder / "packed.json.gz", copies)
    name = f"{of(whole)}, {perfdoctor(cores).name}"
    asked = [
        (of(quarter), perfdoctor(cores), quarter),
        (of(whole), perfdoctor(cores), whole),
        (of(whole), perfdoctor(1), whole),
        (f"{of(whole)} as .json.gz of {of(packed)}", perfdoctor(cores), packed),
        (of(whole), perfdoctor(cores, with_report=True), whole),
    ]
    taken = {f"{what}, {who.name}": who.measured(file)[who.name] for what, who, file in asked}
    yield from table("A trace of torch.profiler", name, [taken])
    first = next(iter(taken.values()))
    shown = (significant(math.log(now / then, copies / max(copies // 4, 1))) for now, then in (
        (taken[name].processor_s, first.processor_s), (taken[name].peak_bytes, first.peak_bytes),
    ))  # fmt: skip
    yield ""
    yield "From a quarter to the whole, processor time grows as length to the power {}, memory to the power {}.".format(
        *shown
    )


def power(taken: Sequence[Taken], factor: float) -> tuple[float, float]:
    """Of time and of memory: 1 where they grow as the recording does."""
    shorter, longer = taken
    ratios = longer.seconds / shorter.seconds, longer.peak_bytes / shorter.peak_bytes
    return math.log(ratios[0], factor), math.log(ratios[1], factor)


def phases(kind: str, plan: Plan, folder: Path) -> Iterator[str]:
    """Of a diagnosis on one core, as shares of the whole."""
    file = plan.file(kind, folder)
    command = [sys.executable, Path(__file__).with_name("phases.py"), file]
    rounds = []
    for _ in range(plan.rounds):
        done = subprocess.run(
            command, env={**os.environ, "PERFDOCTOR_JOBS": "1"}, check=True, capture_output=True, text=True
        )
        taken = {name: Taken(*values) for name, values in json.loads(done.stdout).items()}
        rounds.append({WHOLE: together(taken), **taken})
    yield from table(f"{kind.capitalize()}, {of(file)}, 1 core", WHOLE, rounds)


WHOLE = "the diagnosis and its pages"


def together(parts: Mapping[str, Taken]) -> Taken:
    """One behind the other."""
    seconds, processor_s, peaks = zip(*((t.seconds, t.processor_s, t.peak_bytes) for t in parts.values()), strict=True)
    return Taken(sum(seconds), sum(processor_s), max(peaks))


def starts(plan: Plan, folder: Path) -> Iterator[str]:
    """Of small recordings, where most of the time is spent on starting, against Python alone."""
    program = [sys.executable, "-m", "perfdoctor.cli.main"]
    fixture = _ROOT / "fixtures" / "unfused-optimizer"
    trace = grown.grow(fixture / "torch" / "rank0.pt.trace.json.gz", folder / "small.json", 1)
    export = grown.grow(fixture / "nsys" / "profile.sqlite", folder / "small.sqlite", 1)
    commands = {
        "python -c pass": [sys.executable, "-c", "pass"],
        "python -c 'import numpy'": [sys.executable, "-c", "import numpy"],
        "perfdoctor --help": [*program, "--help"],
        f"perfdoctor analyze, {of(trace)} trace": [*program, "analyze", trace, "--no-html"],
        f"perfdoctor analyze, {of(export)} export": [*program, "analyze", export, "--no-html"],
    }
    once = {"PERFDOCTOR_JOBS": "1"}
    for command in commands.values():  # compiled modules and caches are there, as from the second call on
        run(command, folder, once)
    rounds = [{name: run(command, folder, once) for name, command in commands.items()} for _ in range(2 * plan.rounds)]
    yield from table("1 core", "python -c pass", rounds)


def comparisons(kind: str, plan: Plan, folder: Path) -> Iterator[str]:
    """`compare` of two recordings, against the analyses of both; all write their pages."""
    program, base = [sys.executable, "-m", "perfdoctor.cli.main"], "analyze each"
    files, page_file = [plan.file(kind, folder, times) for times in (1, 1.25)], folder / "comparison.html"
    rounds = []
    for _ in range(plan.rounds):
        each = [run([*program, "analyze", file, "--html", folder / "report.html"], folder) for file in files]
        together = run([*program, "compare", *files, "--html", page_file], folder)
        both = Taken(
            sum(one.seconds for one in each), sum(one.processor_s for one in each), max(one.peak_bytes for one in each)
        )
        rounds.append({base: both, "compare": together})
    yield from table(f"{of(files[0])} and {of(files[1])}, {'traces' if kind == TRACE else 'exports'}", base, rounds)
    yield ""
    yield f"The page of the comparison has {page_file.stat().st_size / 1e6:.2f} MB."


# --- how it is shown -----------------------------------------------------------------------------------------------


def table(title: str, base: str, rounds: Sequence[Round]) -> Iterator[str]:
    """Of each row the medians of time, processor time and memory, and the ratios to the base in the same round."""
    yield f"| {title}; × of “{base}” | time | × | processor time | × | memory | × |"
    yield f"| --- |{' ---: |' * 6}"
    for name in rounds[0]:
        cells = []
        for what, text in (("seconds", time_text), ("processor_s", time_text), ("peak_bytes", size_text)):
            taken = [(getattr(each[name], what), getattr(each[base], what)) for each in rounds]
            cells += [text(statistics.median(own for own, _ in taken)), spread([own / bases for own, bases in taken])]
        yield f"| {name} | {' | '.join(cells)} |"


def spread(values: Sequence[float], form: str = "") -> str:
    """The median, and the least and greatest where there are several: 8.2 (7.9 to 8.5)."""

    def shown(value: float) -> str:
        return format(value, form) if form else significant(value)

    middle, ends = shown(statistics.median(values)), (shown(min(values)), shown(max(values)))
    return middle if len(set(ends)) == 1 else f"{middle} ({ends[0]} to {ends[1]})"


def time_text(seconds: float) -> str:
    return f"{significant(seconds)} s" if seconds >= 0.995 else f"{significant(1e3 * seconds)} ms"


def significant(value: float) -> str:
    """Two digits below ten, none behind the point above: the machine's unrest is larger than a third digit."""
    return f"{value:,.0f}" if value >= 9.95 else f"{value:.1f}" if value >= 0.995 else f"{value:.2f}"


def size_text(size: float) -> str:
    return f"{size / 1e6:,.0f} MB" if size >= 1e6 else f"{size / 1e3:,.0f} kB"


def of(file: Path) -> str:
    return size_text(file.stat().st_size)


def contents(file: Path, kind: str) -> str:
    """What is in it, counted without perfdoctor."""
    if kind != TRACE:
        with sqlite3.connect(file) as export:
            kernels, ranges = (
                export.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
                for table in ("CUPTI_ACTIVITY_KIND_KERNEL", "NVTX_EVENTS")
            )
        return f"{kernels:,} kernels, {ranges:,} NVTX ranges"
    events = len(re.findall(rb'"ph": ?"', file.read_bytes()))
    return f"{events:,} events"


def machine() -> str:
    """What it was measured on."""
    names = re.findall(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    memory_gb = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    processor = f" of {names[0]}" if names else ""
    return f"{os.cpu_count()} cores{processor}, {memory_gb:.0f} GB of memory, Python {platform.python_version()}"


class Others:
    """How many cores other programs have from its making on, the host of a virtual machine included."""

    def __init__(self) -> None:
        self._begun = self._now()

    def cores(self) -> float:
        passed, busy, ours = (now - then for now, then in zip(self._now(), self._begun, strict=True))
        return max(busy - ours, 0.0) / passed

    @staticmethod
    def _now() -> tuple[float, float, float]:
        """Seconds passed, processor seconds of all programs, and those of this one and all it started."""
        user, nice, system, _idle, _waiting, *more = map(int, Path("/proc/stat").read_text().split("\n")[0].split()[1:])
        busy = user + nice + system + sum(more[:3])  # interrupts and what the host took; guests are in `user`
        used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        return time.monotonic(), busy / os.sysconf("SC_CLK_TCK"), sum(each.ru_utime + each.ru_stime for each in used)


def with_part(text: str, part: str, begin: str = BEGIN, end: str = END) -> str:
    before, rest = text.split(begin)
    return f"{before}{begin}\n{part}\n{end}{rest.split(end)[1]}"


# --- the bench -----------------------------------------------------------------------------------------------------


def parts(plan: Plan, folder: Path) -> dict[str, tuple[str, Callable[[], Iterator[str]]]]:
    """By the name that `--only` takes: the heading, and what writes the lines below it."""
    jobs = os.cpu_count() or 1
    return {
        "trace": ("A trace of torch.profiler", lambda: compared(TRACE, contestants.of_trace(jobs), plan, folder)),
        "export": (
            "Exports of Nsight Systems",
            lambda: each_of((STEPS, OPS), lambda kind: compared(kind, contestants.of_export(jobs), plan, folder)),
        ),
        "growth": ("Growth", lambda: each_of((TRACE, STEPS), lambda kind: growth(kind, plan, folder))),
        "phases": ("Phases", lambda: each_of((TRACE, STEPS), lambda kind: phases(kind, plan, folder))),
        "start": ("Small recordings", lambda: starts(plan, folder)),
        "comparison": ("A comparison", lambda: each_of((TRACE, STEPS), lambda kind: comparisons(kind, plan, folder))),
        "recording": ("Recording", lambda: overhead.lines(is_quick=plan.is_quick)),
        "browser": ("The report in a browser", lambda: page.lines(is_quick=plan.is_quick)),
    }


def each_of(kinds: Sequence[str], lines: Callable[[str], Iterator[str]]) -> Iterator[str]:
    for number, kind in enumerate(kinds):
        yield from [""] if number else []
        yield from lines(kind)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small files and one round; nothing is written")
    parser.add_argument("--only", nargs="+", choices=parts(QUICK, Path()), help="these parts; nothing is written")
    parser.add_argument("--huge", action="store_true", help="4 GB of Kineto instead; writes its part of the page")
    parser.add_argument("--rounds", type=int, metavar="N", help="instead of three")
    parser.add_argument("--busy", action="store_true", help="write the page although other programs run")
    given = parser.parse_args()
    plan = QUICK if given.quick else FULL
    plan = replace(plan, rounds=given.rounds or plan.rounds)
    others = Others()
    time.sleep(_LOOKED_AT_S)
    is_busy = others.cores() > _MOST_BUSY and not given.busy
    if is_busy:
        print(
            f"Other programs have {others.cores():.1f} cores here: {PAGE.name} will not be written; --busy writes it.\n"
        )
    said, others = [], Others()
    with tempfile.TemporaryDirectory() as folder:
        all_parts = {"huge": ("", lambda: huge(Path(folder)))} if given.huge else parts(plan, Path(folder))
        for name, (heading, lines) in all_parts.items():
            if given.only and name not in given.only:
                continue
            for line in chain(["", *([f"## {heading}", ""] if heading else [])], lines()):
                said.append(line)
                print(line, flush=True)
    command = "python benchmarks/bench.py --huge" if given.huge else "make bench"
    peers = "" if given.huge else "; " + ", ".join([*contestants.versions()])
    said.insert(
        0,
        f"`{command}` on {dt.datetime.now(dt.timezone.utc):%Y-%m-%d}: {machine()}{peers}. Other programs had "
        f"{others.cores():.2f} cores meanwhile.",
    )
    print(f"\n{said[0]}")
    if not (given.quick or given.only or is_busy):
        marks = (BEGIN_HUGE, END_HUGE) if given.huge else (BEGIN, END)
        PAGE.write_text(with_part(PAGE.read_text("utf-8"), "\n".join(said), *marks), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
