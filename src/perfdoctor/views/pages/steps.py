"""The page `steps`: how long was each step, of what parts, and which ones stand out?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from perfdoctor.metrics.accounting.step_rows import StepRows, step_rows
from perfdoctor.model.columns import Floats
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.records.diagnosis import Diagnosis
from perfdoctor.records.views import Axis, Chart, Series, Table, TableColumn, Unit
from perfdoctor.views.places import ALIKE, in_short, in_words, place_names
from perfdoctor.vocabulary.parts import REST, SMALL_SHARE
from perfdoctor.vocabulary.rulebook import load_rules

Numbers = Mapping[str, tuple[float | str, Unit]]

#: More bars than this are thinner than a finger and than most screens' pixels: then each stands for several steps.
MOST_BARS = 120
#: How much of its room a bar takes, on paper and on screens.
_BAR_SHARE = 0.8
_MOST_ROWS = 5000


@dataclass(frozen=True)
class _Steps:
    """The mean over all places that have equally many steps; where there are several, also the longest of them."""

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
        """By the step's row, of those much longer than their neighbours: the part that grew most, and where."""
        found: dict[int, str] = {}
        for name, each in zip(self.names, self.rows, strict=True):
            where = f" on {name}" if len(self.names) > 1 else ""
            for row, part in enumerate(each.grown):
                if part:
                    more = in_words(part) + where
                    found[row] = f"{found[row]} and {more}" if row in found else more
        return found


def view(run: Run, diagnosis: Diagnosis) -> Iterator[Table | Chart]:
    found = _found(run)
    if found is None:
        return
    if found.number.size > 1:
        yield _chart(found)
    yield _table(found)


def _found(run: Run) -> _Steps | None:
    at = load_rules()["step-outliers"].at
    every = [(place, _sure(step_rows(place, at["deviations"], at["min_excess_share"]), at)) for place in run.places]
    told = [(place, rows) for place, rows in every if rows is not None]
    if not told or not run.per_step:
        return None
    usual = Counter(rows.duration_ns.size for _, rows in told).most_common(1)[0][0]
    alike = [(place, rows) for place, rows in told if rows.duration_ns.size == usual]
    places, rows = [place for place, _ in alike], [each for _, each in alike]
    parts: dict[str, Floats] = {
        part: np.mean([each.parts_ns[part] for each in rows], axis=0) for part in rows[0].parts_ns
    }
    return _Steps(place_names(places), places, rows, {part: ns for part, ns in parts.items() if ns.any()})


def _sure(rows: StepRows | None, at: Mapping[str, float]) -> StepRows | None:
    """As the rule `step-outliers`: a few long ones among enough steps are exceptions, many are another kind of step."""
    if rows is None:
        return None
    size, long = rows.duration_ns.size, sum(bool(part) for part in rows.grown)
    is_told = size >= at["min_steps"] and long <= at["max_share_of_steps"] * size
    return rows if is_told else replace(rows, grown=("",) * size)


# --- the chart --------------------------------------------------------------------------------------------------------


def _chart(steps: _Steps) -> Chart:
    together = -(-steps.number.size // MOST_BARS)
    median, p90 = (float(np.quantile(steps.mean_ns, share)) for share in (0.5, 0.9))
    middles, half = _middles(steps, together), _BAR_SHARE / 2 * together
    ends = np.array([middles[0] - half, middles[-1] + half])
    label = "step of those looked at" if together == 1 else f"step of those looked at, {together} a bar"
    told, numbers = _told(steps, together)
    return Chart(
        "steps", "steps", "Step by step, mean of all ranks" if len(steps.rows) > 1 else "Step by step", told,
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


def _bars(steps: _Steps, together: int) -> Iterator[Series]:
    """The parts that can be seen, and the rest of the idle as one."""
    whole = steps.mean_ns.sum()
    small = {part for part, ns in steps.parts_ns.items() if ns.sum() < SMALL_SHARE * whole and part != "compute"}
    shown = {part: ns for part, ns in steps.parts_ns.items() if part not in small}
    if small:
        shown[REST] = np.sum([steps.parts_ns[part] for part in small], axis=0)
    x = _middles(steps, together)
    for part, ns in shown.items():
        yield Series(in_words(part), "bars", x, _grouped(ns, together, np.mean), (), part=part)


def _longest(steps: _Steps, together: int) -> Iterator[Series]:
    several = len(steps.rows) > 1
    if several or together > 1:
        name = "longest on any rank" if several else "longest of those in the bar"
        highest = _grouped(steps.durations_ns.max(axis=0), together, np.max)
        yield Series(name, "line", _middles(steps, together), highest)


def _marks(steps: _Steps, together: int) -> Iterator[Series]:
    remarks = steps.remarks
    if remarks:
        rows = np.array(sorted(remarks))
        x = _middles(steps, together)[rows // together]
        labels = tuple(f"step {row + 1}: {remarks[row]} grew most" for row in rows.tolist())
        top = steps.durations_ns.max(axis=0) if len(steps.rows) > 1 else steps.mean_ns
        y = _grouped(top, together, np.max)[rows // together]
        yield Series("much longer than the others", "marks", x, y, labels)


def _middles(steps: _Steps, together: int) -> Floats:
    """Where each bar stands: in the middle of the steps that it is for, the last ones as far from it as the others."""
    return np.arange(0, steps.number.size, together, dtype=np.float64) + (together + 1) / 2


def _grouped(values: Floats, together: int, how: object) -> Floats:
    """One number for each so many neighbours."""
    if together == 1:
        return values
    starts = np.arange(0, values.size, together)
    if how is np.max:
        return np.maximum.reduceat(values, starts)
    return np.add.reduceat(values, starts) / np.diff(np.append(starts, values.size))


def _told(steps: _Steps, together: int) -> tuple[str, Numbers]:
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
    told = "{count} steps of {median}" if alike else "{count} steps of {low} to {high}, median {median}"
    told += "; the largest part is {part}, {share}."
    if remarks:
        worst = max(remarks, key=lambda row: float(steps.durations_ns[:, row].max()))
        numbers |= {"long": (len(remarks), "count"), "worst": (worst + 1, "position"), "why": (remarks[worst], "text"),
                    "longest": (float(steps.durations_ns[:, worst].max()), "ns")}  # fmt: skip
        told += " Steps far above the others: {long}; the longest is step {worst}, {longest}, where {why} grew most."
    if together > 1:
        told += f" A bar is the mean of {together} steps."
    told += _without_the_last(steps)
    return told, numbers


# --- the table --------------------------------------------------------------------------------------------------------


def _table(steps: _Steps) -> Table:
    before, behind = _left_out(steps)
    inside = steps.number.size
    size = before.size + inside + behind.size
    unknown = [None] * before.size, [None] * behind.size

    def of_used(values: npt.ArrayLike) -> list[float | None]:
        return [*unknown[0], *np.asarray(values).tolist(), *unknown[1]]

    remarks = ["left out: before the steady steps"] * before.size + [""] * inside
    remarks += ["left out: behind the steady steps"] * behind.size
    for row, remark in steps.remarks.items():
        remarks[before.size + row] = f"long: {remark} grew most"
    several = len(steps.rows) > 1
    means = [*before.tolist(), *steps.mean_ns.tolist(), *behind.tolist()]
    columns = [
        TableColumn("step", "position", of_used(steps.number), "Of those looked at; the others are left out."),
        TableColumn("begins", "ns", of_used(steps.rows[0].start_ns), "Behind the begin of the window."),
        TableColumn("mean of all ranks" if several else "duration", "ns", means),
        *(
            TableColumn(in_short(part), "ns", of_used(ns.round()), in_words(part))
            for part, ns in steps.parts_ns.items()
        ),
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
    shown = _longest_rows(means)
    cut = tuple(TableColumn(c.name, c.unit, [c.values[row] for row in shown], c.explained) for c in columns)
    whole = f"Means of {len(steps.rows)} ranks. " if several else ""
    told = f"{whole}The parts of a step sum to it.{_without_the_last(steps)}"
    return Table("steps", "steps", "Every step", cut, size, told)


def _without_the_last(steps: _Steps) -> str:
    """Why there are fewer steps here than were looked at, and why they are of other lengths."""
    used = max(place.steps.used for place in steps.places)
    if steps.number.size == used:
        return ""
    return (
        " Each step begins here with the first work on the busiest stream, which makes them comparable; the last of "
        f"the {used} looked at is not whole by this cut, and left out."
    )


def _left_out(steps: _Steps) -> tuple[Floats, Floats]:
    """Durations of the steps before and behind those used: of one place only, several may have left out others."""
    if len(steps.places) > 1:
        return np.empty(0), np.empty(0)
    found = steps.places[0].steps
    every = np.diff(found.bounds).astype(np.float64)
    return every[: found.first], every[found.last :]


def _longest_rows(durations_ns: Sequence[float]) -> list[int]:
    """In order; of too many the longest."""
    order = np.argsort(-np.asarray(durations_ns), kind="stable")[:_MOST_ROWS]
    return [int(row) for row in np.sort(order)]
