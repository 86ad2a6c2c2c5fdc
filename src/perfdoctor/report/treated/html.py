"""What does a person read of treatments in the browser? One page, without a script."""

from __future__ import annotations

import msgspec
from msgspec import Struct

from perfdoctor.report.html import page
from perfdoctor.report.treated import words
from perfdoctor.treatments.records import ShareRange, TreatResult, TriedFix

_STYLES = ("style.css", "treated.css")
#: Ends that are not known, or far away, are drawn at the picture's edge.
_LEAST, _MOST = -1.0, 1.0


class Interval(Struct, frozen=True):
    """Where an interval is drawn, from 0 to 100 on the picture's axis; `zero` is where nothing is saved."""

    low: float
    likely: float
    high: float
    zero: float


def render(result: TreatResult) -> str:
    shown = words.rows(result)
    ends = [end for row in shown for each in (row.measured, row.promised) if each for end in _ends(each)]
    least, most = min([0.0, *ends]) - 0.02, max([0.0, *ends]) + 0.02

    def interval(saved: ShareRange | None) -> Interval | None:
        if saved is None:
            return None
        places = [(each - least) / (most - least) * 100 for each in (*_ends(saved), 0.0)]
        return Interval(*places)

    def drawn(row: TriedFix) -> tuple[Interval | None, Interval | None]:
        return interval(row.measured), interval(row.promised)

    return page("treated.html.j2", _STYLES, result=result, words=words, rows=shown, drawn=drawn).text


def _ends(saved: ShareRange) -> tuple[float, float, float]:
    low = _LEAST if saved.low is None else max(saved.low, _LEAST)
    high = _MOST if saved.high is None else min(saved.high, _MOST)
    return low, min(max(saved.likely, _LEAST), _MOST), high


def json(result: TreatResult) -> bytes:
    """The result as treat.json: keys as the records have them."""
    return msgspec.json.format(msgspec.json.encode(result)) + b"\n"
