"""How often is perfdoctor right on recordings of which the truth is known? `make truth`."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labels import cases, fixture_cases, paths, recordings, rungs, wrong
from rich.console import Console
from rich.table import Table
from rich.text import Text

from perfdoctor.cli.what_if import questions
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


@dataclass(frozen=True)
class Promise:
    """A step as it was, as it is predicted with some findings fixed, and as it was measured then, in ms."""

    rung: Mapping[str, Any]
    recorded_ms: float
    promised_ms: tuple[float, float, float]

    @property
    def error(self) -> float:
        return self.promised_ms[1] / float(self.rung["step_ms"]) - 1

    @property
    def holds(self) -> bool:
        """Is what was measured inside the range?"""
        return self.promised_ms[0] <= float(self.rung["step_ms"]) <= self.promised_ms[2]


def promises(folder: Path) -> Iterator[Promise]:
    """Every rung of the ladders, predicted from the recording before it; nothing is fitted to any.

    `fixed` may also name another size of the run, as `--what-if` does.
    """
    rules = load_rules()
    for rung in rungs():
        asked = questions(", ".join(rung["fixed"]), rules)
        diagnosis = diagnose(read([folder / rung["path"]]), list(rules.values()), asked)
        assert diagnosis.prediction is not None
        best, likely, worst = (ns / 1e6 for ns in diagnosis.prediction.step_ns)
        yield Promise(rung, diagnosis.base_ns / 1e6, (best, likely, worst))


def _ladders(folder: Path) -> Table:
    table = Table("recording", "fixed", "step", "promised", "measured", "off", box=None, pad_edge=False)
    table.title = "Promises against what was measured, in ms"
    found = list(promises(folder))
    for each in found:
        best, likely, worst = each.promised_ms
        table.add_row(
            Text(each.rung["path"]), Text(", ".join(each.rung["fixed"])), f"{each.recorded_ms:.1f}",
            f"{likely:.1f} ({best:.1f} to {worst:.1f})", Text(f"{each.rung['step_ms']:.1f}, {each.rung['measured']}"),
            f"{each.error:+.1%}" + ("" if each.holds else ", outside"),
        )  # fmt: skip
    middle = statistics.median(abs(each.error) for each in found)
    inside = sum(each.holds for each in found)
    table.caption = f"Median error {middle:.1%}; {inside} of {len(found)} inside the range."
    return table


def main() -> int:
    folder = recordings()
    if folder is None:
        print("The public recordings are not on this machine (PERFDOCTOR_RECORDINGS): only fixtures/ is judged.")
    table = Table("case", "label", "first finding", "", box=None, pad_edge=False)
    mistakes, begun, known = 0, time.perf_counter(), [*fixture_cases(), *(cases() if folder else ())]
    for case in known:
        first, faults = _judge(folder or Path(), case)
        mistakes += bool(faults)
        verdict = Text("wrong: " + "; ".join(faults), "red") if faults else Text("right", "green")
        table.add_row(Text(case["path"]), Text(_label(case)), Text(first), verdict)
    console = Console(width=None if sys.stdout.isatty() else 200)
    console.print(table)
    if folder:
        console.print(_ladders(folder))
    print(f"{len(known) - mistakes} of {len(known)} right, {time.perf_counter() - begun:.1f} s")
    return 1 if mistakes else 0


if __name__ == "__main__":
    sys.exit(main())
