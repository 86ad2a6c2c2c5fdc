"""Does the same training get the same answer, however it was recorded? `make invariance`.

    python benchmarks/invariance.py                        every recording, every change: writes docs/accuracy.md
    python benchmarks/invariance.py --only 'wild/*'        some recordings, and nothing is written
    python benchmarks/invariance.py --change 'device*'     some changes (`recorded_otherwise.py`)
    python benchmarks/invariance.py --fixtures             the recordings that come with the project

Metamorphic testing: what changes nothing of the training must change nothing of the diagnosis: its first finding, the
share of the step that it saves, the rank that it names, and the partition of the time. The same work that two tools
recorded is compared as well, and a file that is given twice. Exits with 1 where the answers differ by more than 5 % of
a step and `invariance.toml` gives no reason.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from fnmatch import fnmatch
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import msgspec

sys.path.insert(0, str(Path(__file__).parents[1] / "fixtures"))

import plant
from labels import recordings
from page_sections import with_section
from recorded_otherwise import CHANGES, Change, permuted, read_trace
from scenes import SCENES, counted, play

from perfdoctor.diagnosis.engine import diagnose
from perfdoctor.errors import PerfdoctorError
from perfdoctor.model.clocks import on_host_clock
from perfdoctor.model.run import WHOLE_RECORDING, Selection
from perfdoctor.model.timeline import Timeline
from perfdoctor.readers.open import read
from perfdoctor.records.diagnosis import Diagnosis
from perfdoctor.vocabulary.rulebook import load_rules

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_ROOT = Path(__file__).parents[1]
_MADE = _ROOT / ".cache" / "invariance"
PAGE, REASONS = _ROOT / "docs" / "accuracy.md", Path(__file__).with_suffix(".toml")
BEGIN, END = "<!-- invariance -->", "<!-- end of invariance -->"
#: Shares of the step that differ by less are the same answer, and so are savings within a tenth of each other.
SAME, SAME_SAVING = 0.02, 0.1
#: No difference without a reason may be larger, as a share of the step.
LARGE = 0.05
#: Writing and reading larger traces again takes minutes, and shows no more.
_MOST_BYTES = 4 << 20
_TWO_TOOLS, _TWICE = "another tool", "a file given twice"


@dataclass(frozen=True)
class Answer:
    """What a diagnosis says first: rule, rank, share of the step that it saves with its range; and the partition."""

    first: str
    rank: int | None
    saving: tuple[float, float, float]
    #: By rule the share that each finding saves.
    shares: Mapping[str, float] = field(default_factory=dict)
    parts: Mapping[str, float] = field(default_factory=dict)

    @property
    def share(self) -> float:
        return self.saving[1]

    @classmethod
    def of(cls, diagnosis: Diagnosis) -> Answer:
        base = max(diagnosis.base_ns, 1)
        every = [each for cause in diagnosis.findings for each in (cause, *cause.symptoms)]
        first = diagnosis.findings[0] if diagnosis.findings else None
        saving = first.saving_ns_per_step if first else None
        parts: Counter[str] = Counter()
        for row in diagnosis.time:
            parts["compute"] += row.compute_ns
            parts["exposed communication"] += row.exposed_communication_ns
            parts["exposed copies"] += row.exposed_copy_ns
            parts.update(row.idle_causes_ns)
        whole = max(parts.total(), 1)
        rank = first.values.get("late_rank", first.values.get("rank")) if first else None
        return cls(
            first.rule if first else "nothing",
            rank if isinstance(rank, int) else None,
            (saving.low / base, saving.likely / base, saving.high / base) if saving else (0.0, 0.0, 0.0),
            {each.rule: each.saving_ns_per_step.likely / base for each in every},
            {name: ns / whole for name, ns in parts.items()},
        )


@lru_cache(maxsize=1)
def _rules() -> list[Any]:
    return list(load_rules().values())


def answer(timeline: Timeline, selection: Selection = WHOLE_RECORDING) -> Answer:
    """What is said of a recording, whose clocks were changed or not."""
    return Answer.of(diagnose(on_host_clock(timeline), _rules(), selection=selection))


# --- is it the same? -----------------------------------------------------------------------------------------------------


def differences(change: Change, before: Answer, after: Answer, rank: int | None) -> tuple[str, float]:
    """What differs, in words, and by how much of the step; ("", 0) where it is the same. `rank`: the expected one."""
    found = [*_of_first(change, before, after, rank)]
    if not change.part and not change.less:
        one, other = (_coarse(each.parts) if change.scaled else each.parts for each in (before, after))
        moved = [(name, one.get(name, 0.0), other.get(name, 0.0)) for name in sorted({*one, *other})]
        found += [(f"{name} {a:.1%} → {b:.1%}", abs(a - b)) for name, a, b in moved if abs(a - b) > SAME]
    return "; ".join(words for words, _ in found), max((size for _, size in found), default=0.0)


def _coarse(parts: Mapping[str, float]) -> Mapping[str, float]:
    """The partition with idle as one part: which cause idle has depends on lengths in ns."""
    known = {name: parts.get(name, 0.0) for name in ("compute", "exposed communication", "exposed copies")}
    return {**known, "idle": 1 - sum(known.values())}


def _of_first(change: Change, before: Answer, after: Answer, rank: int | None) -> Iterator[tuple[str, float]]:
    if before.first != after.first:
        lost = before.share - after.shares.get(before.first, 0.0)
        won = after.share - before.shares.get(after.first, 0.0)
        unknown = change.less and not after.shares.get(before.first) and abs(won) <= SAME
        # Two of equal weight may change places: whoever reads one reads the other next.
        if not unknown and max(abs(lost), abs(won), abs(before.share - after.share)) > SAME / 2:
            yield f"first {before.first} {before.share:.1%} → {after.first} {after.share:.1%}", max(abs(lost), abs(won))
        return
    low, likely, high = before.saving
    if change.less and after.share < likely and after.saving[2] >= likely:
        return  # it is said that it may be as much
    ends = (min(low, after.saving[0]), max(high, after.saving[2])) if change.part or change.scaled else (likely, likely)
    off = max(ends[0] - after.share, after.share - ends[1], 0.0)
    if off > max(SAME, SAME_SAVING * likely):
        yield f"{before.first} saves {likely:.1%} → {after.share:.1%}", off
    if rank is not None and after.rank != rank:
        yield f"rank {rank} → {after.rank}", after.share


# --- recordings ----------------------------------------------------------------------------------------------------------

#: A recording's name, and what is read.
Case = tuple[str, Path]


@dataclass(frozen=True)
class Result:
    """One changed recording: what differs, "" for nothing, and by how much of the step."""

    recording: str
    change: str
    what: str
    size: float


def cases(*, only_fixtures: bool = False) -> list[Case]:
    """Every recording of the project, and the public ones where they are."""
    fixtures = _ROOT / "fixtures"
    paths = [path for form in ("nsys", "torch") for path in fixtures.glob(f"*/{form}")]
    paths += [*fixtures.glob("pairs/*/torch"), *fixtures.glob("h100-*/*.json.gz")]
    found = [(path.relative_to(_ROOT).as_posix(), path) for path in sorted(paths)]
    found += [(f"planted/{name}/nsys", path) for name, path in _counted()]
    folder = None if only_fixtures else recordings()
    if folder is not None:
        inner = [folder / name for name in ("kineto", "kineto/edge", "nsys", "nsys/sc21", "nsys/ai-profiler", "wild")]
        public = sorted(path for each in inner for path in each.glob("*") if path not in inner)
        found += [(path.relative_to(folder).as_posix(), path) for path in public]
    return found


def _counted() -> Iterator[Case]:
    """Scenes that only the GPU's own counters show, each with its fault in 40 % of the step."""
    for name, scene in SCENES.items():
        if scene.play.__module__ == counted.__name__:
            yield name, plant.write_nsys([play(name, scene.sizes(0.4)[0])], _MADE / name / "nsys")


def judged(case: Case, wanted: Sequence[str]) -> list[Result]:
    """All changes of one recording; none where it is not read, or nothing of it can be accounted for."""
    name, path = case
    try:
        timeline = read([path])
        before = answer(timeline)
    except PerfdoctorError:
        return []
    if not before.parts:
        return []
    changes = [change for change in CHANGES if any(fnmatch(change.name, each) for each in wanted)]
    results = [_changed(name, change, timeline, before) for change in changes if change.trace is None]
    with tempfile.TemporaryDirectory() as scratch:
        results += [_rewritten(name, change, path, Path(scratch), before) for change in changes if change.trace]
        if any(fnmatch(_TWICE, each) for each in wanted) and path.is_file():
            again = Path(scratch) / f"again-{path.name}"
            again.write_bytes(path.read_bytes())
            results.append(_judged(name, Change(_TWICE), lambda: answer(read([path, again])), before, before.rank))
    other = path.parent / "nsys"
    if any(fnmatch(_TWO_TOOLS, each) for each in wanted) and path.name == "torch" and other.is_dir():
        results.append(_judged(name, Change(_TWO_TOOLS, less=True), lambda: answer(read([other])), before, before.rank))
    return [result for result in results if result is not None]


def _changed(name: str, change: Change, timeline: Timeline, before: Answer) -> Result | None:
    try:
        other = change.timeline(timeline) if change.timeline else timeline
        selection = change.selection(timeline)
    except PerfdoctorError:
        return None
    if other is None or selection is None:
        return None
    new = permuted(timeline.ranks) if change.permutes_ranks else {}
    rank = None if before.rank is None else new.get(before.rank, before.rank)
    return _judged(name, change, partial(answer, other, selection), before, rank)


def _rewritten(name: str, change: Change, path: Path, scratch: Path, before: Answer) -> Result | None:
    """The trace, or those of all ranks in a folder, as another program would have written them."""
    files = [path] if path.is_file() else sorted(each for each in path.iterdir() if each.is_file())
    if sum(file.stat().st_size for file in files) > _MOST_BYTES or not all(".json" in file.suffixes for file in files):
        return None
    assert change.trace is not None
    written = []
    for file in files:
        try:
            document = read_trace(file)
        except (msgspec.DecodeError, UnicodeDecodeError, OSError):
            return None
        if not isinstance(document, dict) or not isinstance(document.get("traceEvents"), list):
            return None
        written.append(scratch / file.name.removesuffix(".gz"))
        written[-1].write_bytes(change.trace(document))
    return _judged(name, change, lambda: answer(read(written)), before, before.rank)


def _judged(name: str, change: Change, ask: Callable[[], Answer], before: Answer, rank: int | None) -> Result:
    try:
        return Result(name, change.name, *differences(change, before, ask(), rank))
    except PerfdoctorError as error:
        return Result(name, change.name, f"refused: {error.what}", 1.0)


# --- what comes out --------------------------------------------------------------------------------------------------------


def reason(result: Result) -> str:
    """Why the answers may differ there, as `invariance.toml` says; "" where it gives no reason."""
    for each in tomllib.loads(REASONS.read_text("utf-8"))["exception"]:
        if fnmatch(result.change, each["change"]) and any(fnmatch(result.recording, one) for one in each["recordings"]):
            return str(each["reason"])
    return ""


def section(results: Sequence[Result]) -> Iterator[str]:
    """The part of the page, line by line."""
    same = sum(not each.what for each in results)
    recorded = len({each.recording for each in results})
    yield "## The same training, recorded otherwise\n"
    yield (
        "Made by `python benchmarks/invariance.py`. Each recording of `fixtures/` and each public one is changed in ways "
        "that change nothing of the training, and diagnosed again. An answer is the same if it begins with the same "
        f"finding (or one of equal weight), whose saving lies within {SAME:.0%} of the step or a tenth of itself (for "
        "other steps: within the range that was stated), names the same rank, and divides the time equally, to "
        f"{SAME:.0%} of the step. {recorded} recordings, {len(results):,} changed ones: "
        f"{same:,} the same ({same / max(len(results), 1):.1%}).\n"
    )
    yield "| recorded otherwise | recordings | same |"
    yield "| --- | ---: | ---: |"
    by_change: dict[str, list[Result]] = defaultdict(list)
    for each in results:
        by_change[each.change].append(each)
    for name, found in by_change.items():
        yield f"| {name} | {len(found)} | {sum(not each.what for each in found)} |"
    yield "\nEvery exception:\n"
    yield "| recording | recorded otherwise | what differs | of the step | why |"
    yield "| --- | --- | --- | ---: | --- |"
    for each in sorted((each for each in results if each.what), key=lambda each: (each.change, each.recording)):
        why = reason(each) or ("near a limit" if each.size <= LARGE else "**a defect**")
        yield f"| {each.recording} | {each.change} | {each.what} | {each.size:.0%} | {why} |"


def written(page: str, part: Sequence[str]) -> str:
    return with_section(page, part, BEGIN, END)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--only", action="append", default=[], metavar="GLOB", help="only recordings of such a name")
    parser.add_argument("--change", action="append", default=[], metavar="GLOB", help="only such changes")
    parser.add_argument("--fixtures", action="store_true", help="only recordings that come with the project")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    asked = parser.parse_args()
    chosen = [
        case
        for case in cases(only_fixtures=asked.fixtures)
        if not asked.only or any(fnmatch(case[0], each) for each in asked.only)
    ]
    results: list[Result] = []
    with ProcessPoolExecutor(asked.jobs) as pool:
        for found in pool.map(judged, chosen, [asked.change or ["*"]] * len(chosen)):
            results += found
            for each in found:
                if each.what:
                    why = reason(each) or ("" if each.size <= LARGE else "NO REASON KNOWN")
                    print(f"{each.recording} | {each.change} | {each.size:.1%} | {each.what} | {why}", flush=True)
    same, unexplained = (
        sum(not each.what for each in results),
        [each for each in results if each.size > LARGE and not reason(each)],
    )
    print(
        f"{same} of {len(results)} the same ({same / max(len(results), 1):.2%}); {len(unexplained)} differ without a reason."
    )
    if not (asked.only or asked.change or asked.fixtures):
        PAGE.write_text(written(PAGE.read_text("utf-8"), list(section(results))), "utf-8")
    return 1 if unexplained else 0


if __name__ == "__main__":
    sys.exit(main())
