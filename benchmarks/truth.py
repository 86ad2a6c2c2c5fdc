"""How often is perfdoctor right on recordings of which the truth is known? `make truth`."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from labels import cases, fixture_cases, paths, recordings, wrong
from made_recordings import made_cases
from pairs import Held, coverage, held, off, pairs
from rich.console import Console
from rich.table import Table
from rich.text import Text

from perfdoctor.diagnosis.engine import diagnose
from perfdoctor.errors import PerfdoctorError
from perfdoctor.readers.open import read
from perfdoctor.vocabulary.rulebook import load_rules


def _label(case: Mapping[str, Any]) -> str:
    words = [
        f"{key} {' / '.join(case[key])}" for key in ("first", "found", "silent", "skipped", "says") if case.get(key)
    ]
    if "fails" in case:
        words.append(f"refused: {case['fails']}")
    if "nothing_above" in case:
        words.append("nothing above 3 %")
    return "; ".join(words) or "is read"


def _judge(folder: Path, case: Mapping[str, Any]) -> tuple[str, list[str]]:
    """The first finding, and what is wrong about the diagnosis."""
    try:
        diagnosis = diagnose(read(paths(case, folder)), list(load_rules().values()))
    except PerfdoctorError as error:
        expected = case.get("fails", "\0")
        return f"refused: {error.what}", [] if expected in error.what and error.do else [error.what]
    if "fails" in case:
        return "was read", ["should have been refused"]
    first = diagnosis.findings[0] if diagnosis.findings else None
    share = first.saving_ns_per_step.likely / max(diagnosis.base_ns, 1) if first else 0.0
    return f"{first.rule} ({share:.0%})" if first else "nothing worth fixing", list(wrong(case, diagnosis))


def _pairs(found: Sequence[Held]) -> Table:
    table = Table("recording or program", "fixed", "step", "predicted", "measured", "off", box=None, pad_edge=False)
    table.title = "Predicted steps against what was measured, in ms"
    for each in found:
        best, likely, worst = each.predicted_ms
        how = (
            each.pair.source or f"{len(each.pair.measured.before_ms)} rounds, ± {100 * each.pair.measured.spread:.0f} %"
        )
        table.add_row(
            Text(each.pair.label), Text(", ".join(each.pair.fixed)), f"{each.base_ms:.1f}",
            f"{likely:.1f} ({best:.1f} to {worst:.1f})", Text(f"{each.measured_ms:.1f}, {how}"),
            off(each),
        )  # fmt: skip
    return table


def _coverage(found: Sequence[Held]) -> Table:
    """The range is meant to hold 80 of 100: see calibrate.py."""
    table = Table("pairs about", "pairs", "median error", "inside", box=None, pad_edge=False)
    for row in coverage(found):
        inside = f"{row.inside} of {row.pairs} ({row.inside / row.pairs:.0%})"
        table.add_row(row.kind, str(row.pairs), f"{row.median_error:.1%}", inside)
    return table


def main() -> int:
    folder = recordings()
    if folder is None:
        print("The public recordings are not on this machine (PERFDOCTOR_RECORDINGS): only fixtures/ is judged.")
    table = Table("case", "label", "first finding", "", box=None, pad_edge=False)
    mistakes, missed, begun = 0, 0, time.perf_counter()
    known = [*fixture_cases(), *(cases() if folder else ()), *made_cases(folder)]
    for case in known:
        first, faults = _judge(folder or Path(), case)
        verdict = Text("wrong: " + "; ".join(faults), "red") if faults else Text("right", "green")
        if faults and "missed" in case:
            verdict = Text(f"missed: {case['missed']}", "yellow")
        missed += bool(faults) and "missed" in case
        mistakes += bool(faults) and "missed" not in case
        table.add_row(Text(case["path"]), Text(_label(case)), Text(first), verdict)
    console = Console(width=None if sys.stdout.isatty() else 200)
    console.print(table)
    found = held(pairs())
    console.print(_pairs(found))
    console.print(_coverage(found))
    right = len(known) - mistakes - missed
    print(f"{right} of {len(known)} right, {missed} known to be missed, {time.perf_counter() - begun:.1f} s")
    return 1 if mistakes else 0


if __name__ == "__main__":
    sys.exit(main())
