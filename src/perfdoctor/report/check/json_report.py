"""A check as JSON, in the shape of docs/json.md. Keys are added, never renamed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfdoctor import __version__
from perfdoctor.records.document import FORMAT
from perfdoctor.report.comparison import json_report
from perfdoctor.report.json_report import as_text

if TYPE_CHECKING:
    from perfdoctor.comparison.check import Check


def render(check: Check) -> str:
    document = {
        "format": FORMAT,
        "perfdoctor": __version__,
        "kind": "check",
        "decision": check.decision,
        "failed": check.failed,
        "limit": check.limit,
        "runs_needed": check.runs_needed,
        "baseline": {"name": check.baseline, "runs": check.baseline_runs},
        "comparison": json_report.document(check.comparison),
    }
    return as_text(document)
