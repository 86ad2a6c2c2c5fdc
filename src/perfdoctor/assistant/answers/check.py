"""Is a training slower than its baseline by more than is allowed?"""

from __future__ import annotations

import msgspec

from perfdoctor.assistant.answers.compare import differences, snapshots
from perfdoctor.assistant.arguments import Analyze, Check
from perfdoctor.assistant.bounded import Answer, name
from perfdoctor.assistant.desk import Desk
from perfdoctor.comparison import check as checking
from perfdoctor.errors import PerfdoctorError
from perfdoctor.history import comparable
from perfdoctor.report import json_report
from perfdoctor.report.check import words
from perfdoctor.report.comparison import json_report as comparison_json


def answer(asked: Check, desk: Desk) -> Answer:
    before, after = ([side] if isinstance(side, str) else side for side in (asked.baseline, asked.after))
    _refuse_same([*before, *after], desk)
    baseline = " and ".join(map(name, before))
    rows = {text: comparable.of_document(_document(text, desk)) for text in (*before, *after)}
    comparable.refuse_others(baseline, [rows[text] for text in before], [(name(text), rows[text]) for text in after])
    runs = [checking.BaselineRun(name(text), by_recording=True) for text in before]
    found = checking.check(baseline, runs, snapshots(before, desk), snapshots(after, desk), asked.fail_above)
    whole = msgspec.json.decode(comparison_json.render_check(found))
    comparison = whole.pop("comparison")
    lines = [
        "The check fails." if found.failed else "The check passes.",
        words.verdict(found), words.runs_needed(found), *differences(found.comparison),
    ]  # fmt: skip
    kept = {key: comparison[key] for key in ("step", "item", "causes", "findings", "settings", "notes")}
    return Answer(
        "\n".join(filter(None, lines)),
        {**{key: whole[key] for key in ("decision", "failed", "limit", "runs_needed", "baseline")}, **kept},
    )


def _refuse_same(named: list[str], desk: Desk) -> None:
    """Raise PerfdoctorError for a recording that is given twice."""
    real = [text if desk.root.address(text) else str(desk.root.recording(text)) for text in named]
    for position, each in enumerate(real):
        if each in real[:position]:
            raise PerfdoctorError(
                f"{name(named[position])} is given twice", do="Hold a run against other runs of the same program."
            )


def _document(text: str, desk: Desk) -> dict[str, object]:
    found: dict[str, object] = msgspec.json.decode(json_report.render(desk.diagnosed(Analyze(path=text))))
    return found
