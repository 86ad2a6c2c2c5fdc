"""The page `steps`: how long was each step, which parts did it have, and which steps are outliers?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace

from perfdoctor.metrics.accounting.outliers import StepRows, step_rows
from perfdoctor.metrics.accounting.start import before_first_step, innermost, start_kinds, what
from perfdoctor.metrics.counters.means import means_of_spans
from perfdoctor.metrics.grouping import ratio
from perfdoctor.model.columns import Floats
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.model.whole_run import WatchedRun
from perfdoctor.records.diagnosis import Diagnosis
from perfdoctor.records.views import Axis, Chart, Series, Table, TableColumn, Unit
from perfdoctor.views.tables import ALIKE, in_short, in_words, numbers, place_names, table, taken, text
from perfdoctor.vocabulary.gpu_counters import COUNTERS
from perfdoctor.vocabulary.parts import REST, SMALL_SHARE
from perfdoctor.vocabulary.rulebook import load_rules

Numbers = Mapping[str, tuple[float | str, Unit]]

#: More bars would be too narrow to point at: then each bar stands for several steps.
MOST_BARS = 120
#: A bar's width as a share of the distance between bars.
_BAR_SHARE = 0.8
_MOST_ROWS = 5000
#: The counters of the GPU that the table of steps shows.
_COUNTED = ("sm_active_share", "tensor_active_share", "dram_read_share", "dram_write_share")


class _StepTimes(Struct, frozen=True):
    """The mean over all places with the same number of steps, and if there are several, the longest of them."""

    names: Sequence[str]
    places: Sequence[Place]
    rows: Sequence[StepRows]
    parts_ns: Mapping[str, Floats]

    @property
    def number(self) -> Floats:
        return np.arange(1, self.durations_ns.shape[1] + 1, dtype=np.float64)

    @property
    def durations_ns(self) -> Floats:
        """A row a place, a column a step."""
        return np.stack([each.duration_ns for each in self.rows]).astype(np.float64)

    @property
    def mean_ns(self) -> Floats:
        mean: Floats = self.durations_ns.mean(axis=0)
        return mean

    @property
    def remarks(self) -> dict[int, str]:
        """Remark on each outlier by its row: the part that grew most, and on which rank."""
        found: dict[int, str] = {}
        for name, each in zip(self.names, self.rows, strict=True):
            where = f" on {name}" if len(self.names) > 1 else ""
            for row, part in enumerate(each.grown):
                if part:
                    more = in_words(part) + where
                    found[row] = f"{found[row]} and {more}" if row in found else more
        return found


def view(run: Run, diagnosis: Diagnosis) -> Iterator[Table | Chart]:
    if run.timeline.watched_run is not None:
        yield _whole_run(run.timeline.watched_run)
    found = _found(run)
    if found is not None and found.number.size > 1:
        yield _chart(found)
    yield from _start(run)
    if found is not None:
        yield _table(found)


def _whole_run(run: WatchedRun) -> Chart:
    """The lengths of all steps of the run in which the window was recorded."""
    median, shown = float(np.median(run.median_ns)), ~run.recorded
    first = run.first.astype(np.float64)
    series = [
        Series(name, "steps", first[shown], ns[shown].astype(np.float64))
        for name, ns in (("median", run.median_ns), ("lower quartile", run.low_ns), ("upper quartile", run.high_ns))
    ]
    windows = first[run.recorded]
    if windows.size:
        series.append(Series("recorded", "dots", windows, run.median_ns[run.recorded].astype(np.float64)))
    return Chart(
        "steps", "whole-run", "The whole run",
        "Quartiles of the lengths of {steps} steps of rank {rank}, {median} in the middle; dots are recorded windows.",
        Axis("step", "position"), Axis("time", "ns"), tuple(series),
        {
            "steps": (float(run.first[-1]), "count"), "rank": (str(run.rank), "text"), "median": (median, "ns"),
        },
    )  # fmt: skip


def _start(run: Run) -> Iterator[Table]:
    """Parts of the time before the first step, on the rank that began it last."""
    start = before_first_step(run)
    if start is None:
        return
    place = max(start.places, key=lambda each: each.window_ns)
    kinds = {kind: pieces for kind, pieces in start_kinds(place).items() if pieces}
    order = sorted(kinds, key=lambda kind: -kinds[kind].total_ns)
    named = [next(iter(innermost(place, kinds[kind])), None) for kind in order]
    yield from table(
        "steps", "before-the-first-step", "Before the first step",
        "From the first event recorded to the first step analysed, warm-up steps among it. The rows sum to it.",
        (
            text("what", [what(kind) for kind in order]),
            numbers("time", "ns", [kinds[kind].total_ns for kind in order], adds_up=True),
            numbers("share", "share", [place.share(kinds[kind].total_ns) for kind in order], adds_up=True),
            numbers("longest", "ns", [int(kinds[kind].durations_ns.max()) for kind in order]),
            text("innermost on the host", [each.name if each else "" for each in named], "What took most of it."),
        ),
    )  # fmt: skip


def _found(run: Run) -> _StepTimes | None:
    at = load_rules()["step-outliers"].at
    every = [(place, _sure(step_rows(place, at["reach"], at["min_excess_share"]), at)) for place in run.places]
    known = [(place, rows) for place, rows in every if rows is not None]
    if not known or not run.per_step:
        return None
    usual = Counter(rows.duration_ns.size for _, rows in known).most_common(1)[0][0]
    alike = [(place, rows) for place, rows in known if rows.duration_ns.size == usual]
    places, rows = [place for place, _ in alike], [each for _, each in alike]
    parts = {part: np.mean([each.parts_ns[part] for each in rows], axis=0) for part in rows[0].parts_ns}
    return _StepTimes(place_names(places), places, rows, {part: ns for part, ns in parts.items() if ns.any()})


def _sure(rows: StepRows | None, at: Mapping[str, float]) -> StepRows | None:
    """Forget outliers of `rows` that the rule `step-outliers` would not report."""
    if rows is None:
        return None
    size, long = rows.duration_ns.size, sum(bool(part) for part in rows.grown)
    has_outliers = size >= at["min_steps"] and long <= at["max_share_of_steps"] * size
    return rows if has_outliers else replace(rows, grown=("",) * size)


def _chart(steps: _StepTimes) -> Chart:
    together = -(-steps.number.size // MOST_BARS)
    median, p90 = (float(np.quantile(steps.mean_ns, share)) for share in (0.5, 0.9))
    middles, half = _middles(steps, together), _BAR_SHARE / 2 * together
    ends = np.array([middles[0] - half, middles[-1] + half])
    label = "analysed step" if together == 1 else f"analysed step, {together} a bar"
    description, numbers = _description(steps, together)
    return Chart(
        "steps", "steps", "Step times, mean of all ranks" if len(steps.rows) > 1 else "Step times", description,
        Axis(label, "position"), Axis("time", "ns"),
        (
            *_bars(steps, together),
            *_longest(steps, together),
            Series("median", "guide", ends, np.full(2, median)),
            Series("90th percentile", "guide", ends, np.full(2, p90)),
            *_marks(steps, together),
        ),
        numbers,
    )  # fmt: skip


def _bars(steps: _StepTimes, together: int) -> Iterator[Series]:
    """Draw the parts that are large enough to be seen, and the other idle causes as one; `together` steps a bar."""
    whole = steps.mean_ns.sum()
    small = {part for part, ns in steps.parts_ns.items() if ns.sum() < SMALL_SHARE * whole and part != "compute"}
    shown = {part: ns for part, ns in steps.parts_ns.items() if part not in small}
    if small:
        shown[REST] = np.sum([steps.parts_ns[part] for part in small], axis=0)
    x = _middles(steps, together)
    for part, ns in shown.items():
        yield Series(in_words(part), "bars", x, _grouped(ns, together, np.mean), (), part=part)


def _longest(steps: _StepTimes, together: int) -> Iterator[Series]:
    several = len(steps.rows) > 1
    if several or together > 1:
        name = "longest on any rank" if several else "longest of those in the bar"
        highest = _grouped(steps.durations_ns.max(axis=0), together, np.max)
        yield Series(name, "line", _middles(steps, together), highest)


def _marks(steps: _StepTimes, together: int) -> Iterator[Series]:
    remarks = steps.remarks
    if remarks:
        rows = np.array(sorted(remarks))
        x = _middles(steps, together)[rows // together]
        labels = tuple(f"step {row + 1}: {remarks[row]} grew most" for row in rows.tolist())
        top = steps.durations_ns.max(axis=0) if len(steps.rows) > 1 else steps.mean_ns
        y = _grouped(top, together, np.max)[rows // together]
        yield Series("much longer than the others", "marks", x, y, labels)


def _middles(steps: _StepTimes, together: int) -> Floats:
    """The x of each bar: the middle of its steps."""
    return np.arange(0, steps.number.size, together, dtype=np.float64) + (together + 1) / 2


def _grouped(values: Floats, together: int, how: object) -> Floats:
    """Reduce each group of `together` neighbours to one number."""
    if together == 1:
        return values
    starts = np.arange(0, values.size, together)
    if how is np.max:
        return np.maximum.reduceat(values, starts)
    return np.add.reduceat(values, starts) / np.diff(np.append(starts, values.size))


def _description(steps: _StepTimes, together: int) -> tuple[str, Numbers]:
    every, remarks = steps.mean_ns, steps.remarks
    largest = max(steps.parts_ns, key=lambda part: float(steps.parts_ns[part].sum()))
    numbers: dict[str, tuple[float | str, Unit]] = {
        "count": (int(every.size), "count"),
        "low": (float(every.min()), "ns"),
        "high": (float(every.max()), "ns"),
        "median": (float(np.median(every)), "ns"),
        "part": (in_words(largest), "text"),
        "share": (float(steps.parts_ns[largest].sum() / every.sum()), "share"),
    }
    alike = every.max() - every.min() < ALIKE * every.max()
    text = "{count} steps of {median}" if alike else "{count} steps of {low} to {high}, median {median}"
    text += "; the largest part is {part}, {share}."
    if remarks:
        worst = max(remarks, key=lambda row: float(steps.durations_ns[:, row].max()))
        numbers |= {"long": (len(remarks), "count"), "worst": (worst + 1, "position"), "why": (remarks[worst], "text"),
                    "longest": (float(steps.durations_ns[:, worst].max()), "ns")}  # fmt: skip
        text += " Outliers: {long}; the longest is step {worst}, {longest}, where {why} grew most."
    if together > 1:
        text += f" A bar is the mean of {together} steps."
    text += _without_the_last(steps)
    return text, numbers


def _table(steps: _StepTimes) -> Table:
    before, after = _left_out(steps)
    inside = steps.number.size
    size = before.size + inside + after.size
    unknown = [None] * before.size, [None] * after.size

    def of_used(values: npt.ArrayLike) -> list[float | None]:
        return [*unknown[0], *np.asarray(values).tolist(), *unknown[1]]

    remarks = ["left out: before the steady steps"] * before.size + [""] * inside
    remarks += ["left out: after the steady steps"] * after.size
    for row, remark in steps.remarks.items():
        remarks[before.size + row] = f"outlier: {remark} grew most"
    several = len(steps.rows) > 1
    means = [*before.tolist(), *steps.mean_ns.tolist(), *after.tolist()]
    columns = [
        TableColumn("step", "position", of_used(steps.number), "Among the steps analysed; others have no number."),
        TableColumn("start", "ns", of_used(steps.rows[0].start_ns), "Since the start of the window."),
        TableColumn("mean of all ranks" if several else "duration", "ns", means),
    ]
    columns += [
        TableColumn(in_short(part), "ns", of_used(ns.round()), in_words(part)) for part, ns in steps.parts_ns.items()
    ]
    columns += [
        TableColumn(COUNTERS[column].label, "share", of_used(shares), "By the GPU's counters, in all of the step.")
        for column in _COUNTED
        if not np.isnan(shares := _counted(steps, column)).all()
    ]
    if several:
        longest = steps.durations_ns.argmax(axis=0)
        names = [*unknown[0], *(steps.names[row] for row in longest.tolist()), *unknown[1]]
        columns += [
            TableColumn("longest on", "text", names),
            TableColumn("longest", "ns", of_used(steps.durations_ns.max(axis=0))),
            TableColumn("shortest", "ns", of_used(steps.durations_ns.min(axis=0))),
        ]
    if any(remarks):
        columns.append(TableColumn("remark", "text", remarks))
    # The rows in order; of too many only the longest.
    shown = np.sort(np.argsort(-np.asarray(means), kind="stable")[:_MOST_ROWS]).tolist()
    whole = f"Means of {len(steps.rows)} ranks. " if several else ""
    explained = f"{whole}The parts of a step sum to it.{_without_the_last(steps)}"
    return Table("steps", "steps", "Every step", taken(columns, shown), size, explained)


def _counted(steps: _StepTimes, column: str) -> Floats:
    """The mean of a counter in each step, of all places that know it."""
    each = []
    for place, rows in zip(steps.places, steps.rows, strict=True):
        starts = rows.start_ns + place.window.starts[0]
        each.append(means_of_spans(place, column, starts, starts + rows.duration_ns))
    known = ~np.isnan(each)
    return ratio(np.nansum(each, axis=0), known.sum(axis=0))


def _without_the_last(steps: _StepTimes) -> str:
    """Why this page may have one step less than were analysed, and other lengths."""
    used = max(place.steps.used for place in steps.places)
    if steps.number.size == used:
        return ""
    return (
        " Here a step begins with the first work on the busiest stream, so that steps are comparable; the last of the "
        f"{used} steps analysed is incomplete by this division, and left out."
    )


def _left_out(steps: _StepTimes) -> tuple[Floats, Floats]:
    """Durations of the steps before and after those used; only of a single place, as several may leave out others."""
    if len(steps.places) > 1:
        return np.empty(0), np.empty(0)
    found = steps.places[0].steps
    every = np.diff(found.bounds).astype(np.float64)
    return every[: found.first], every[found.last :]
