"""How often is perfdoctor right on recordings of which the truth is known? `make truth`."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from labels import cases, fixture_cases, recordings, wrong
from rich.console import Console
from rich.table import Table
from rich.text import Text

from perfdoctor.diagnose import diagnose
from perfdoctor.errors import PerfdoctorError
from perfdoctor.ingest.reader import read
from perfdoctor.rulebook import load_rules


def _label(case: Mapping[str, Any]) -> str:
    words = [f"{key} {' / '.join(case[key])}" for key in ("first", "found", "silent", "skipped") if case.get(key)]
    if "fails" in case:
        words.append(f"refused: {case['fails']}")
    if "nothing_above" in case:
        words.append("nothing above 3 %")
    return "; ".join(words) or "is read"


def _judge(folder: Path | None, case: Mapping[str, Any]) -> tuple[str, list[str]]:
    """The first finding, and what is wrong about the diagnosis."""
    try:
        diagnosis = diagnose(read([case.get("folder", folder) / case["path"]]), list(load_rules().values()))
    except PerfdoctorError as error:
        expected = case.get("fails", "\0")
        return f"refused: {error.what}", [] if expected in error.what else [error.what]
    if "fails" in case:
        return "was read", ["should have been refused"]
    first = diagnosis.findings[0] if diagnosis.findings else None
    share = first.saving_ns_per_step.likely / diagnosis.base_ns if first else 0.0
    return f"{first.rule} ({share:.0%})" if first else "nothing worth fixing", list(wrong(case, diagnosis))


def main() -> int:
    folder = recordings()
    if folder is None:
        print("The public recordings are not on this machine (PERFDOCTOR_RECORDINGS): only fixtures/ is judged.")
    table = Table("case", "label", "first finding", "", box=None, pad_edge=False)
    mistakes, begun, known = 0, time.perf_counter(), [*fixture_cases(), *(cases() if folder else ())]
    for case in known:
        first, faults = _judge(folder, case)
        mistakes += bool(faults)
        verdict = Text("wrong: " + "; ".join(faults), "red") if faults else Text("right", "green")
        table.add_row(Text(case["path"]), Text(_label(case)), Text(first), verdict)
    Console(width=None if sys.stdout.isatty() else 200).print(table)
    print(f"{len(known) - mistakes} of {len(known)} right, {time.perf_counter() - begun:.1f} s")
    return 1 if mistakes else 0


if __name__ == "__main__":
    sys.exit(main())
