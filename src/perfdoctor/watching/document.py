"""What is known of a training now? `watch.json` in its run folder, written whole or not at all; `status` reads it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import msgspec
import numpy as np
from msgspec import Meta, Struct, field

from perfdoctor.errors import PerfdoctorError
from perfdoctor.readers import watched_run
from perfdoctor.system.paths import write_whole
from perfdoctor.watching import ranks as of_ranks
from perfdoctor.watching.anomalies import Anomaly, Cause
from perfdoctor.watching.hangs import Hang
from perfdoctor.watching.rows import RankSteps, per_step
from perfdoctor.watching.windows import WindowState

FILE = "watch.json"
FORMAT = 1
#: Stretches that make up "now", and points of the curve of the whole run.
_NOW, _POINTS = 8, 400
_LARGEST = 1 << 26


class RankNow(Struct, frozen=True):
    """One rank: `steps` made, the length of the latest ones, and what parts of a step are. Times in ns.

    `step_ns`: the median; `wait_share`, `host_share`: of a step, waiting for a batch and on a core.
    """

    rank: int
    pid: int
    steps: int
    step_ns: int
    wait_share: float
    host_share: float
    held_bytes: int
    gpu_bytes: int
    last_step_unix_ns: int
    ended: bool
    why: str = ""


class Point(Struct, frozen=True):
    """A piece of the whole run's curve, of the first rank: the quartiles of the steps around `step`."""

    step: int
    low_ns: int
    median_ns: int
    high_ns: int
    recorded: bool = False


class WatchDocument(Struct, frozen=True):
    """`state`: starting (no step yet), running, hangs, ended. `unix_ns`: when this was written."""

    format: int
    state: str
    started_unix_ns: int
    unix_ns: int
    command: tuple[str, ...] = ()
    step_ns: int = 0
    ranks: tuple[RankNow, ...] = ()
    curve: tuple[Point, ...] = ()
    anomalies: tuple[Anomaly, ...] = ()
    windows: tuple[WindowState, ...] = ()
    hang: Hang | None = None
    exit_code: int | None = None
    notes: Annotated[tuple[str, ...], Meta(max_length=1000)] = field(default_factory=tuple)


def rank_now(number: int, rank: RankSteps) -> RankNow:
    """What is known of a rank that has made steps."""
    latest = [each for each in rank.stretches[-4 * _NOW :] if not each.recorded][-_NOW:] or rank.stretches[-1:]
    sums = per_step(latest, "sum")
    shares = {name: float(np.median(per_step(latest, name) / np.maximum(sums, 1))) for name in ("wait", "host")}
    use = rank.uses[-1] if rank.uses else None
    return RankNow(
        number, rank.process.pid if rank.process else 0, rank.steps, int(np.median([each.q[2] for each in latest])),
        shares["wait"], shares["host"], use.rss if use else 0, use.gpu[0] if use else 0, latest[-1].end,
        bool(rank.ended_ns), rank.why,
    )  # fmt: skip


def curve(rank: RankSteps) -> tuple[Point, ...]:
    """The whole run in a few hundred points: of several stretches the medians of their quartiles."""
    first, *quartiles, recorded = rank.curve()
    size = -(-first.size // _POINTS)
    found = []
    for at in range(0, first.size, size or 1):
        piece = slice(at, at + size)
        low, median, high = (int(np.median(each[piece])) for each in quartiles)
        found.append(Point(int(first[at]), low, median, high, bool(recorded[piece].any())))
    return tuple(found)


def behind(documents: Sequence[WatchDocument]) -> Anomaly | None:
    """The rank of all nodes that keeps the others waiting now; None where there is none."""
    ranks = {each.rank: each for document in documents for each in document.ranks if not each.ended}
    waits = {rank: each.wait_share * each.step_ns for rank, each in ranks.items()}
    on_cores = not any(each.gpu_bytes for each in ranks.values())
    hosts = {rank: each.host_share * each.step_ns for rank, each in ranks.items() if on_cores}
    if not ranks:
        return None
    found = of_ranks.compared(waits, hosts, float(np.median([each.step_ns for each in ranks.values()])))
    if found is None:
        return None
    values = {"share": found.share, "more_ns": found.more_ns}
    cause: Cause = "input" if found.cause == "input" else "host"
    seen = ranks[found.rank]
    return Anomaly("behind", seen.steps, seen.steps, seen.last_step_unix_ns, found.rank, cause, values)


def write_curve(folder: Path, document: WatchDocument) -> None:
    """Leave the whole run's curve in the folder of a window, for its report. Raises OSError."""
    points = document.curve
    columns = {name: tuple(getattr(each, name) for each in points) for name in ("low_ns", "median_ns", "high_ns")}
    made = watched_run.Curve(
        watched_run.FORMAT, document.ranks[0].rank if document.ranks else 0, tuple(each.step for each in points),
        recorded=tuple(each.recorded for each in points), **columns,
    )  # fmt: skip
    write_whole(folder / watched_run.FILE, msgspec.json.encode(made))


def write(folder: Path, document: WatchDocument) -> None:
    """Store it. Raises OSError."""
    write_whole(folder / FILE, encoded(document) + b"\n")


def encoded(document: WatchDocument) -> bytes:
    """Return the document as JSON."""
    return msgspec.json.encode(document)


def read(folder: Path, name: str = FILE) -> WatchDocument:
    """The document of a run, or what one of several nodes has left under another name.

    Raises PerfdoctorError where there is none, or it is damaged.
    """
    try:
        with (folder / name).open("rb") as stream:
            return decoded(stream.read(_LARGEST), name)
    except OSError as error:
        raise PerfdoctorError(
            f"{folder} is no run under watch: {name} cannot be read ({error.strerror or error})",
            do="Name the run folder that perfdoctor watch printed at its start.",
        ) from error


def decoded(content: bytes, name: str = FILE) -> WatchDocument:
    """The document in a file's content. Raises PerfdoctorError where it is damaged, or of another version."""
    try:
        document = msgspec.json.decode(content, type=WatchDocument)
    except msgspec.MsgspecError as error:
        raise PerfdoctorError(
            f"{name} is damaged: {error}", do="It is written anew while the training runs."
        ) from error
    if document.format != FORMAT:
        raise PerfdoctorError(f"{name} has the format {document.format}", do="Use the perfdoctor that wrote it.")
    return document


def state_of(ranks: Mapping[int, RankSteps] | Sequence[RankSteps], *, hangs: bool, has_ended: bool) -> str:
    if has_ended:
        return "ended"
    return "hangs" if hangs else "running" if ranks else "starting"
