"""How is the history of a number said in words?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfdoctor.history.changes import LEAST_RUNS
from perfdoctor.history.series import MOST_COMMITS
from perfdoctor.report.words import wording
from perfdoctor.report.words.foreign_text import clean, clean_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from perfdoctor.history.metrics import Metric
    from perfdoctor.history.series import LevelChange, Trend

#: Commits named in a terminal or on a page; further ones are counted.
SHOWN_COMMITS = 5
_BARS = "▁▂▃▄▅▆▇█"
_SHORT_COMMIT = 10


def value(metric: Metric, number: float) -> str:
    match metric.unit:
        case "ns":
            return wording.duration(round(number))
        case "bytes":
            return wording.size(number)
        case "share":
            return wording.fine_share(number)
        case _:
            return wording.count(number)


def day(moment: str) -> str:
    """The minute of an ISO time: `2026-11-23 05:21`."""
    return clean_name(moment[:16].replace("T", " "), 16)


def short_commit(commit: str, *, dirty: bool) -> str:
    """The first digits of a commit, with a + where files differed from it; "" where it is not known."""
    return clean_name(commit[:_SHORT_COMMIT]) + ("+" if dirty and commit else "")


def sparkline(values: Sequence[float], width: int) -> str:
    """One character for each of the newest `width` runs. The lowest bar is the lowest value."""
    shown = list(values)[-width:]
    low, high = min(shown), max(shown)
    if high == low:
        return _BARS[3] * len(shown)
    return "".join(_BARS[min(int((each - low) / (high - low) * len(_BARS)), len(_BARS) - 1)] for each in shown)


def heading(trend: Trend) -> str:
    """The last change of the number, or that there is none, in a sentence."""
    label = trend.metric.label[:1].upper() + trend.metric.label[1:]
    last = value(trend.metric, trend.points[-1].value)
    if not trend.changes:
        runs = wording.counted(len(trend.points), "run")
        if len(trend.points) < 2 * LEAST_RUNS:
            return f"{label}: {last}, {runs}: too few to see a change."
        return f"{label}: {last}, {runs}" + ("." if trend.not_searched else ", no change of its level.")
    return f"{label}: {_moved(trend.changes[-1], trend.metric)}"


def facts(trend: Trend) -> list[str]:
    first, last = trend.points[0], trend.points[-1]
    ranks = int(trend.what["ranks"]) if trend.what.get("ranks", "").isdecimal() else 0
    when = dict.fromkeys(day(each.recorded_at) for each in (first, last))
    return [
        clean_name(trend.what.get("project", ""), 60),
        clean(trend.what.get("program", ""), 160),
        clean_name(trend.what.get("device", ""), 60),
        *([wording.counted(ranks, "rank")] if ranks > 1 else []),
        *([clean_name(trend.what["part"])] if "part" in trend.what else []),
        f"{wording.counted(len(trend.points), 'run')}, {' to '.join(when)}",
    ]


def changes(trend: Trend) -> Iterator[tuple[str, list[str]]]:
    """A sentence about each change, and what may have caused it; newest first."""
    for each in reversed(trend.changes):
        beside = (f"{name}: {clean_name(before, 40)} → {clean_name(after, 40)}" for name, before, after in each.differs)
        yield _sentence(each, trend.metric), [*beside, *_commits(each)]


def _moved(each: LevelChange, metric: Metric) -> str:
    before, after = each.change.before, each.change.after
    way = "rose" if after > before else "fell"
    by = f" by {wording.share(abs(after / before - 1))}" if before else ""
    gradually = " gradually" if each.change.kind == "gradual" else ""
    judged = "worse" if each.is_worse else "better"
    return f"{way}{gradually}{by}, from {value(metric, before)} to {value(metric, after)} ({judged})."


def _sentence(each: LevelChange, metric: Metric) -> str:
    moved, run = _moved(each, metric), f"{clean_name(each.first.run)} of {day(each.first.recorded_at)}"
    first = f"First {'bad' if each.is_worse else 'good'} run: {run}."
    if each.change.kind == "gradual":
        first = f"No single run made it; it is around run {run}."
    return f"{moved[:1].upper()}{moved[1:]} {first}"


def _commits(each: LevelChange) -> Iterator[str]:
    if each.change.kind == "gradual":
        return
    known = each.commits
    if known is None:
        yield "The commits of these runs are not known."
        return
    last, first = (short_commit(p.commit, dirty=p.dirty) for p in (each.last, each.first))
    if known.last == known.first:
        dirty = each.last.dirty or each.first.dirty
        yield f"Both runs are of commit {last.rstrip('+')}" + (", with changed files." if dirty else ".")
        return
    commits = known.commits or ()
    number = f", {wording.counted(len(commits), 'commit')}" if known.commits is not None else ""
    number = f", {len(commits)} commits or more" if len(commits) >= MOST_COMMITS else number
    yield f"Commits {last}..{first}{number}" + ("; + had changed files" if "+" in last + first else "")
    for short, subject in commits[:SHOWN_COMMITS]:
        yield f"  {clean_name(short, 16)} {clean(subject, 72)}"
    if len(commits) > SHOWN_COMMITS:
        yield f"  … git log {last.rstrip('+')}..{first.rstrip('+')}"


def left_out(trend: Trend) -> Iterator[str]:
    """Which runs are not in the series, and what was not done."""
    if trend.not_searched:
        yield f"{trend.not_searched[:1].upper()}{trend.not_searched[1:]}"
    if trend.unknown:
        yield f"{wording.counted(trend.unknown, 'run')} of this series without this number, or too old, left out."
    if trend.elsewhere:
        yield (
            f"{wording.counted(trend.elsewhere, 'run')} of other projects, commands, devices or ranks not shown: "
            "--like RUN shows those of another run, --program TEXT joins all whose command has it."
        )
    if trend.repeated:
        yield f"{wording.counted(trend.repeated, 'row')} of recordings that were analysed again later not counted."
