"""Is a training slower than its baseline by more than is allowed?"""

from __future__ import annotations

import msgspec

from perfdoctor.api.check_runs import baseline_run, latest_pinned, refuse_same, snapshot_of
from perfdoctor.assistant.answers.compare import differences, snapshots
from perfdoctor.assistant.arguments import Analyze, Check
from perfdoctor.assistant.bounded import Answer, name
from perfdoctor.assistant.desk import Desk
from perfdoctor.comparison import check as checking
from perfdoctor.errors import PerfdoctorError
from perfdoctor.history import comparable, runs, schema, store
from perfdoctor.history.facts import Row, fingerprint
from perfdoctor.history.runs import StoredRun
from perfdoctor.report import json_document, json_report
from perfdoctor.report.check import words
from perfdoctor.report.comparison import json_report as comparison_json
from perfdoctor.system.run_folder import Manifest, RunFolder

_HISTORY = f"{schema.FOLDER}/{store.FILE}"


def answer(asked: Check, desk: Desk) -> Answer:
    before, after = ([side] if isinstance(side, str) else side for side in (asked.baseline, asked.after))
    pinned = _pinned(before, desk)
    recorded = [text for text in before if text not in pinned]
    _refuse_same([*recorded, *after], desk)
    baseline = " and ".join(map(name, before))
    stored = [run for each in pinned.values() for run in each]
    rows = {text: _row(text, desk) for text in (*recorded, *after)}
    ours = [*(run.facts for run in stored), *(rows[text] for text in recorded)]
    theirs = [(name(text), rows[text]) for text in after]
    refuse_same(baseline, ours, theirs)
    comparable.refuse_others(baseline, ours, theirs)
    of_baseline = [baseline_run(run.facts["id"], run.facts, by_recording=False) for run in stored]
    of_baseline += [checking.BaselineRun(name(text), by_recording=True) for text in recorded]
    known = [*(snapshot_of(run, desk.known) for run in stored), *snapshots(recorded, desk)]
    found = checking.check(baseline, of_baseline, known, snapshots(after, desk), asked.fail_above)
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


def _pinned(names: list[str], desk: Desk) -> dict[str, tuple[StoredRun, ...]]:
    """What the history below the root has pinned by those names that are no recording there."""
    refused = {text: error for text in names if (error := _refusal(text, desk)) is not None}
    return {text: _pinned_runs(text, error, desk) for text, error in refused.items()}


def _refusal(text: str, desk: Desk) -> PerfdoctorError | None:
    """Why there is no recording of this name; None where there is one."""
    try:
        desk.root.address(text) or desk.root.inside(text)
    except PerfdoctorError as error:
        return error
    return None


def _pinned_runs(text: str, refusal: PerfdoctorError, desk: Desk) -> tuple[StoredRun, ...]:
    """The runs as the history holds them: their recordings may lie elsewhere. Raises PerfdoctorError where the name is
    no pin either.
    """
    if _refusal(_HISTORY, desk):
        raise refusal
    with store.read(desk.root.recording(_HISTORY), in_place=False) as history:
        if found := latest_pinned(history, text):
            return found
        pins = ", ".join(map(name, runs.pin_names(history)))
    do = f"Pinned are: {pins}. {refusal.do}" if pins else refusal.do
    raise PerfdoctorError(f"{refusal.what}, and nothing is pinned as {name(text)!r}", do=do)


def _refuse_same(named: list[str], desk: Desk) -> None:
    """Raise PerfdoctorError for a recording that is given twice."""
    real = [text if desk.root.address(text) else str(desk.root.recording(text)) for text in named]
    for position, each in enumerate(real):
        if each in real[:position]:
            raise PerfdoctorError(
                f"{name(named[position])} is given twice", do="Hold a run against other runs of the same program."
            )


def _row(text: str, desk: Desk) -> Row:
    """The facts by which the run is known to be of the series; of a recording also which one it is."""
    diagnosis = desk.diagnosed(Analyze(path=text))
    row = comparable.of_document(msgspec.json.decode(json_report.render(diagnosis)))
    if desk.root.address(text):
        return row
    path = desk.root.recording(text)
    if json_document.file_of(path) is not None:
        return row
    folder = RunFolder.open(path) if path.is_dir() else None
    return {**row, "recording": fingerprint(folder.manifest if folder else Manifest(), diagnosis)}
