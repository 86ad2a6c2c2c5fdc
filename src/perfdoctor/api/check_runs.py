"""Which runs are held against a baseline, how is each of them read, and how are they judged? For the command, too."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field
from msgspec.structs import replace

from perfdoctor.comparison import check as checking
from perfdoctor.comparison.check import BaselineRun
from perfdoctor.comparison.from_facts import of_facts
from perfdoctor.comparison.snapshot import of_document, of_examination
from perfdoctor.errors import PerfdoctorError
from perfdoctor.history import comparable, runs, series, store
from perfdoctor.history.facts import facts as facts_of
from perfdoctor.history.facts import iso
from perfdoctor.report.given_run import Given
from perfdoctor.report.words.foreign_text import clean_name
from perfdoctor.system import checkout
from perfdoctor.system.run_folder import RunFolder

if TYPE_CHECKING:
    from sqlite_utils.db import Database

    from perfdoctor.comparison.check import Check
    from perfdoctor.comparison.records import Snapshot
    from perfdoctor.diagnosis.records import Examination
    from perfdoctor.history.facts import Row
    from perfdoctor.history.runs import StoredRun
    from perfdoctor.system.remote import RemoteFile
    from perfdoctor.vocabulary.rulebook import Rule

#: Where GitHub Actions has the checkout.
WORKSPACE = "GITHUB_WORKSPACE"


class Side(Struct):
    """Runs of one side: what is compared of each, and by what it is known to be of the same series.

    `timeline`: that of the first run that was read, if a page is drawn.
    """

    snapshots: list[Snapshot] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    runs: list[BaselineRun] = field(default_factory=list)
    timeline: Any = None


def stored_runs(names: Sequence[str], file: Path | None) -> dict[str, tuple[StoredRun, ...]]:
    """The runs pinned by each of `names` in the history `file`, None for none.

    Raises PerfdoctorError for a name that is neither a pin nor a path.
    """
    found: dict[str, tuple[StoredRun, ...]] = {}
    known: list[str] = []
    if file is not None and file.exists():
        with store.read(file) as history:
            for name in names:
                if pinned := latest_pinned(history, name):
                    found[name] = pinned
            known = runs.pin_names(history)
    for name in names:
        if name not in found and "://" not in name and not Path(name).exists():
            raise _no_baseline(name, file, known)
    return found


def latest_pinned(history: Database, name: str) -> tuple[StoredRun, ...]:
    """The runs pinned by this name: of each recording its last analysis."""
    pinned = runs.pinned(history, name)
    last = [row["id"] for row in series.latest([run.facts for run in pinned])]
    return tuple(run for run in pinned if run.facts["id"] in last)


def _no_baseline(name: str, file: Path | None, known: Sequence[str]) -> PerfdoctorError:
    shown = clean_name(name)
    if file is None:
        return PerfdoctorError(
            f"there is no baseline {shown!r}: PERFDOCTOR_HISTORY is off", do="Unset it, or name a file with --db."
        )
    if not file.exists():
        return PerfdoctorError(
            f"there is no baseline {shown!r}: there is no history yet: {file}",
            do=f"Record the program with perfdoctor run, then: perfdoctor history pin {shown}",
        )
    pinned = f"Pinned are: {', '.join(known)}. " if known else ""
    return PerfdoctorError(
        f"nothing is pinned as {shown!r} in {file}", do=f"{pinned}To pin the last run: perfdoctor history pin {shown}"
    )


class Reader:
    """Reads recordings, or what the history says of them.

    `diagnosed`: reads one and diagnoses it, by `rules`. `process`: which of a command's trainings.
    `drawn`: makes the timeline of a run, if a page is drawn.
    """

    def __init__(
        self,
        diagnosed: Callable[[Sequence[Path | RemoteFile]], Examination],
        rules: Mapping[str, Rule],
        process: int | None = None,
        drawn: Callable[[Examination], Any] | None = None,
    ) -> None:
        self._diagnosed, self._rules, self._process, self._drawn = diagnosed, rules, process, drawn

    def recordings(self, given: Sequence[Given], side: Side | None = None) -> Side:
        """The recordings, each as one run, behind those of `side`."""
        side = side or Side()
        for each in given:
            document = each.document()
            if document is None:
                self._add(side, each, *self._examined(each))
            else:
                side.snapshots.append(of_document(each.name, document, self._rules))
                side.rows.append(comparable.of_document(document))
                side.runs.append(baseline_run(each.name, {}, by_recording=True))
        return side

    def baseline(
        self, names: Sequence[str], stored: Mapping[str, Sequence[StoredRun]], given: Mapping[str, Given]
    ) -> Side:
        """The pinned runs of each name: from their recordings where these are still there; else what was stored."""
        side = Side()
        for name in names:
            for run in stored.get(name, ()):
                self._add_stored(side, run)
            if name in given:
                self.recordings([given[name]], side)
        return side

    def _add_stored(self, side: Side, run: StoredRun) -> None:
        path = _recording_of(run)
        read = self._read_again(run, Given(str(path), [path])) if path else None
        if read is not None:
            self._add(side, *read, run)
            return
        facts = run.facts
        side.snapshots.append(snapshot_of(run, self._rules))
        side.rows.append(facts)
        side.runs.append(baseline_run(facts["id"], facts, by_recording=False))

    def _read_again(self, run: StoredRun, given: Given) -> tuple[Given, Examination, Row] | None:
        """The run diagnosed anew; None if another recording is there by now, or it cannot be read."""
        try:
            examination, row = self._examined(given)
        except PerfdoctorError:
            return None
        is_same = all(row[name] == run.facts[name] for name in ("recording", "part"))
        return (given, examination, row) if is_same else None

    def _add(self, side: Side, given: Given, examination: Examination, row: Row, run: StoredRun | None = None) -> None:
        side.snapshots.append(of_examination(given.name, examination, self._rules, given.local))
        side.rows.append(row)
        side.runs.append(
            baseline_run(run.facts["id"] if run else given.name, run.facts if run else row, by_recording=True)
        )
        if side.timeline is None and self._drawn is not None:
            side.timeline = self._drawn(examination)

    def _examined(self, given: Given) -> tuple[Examination, Row]:
        examination = self._diagnosed(given.paths)
        return examination, facts_of(examination, given.paths, source="check", process=self._process).run


def snapshot_of(run: StoredRun, rules: Mapping[str, Rule]) -> Snapshot:
    """What is compared of a run of which only the history knows."""
    return of_facts(run.facts["id"], run.facts, run.parts, run.findings, run.step_times_ns, rules, run.timed_steps_ns)


def baseline_run(name: str, facts: Row, *, by_recording: bool) -> BaselineRun:
    """What reports say of a run of the baseline."""
    known = {each: str(facts.get(each) or "") for each in ("recorded_at", "git_commit")}
    return BaselineRun(name, by_recording, known["recorded_at"], known["git_commit"], bool(facts.get("git_dirty")))


def _recording_of(run: StoredRun) -> Path | None:
    """The recording of the run; None if there is none of that moment: the next run of a CI may have its folder."""
    folder = run.facts["folder"]
    if not folder:
        return None
    root = store.project_root(Path.cwd())
    for base in (Path(), *([root] if root else [])):
        path: Path = base / folder
        if not path.exists():
            continue
        kept = RunFolder.open(path) if path.is_dir() else None
        if kept is None or iso(kept.manifest.started_unix_ns) == run.facts["recorded_at"]:
            return path
    return None


# --- the judgement ----------------------------------------------------------------------------------------------------


def checked(names: Sequence[str], before: Side, after: Side, limit: float | None, program: str | None) -> Check:
    """AFTER held against the baseline by its `names`. Raises PerfdoctorError for runs of the baseline and of others."""
    name = " and ".join(names)
    rows = [(run.name, row) for run, row in zip(after.runs, after.rows, strict=True)]
    refuse_same(name, before.rows, rows)
    comparable.refuse_others(name, before.rows, rows, program)
    found = checking.check(
        name, before.runs, before.snapshots, after.snapshots, checking.LIMIT if limit is None else limit
    )
    return replace(found, sources=_sources(found, after.rows[0]))


def refuse_same(baseline: str, before: Sequence[Row], after: Sequence[tuple[str, Row]]) -> None:
    """Raise PerfdoctorError for a run that the baseline has as well, or that is given twice. `after`: with names."""
    known = {row.get("recording") for row in before} - {None}
    seen: set[str] = set()
    for name, row in after:
        if row.get("recording") in known:
            raise PerfdoctorError(
                f"{name} is a run of the baseline {baseline} itself",
                do="Record again and check that run; pin a run only after its check.",
            )
        if row.get("recording") in seen:
            raise PerfdoctorError(f"{name} is given twice", do="Give each run once.")
        seen.add(row.get("recording") or name)


def _sources(found: Check, row: Row) -> dict[str, tuple[str, int]]:
    """File and line in the checkout of each own line of a finding, by its text, and of the program, by ""."""
    lines = (each.line for each in found.comparison.findings)
    return checkout.places(lines, row.get("command") or "", checkout.workspace())
