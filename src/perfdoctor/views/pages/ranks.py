"""The page `ranks`: how do the ranks differ?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from perfdoctor.metrics.accounting.outliers import edges
from perfdoctor.metrics.accounting.split import split
from perfdoctor.metrics.communication.skew import skew
from perfdoctor.metrics.machine.gpu_samples import AT_WORK, of_places
from perfdoctor.metrics.program import basis_of
from perfdoctor.model.columns import Floats
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.records.diagnosis import Diagnosis
from perfdoctor.records.views import Heat, Table, TableColumn
from perfdoctor.views.many_ranks import by_node, standing_out
from perfdoctor.views.tables import ALIKE, in_short, in_words, place_names, taken
from perfdoctor.vocabulary.parts import REST, SMALL_SHARE

#: More columns would be too narrow to point at: then a column stands for several steps.
_MOST_COLUMNS = 120
_MHZ = 1e6


def view(run: Run, diagnosis: Diagnosis) -> Iterator[Table | Heat]:
    if len(run.job.places) < 2:
        return
    yield from by_node(run)
    few = standing_out(run)
    names = place_names(few.places)
    yield _by_part(few, names, basis_of(run).whole)
    yield from _by_step(few, names)
    yield _table(run, few, names)


def _shares(run: Run) -> Mapping[str, Floats]:
    """The share of each part in the window, one number a place; the parts of a place sum to one."""
    every = [place.parts for place in run.places]
    whole = np.array([place.window_ns for place in run.places], np.float64)
    shares = {part: np.array([parts[part].total_ns for parts in every]) / whole for part in every[0]}
    return {part: share for part, share in shares.items() if share.any()}


def _by_part(run: Run, names: Sequence[str], whole: str) -> Heat:
    """Draw the parts of each rank's step; parts that are small on all ranks are one. `whole`: what has the parts."""
    shares = _shares(run)
    small = [part for part, share in shares.items() if share.max() < SMALL_SHARE and part != "compute"]
    shown = {part: share for part, share in shares.items() if part not in small}
    if small:
        shown[REST] = np.sum([shares[part] for part in small], axis=0)
    apart = max(shown, key=lambda part: float(np.ptp(shown[part])))
    low, high = int(shown[apart].argmin()), int(shown[apart].argmax())
    alike = shown[apart][high] - shown[apart][low] < ALIKE
    differ = "The ranks differ most in {part}: {low} on {low_rank}, {high} on {high_rank}"
    return Heat(
        "ranks", "ranks-parts", f"Parts of {whole} by rank",
        "The ranks hardly differ." if alike else f"{differ}.",
        tuple(names), tuple(in_words(part) for part in shown), np.stack(list(shown.values()), axis=1), "share",
        {"part": (in_words(apart), "text"), "low": (float(shown[apart][low]), "share"),
         "low_rank": (names[low], "text"), "high": (float(shown[apart][high]), "share"),
         "high_rank": (names[high], "text")},
    )  # fmt: skip


def _by_step(run: Run, names: Sequence[str]) -> Iterator[Heat]:
    """Draw the length of each step on each rank of `run`; ranks with fewer steps have unknown lengths at the end."""
    if not run.per_step:
        return
    durations = [np.diff(edges(place)).astype(np.float64) for place in run.places]
    most = max(each.size for each in durations)
    if most < 2:
        return
    values = np.stack([np.pad(each, (0, most - each.size), constant_values=np.nan) for each in durations])
    row, column = divmod(int(np.nanargmax(values)), most)
    together = -(-most // _MOST_COLUMNS)
    alike = np.nanmax(values) - np.nanmin(values) < ALIKE * np.nanmax(values)
    said = "The longest is step {step} on {rank}, {longest}; the median of all is {median}."
    said = "All steps take {median}." if alike else said
    yield Heat(
        "ranks", "ranks-steps", "Step time by rank",
        said + (f" A column is the longest of {together} steps." if together > 1 else ""),
        tuple(names), tuple(f"step {number + 1}" for number in range(0, most, together)),
        np.fmax.reduceat(values, np.arange(0, most, together), axis=1), "ns",
        {"step": (column + 1, "position"), "rank": (names[row], "text"), "longest": (float(values[row, column]), "ns"),
         "median": (float(np.nanmedian(values)), "ns")},
    )  # fmt: skip


def _table(run: Run, few: Run, names: Sequence[str]) -> Table:
    places = few.places
    parts, lengths = [place.parts for place in places], [place.window_ns for place in places]
    gpus = [place.info.name for place in places]
    columns = [
        TableColumn("rank", "text", names),
        *([TableColumn("GPU", "text", gpus)] if any(gpus) else []),
        TableColumn(basis_of(run).noun or "recording", "ns", _per_step(places, lengths)),
        *(
            TableColumn(in_short(part), "ns", _per_step(places, [own[part].total_ns for own in parts]), in_words(part))
            for part in _shares(few)
        ),
        *_lateness(run, places),
        *_kernels(places),
        *_clocks(run, places),
    ]
    order = np.argsort(-np.array(_per_step(places, lengths)), kind="stable").tolist()
    explained = "Numbers are per step, means over the steps analysed; the parts sum to the step."
    title, every = "Ranks, slowest first", len(run.job.places)
    if len(places) < every:
        title = f"The {len(places)} of {every:,} ranks that stand out, slowest first"
    return Table("ranks", "ranks", title, taken(columns, order), len(places), explained if run.per_step else "")


def _per_step(places: Sequence[Place], quantities: Sequence[float]) -> list[float]:
    return [quantity / place.units for place, quantity in zip(places, quantities, strict=True)]


def _lateness(run: Run, places: Sequence[Place]) -> Iterator[TableColumn]:
    """Lateness of `places` at collectives, if these can be matched between the ranks."""
    matched = skew(run.job)
    if matched is None:
        return
    by_rank = {rank: row for row, rank in enumerate(matched.ranks)}
    for name, quantity, explained in (
        ("lateness", matched.caused_ns, "After the median rank, in collectives at which it arrived last."),
        ("waits for others", matched.waiting_ns, "In collectives, until the last rank arrived."),
    ):
        values = [
            float(quantity[by_rank[place.rank]]) / place.units if place.rank in by_rank else None for place in places
        ]
        yield TableColumn(name, "ns", values, explained)


def _kernels(places: Sequence[Place]) -> Iterator[TableColumn]:
    collectives = [0 if place.device is None else len(place.collectives) for place in places]
    counts = [split(place).kernel_count - others for place, others in zip(places, collectives, strict=True)]
    if any(counts):
        yield TableColumn("kernels", "number", _per_step(places, counts), "Without collectives.")


def _clocks(run: Run, places: Sequence[Place]) -> Iterator[TableColumn]:
    """Median SM clock of `places` in the samples under load, if it is known to which rank they belong."""
    sampled = of_places(run, AT_WORK)
    values: list[float | None] = []
    for place in places:
        gpu = sampled.get((place.rank, -1 if place.device is None else place.device))
        clocks = gpu.floats("sm_clock_mhz")[gpu.under_load(AT_WORK)] if gpu else np.empty(0)
        known = clocks[~np.isnan(clocks)]
        values.append(float(np.median(known)) * _MHZ if known.size else None)
    if any(value is not None for value in values):
        yield TableColumn("SM clock", "hertz", values, "Median of the samples under load.")
