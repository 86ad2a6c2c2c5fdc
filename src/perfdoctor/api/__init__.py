"""What may other programs import? All of it stands here, and is there as `perfdoctor.NAME` as well.

Public is what `__all__` names: functions with their arguments, and of classes the members that the API page lists. It
changes as semantic versioning says: nothing is removed or renamed, and no argument gets another meaning, before the
next major version (before 1.0: the next minor one). Everything else in the package may change with any version.

Times are integer nanoseconds, sizes bytes, shares from 0 to 1. Savings are a step's (of what a program repeats, else of
all that was recorded: `Diagnosis.unit`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np  # noqa: F401 before perfdoctor.model, which would load it with a single thread for its BLAS

from perfdoctor.api.arguments import (
    AnalysisChoices,
    AnyPath,
    AnyQuestions,
    AnySteps,
    AnyThresholds,
    Progress,
    at_hand,
    changes_only,
    in_words_of_python,
    known_rules,
    listed,
    local,
    name_of,
    questions,
    selection,
    several,
    share,
    user_values,
)
from perfdoctor.api.arguments import rules as chosen_rules
from perfdoctor.api.comparison import CheckResult, Comparison
from perfdoctor.api.diagnosis import Diagnosis, Prediction
from perfdoctor.api.earlier_runs import runs, trend
from perfdoctor.api.series import ScalingSeries
from perfdoctor.comparison.records import Contribution, FindingChange
from perfdoctor.comparison.scaling.records import Rung
from perfdoctor.errors import PerfdoctorError, UsageError
from perfdoctor.model.columns import Text
from perfdoctor.model.timeline import Device, Frame, Source, Timeline
from perfdoctor.recording.inside.marks import step
from perfdoctor.recording.inside.recording import Recording, record
from perfdoctor.recording.inside.watch import Watch, watch
from perfdoctor.records.diagnosis import GpuInfo, SourceInfo
from perfdoctor.records.findings import Advice, CodeLine, Fix, Measure, Outcome, Rows, Span
from perfdoctor.records.predictions import CriticalPath, PathPiece, PredictedStep, Scaling
from perfdoctor.records.query_result import QueryResult
from perfdoctor.records.savings import Bound, Derivation, DerivedInput, Range, Saving
from perfdoctor.records.time_split import KernelRow, StepStats, TimeSplit
from perfdoctor.records.work_done import Ceiling, Efficiency, ModuleCost, Roofline, RooflineRow
from perfdoctor.system.progress import silent

if TYPE_CHECKING:
    from perfdoctor.comparison.records import Snapshot
    from perfdoctor.comparison.scaling.records import Recorded
    from perfdoctor.records.diagnosis import Diagnosis as Record
    from perfdoctor.system.remote import RemoteFile

__all__ = [
    "Advice", "Bound", "Ceiling", "CheckResult", "CodeLine", "Comparison", "Contribution", "CriticalPath",
    "Derivation", "DerivedInput", "Device", "Diagnosis", "Efficiency", "FindingChange", "Fix", "Frame", "GpuInfo",
    "KernelRow", "Measure", "ModuleCost", "Outcome", "PathPiece", "PerfdoctorError", "PredictedStep", "Prediction",
    "QueryResult", "Range", "Recording", "Roofline", "RooflineRow", "Rows", "Rung", "Saving", "Scaling",
    "ScalingSeries", "Source", "SourceInfo", "Span", "StepStats", "Text", "TimeSplit", "Timeline", "Watch", "analyze",
    "check", "compare", "query", "read", "record", "run", "runs", "scaling", "step", "trend", "watch",
]  # fmt: skip

#: A run to compare: what `analyze` returned, or where it is.
AnyRun: TypeAlias = "Diagnosis | AnyPath"


def analyze(
    paths: AnyPath | Sequence[AnyPath],
    *,
    rules: str | Sequence[str] | None = None,
    ignore: str | Sequence[str] | None = None,
    what_if: AnyQuestions | None = None,
    range: str | None = None,  # noqa: A002 the command's option has this name
    steps: AnySteps | None = None,
    process: int | None = None,
    gpu: str | None = None,
    peaks: Mapping[str, float] | None = None,
    tokens_per_step: float | None = None,
    parameters: float | None = None,
    cluster: str | None = None,
    own_rules: AnyPath | Sequence[AnyPath] | None = None,
    config: AnyPath | None = None,
    thresholds: AnyThresholds | None = None,
    progress: Progress | None = None,
) -> Diagnosis:
    """Diagnose what was recorded: what `perfdoctor analyze` does. Nothing is printed, and no file is written.

    >>> diagnosis = perfdoctor.analyze("run/")
    >>> diagnosis.findings[0].rule
    'input-wait'
    >>> perfdoctor.analyze("run/", rules=["input-*", "host-syncs"]).outcomes[0].rule
    'host-syncs'

    Args:
        paths: A run folder, a folder of traces (one a rank), or files; also at `s3://`, `gs://` or `https://`. Or a
            `diagnosis.json` alone, without the other arguments: what asks for the recording is an error then.
        rules: Ids of the rules that are applied, or patterns of them (`"*-copies"`); all rules, if not given.
        ignore: Ids or patterns of rules that are not applied.
        what_if: What `Diagnosis.prediction` is about, as in `Diagnosis.what_if`.
        range: Only the executions of the user range with this name are analysed.
        steps: Only these steady steps are analysed, counted from 1: `(3, 5)` is three steps.
        process: Which training of a command that ran several is analysed, counted from 1.
        gpu: The GPU's name, where the recording does not say it: `"H100 SXM"`.
        peaks: The GPU's peaks, where they are not known, in FLOP/s and bytes/s: `{"bf16": 989e12, "memory": 3.35e12}`.
        tokens_per_step: How many tokens or samples one GPU trains on in a step.
        parameters: How many parameters the model has; with `tokens_per_step` the model FLOP of a step follow, and MFU.
        cluster: The address of a Dask scheduler, whose workers read the files of many ranks.
        own_rules: Folders whose rules are applied as well. These rules are code, which is run.
        config: A `pyproject.toml` whose `[tool.perfdoctor]` names rules and thresholds. If not given, thresholds are
            taken from the one in the working directory, as the command does, and no rules.
        thresholds: Thresholds by rule and name, which replace those of any file:
            `{"input-wait": {"min_share_of_step": 0.1}}`. `perfdoctor explain RULE` lists them.
        progress: A function that is called with a line of text when another part of the work begins.

    Returns:
        The diagnosis: findings with their predicted savings, the time of a step by parts, and what became of each rule.

    Raises:
        PerfdoctorError: Something cannot be read, or an argument is wrong.
    """
    of_recording = {
        "rules": rules, "ignore": ignore, "what_if": what_if, "range": range, "steps": steps, "process": process,
        "gpu": gpu, "peaks": peaks, "tokens_per_step": tokens_per_step, "parameters": parameters, "cluster": cluster,
        "own_rules": own_rules, "thresholds": thresholds,
    }  # fmt: skip
    progress = changes_only(progress)
    with in_words_of_python():
        given, rank_readers = listed(paths), _cluster(cluster)
        known = known_rules(own_rules, config, thresholds)
        asked = AnalysisChoices(
            chosen_rules(known, rules, ignore), known, questions(what_if, known), selection(range, steps),
            user_values(gpu, peaks, tokens_per_step, parameters), process, rank_readers,
        )  # fmt: skip
        with at_hand(given, progress, spread=cluster is not None) as files:
            if (kept := _stored(files, of_recording)) is not None:
                return Diagnosis(kept, name_of(given), local(files))
            return Diagnosis(asked.examined(files, progress), name_of(given), local(files), process)


def compare(
    before: AnyRun | Sequence[AnyRun],
    after: AnyRun | Sequence[AnyRun],
    *,
    range: str | None = None,  # noqa: A002 the command's option has this name
    steps: AnySteps | None = None,
    gpu: str | None = None,
    peaks: Mapping[str, float] | None = None,
    own_rules: AnyPath | Sequence[AnyPath] | None = None,
    config: AnyPath | None = None,
    thresholds: AnyThresholds | None = None,
    anyway: bool = False,
    progress: Progress | None = None,
) -> Comparison:
    """What changed between two versions of a training, and is it more than noise? As `perfdoctor compare`.

    >>> perfdoctor.compare("run/", "run/").verdict
    'no change'

    A run is what `analyze` returned, what it takes, or a `diagnosis.json`.

    Args:
        before: The run of the old version, or a sequence of several, from which the noise is then known.
        after: The run of the new version, or a sequence of several.
        range: Only the executions of the user range with this name are compared.
        steps: Only these steady steps are compared, counted from 1, as in `analyze`.
        gpu: The GPU's name, where a recording does not say it.
        peaks: The GPU's peaks, where they are not known, in FLOP/s and bytes/s, as in `analyze`.
        own_rules: Folders whose rules are applied as well. These rules are code, which is run.
        config: A `pyproject.toml` whose `[tool.perfdoctor]` names rules and thresholds, as in `analyze`.
        thresholds: Thresholds by rule and name, which replace those of any file, as in `analyze`.
        anyway: Judge the step, or an item of the job's work, also where the two ran on other GPUs, on another number of
            them, or are two programs. If not given, the verdict is `not comparable` there.
        progress: A function that is called with a line of text when another part of the work begins.

    Returns:
        The comparison: the verdict, the causes of the difference in ns, and which findings are fixed, new or remaining.

    Raises:
        PerfdoctorError: Something cannot be read, an argument is wrong, or the two sides cannot be compared.
    """
    from perfdoctor.comparison.compare import compare as compared  # noqa: PLC0415

    progress = changes_only(progress)
    with in_words_of_python():
        known = known_rules(own_rules, config, thresholds)
        part, given = selection(range, steps), user_values(gpu, peaks)
        asked = AnalysisChoices(list(known.values()), known, part=part, user_values=given)
        first, second = ([_snapshot(run, asked, progress) for run in _runs(side)] for side in (before, after))
        return Comparison(compared(first, second, anyway=anyway))


def read(
    paths: AnyPath | Sequence[AnyPath], *, process: int | None = None, progress: Progress | None = None
) -> Timeline:
    """What was recorded, as one Timeline: a Frame of columns for each signal, of all ranks and on one clock.

    >>> timeline = perfdoctor.read("run/")
    >>> kernels = timeline["kernels"]
    >>> int(kernels.duration_ns.sum()) > 0, len(kernels) == len(kernels.name)
    (True, True)

    All ranks are read in full: a gigabyte of JSON takes about two of memory.

    Args:
        paths: A run folder, a folder of traces (one a rank), or files, as in `analyze`.
        process: Which training of a command that ran several is read, counted from 1.
        progress: A function that is called with a line of text when another part of the work begins.

    Returns:
        The timeline. Its columns cannot be written to: copy one first.

    Raises:
        PerfdoctorError: Something cannot be read, or an argument is wrong.
    """
    from perfdoctor.readers.open import read as read_all  # noqa: PLC0415

    progress = changes_only(progress)
    with in_words_of_python(), at_hand(listed(paths), progress) as files:
        timeline = read_all(local(files), progress, process)
    timeline.protect()
    return timeline


def query(
    paths: AnyPath | Sequence[AnyPath],
    sql: str,
    *,
    limit: int | None = None,
    seconds: float = 60.0,
    process: int | None = None,
    progress: Progress | None = None,
) -> QueryResult:
    """Ask a recording, or a database that was exported, in SQL: what `perfdoctor query` does.

    >>> perfdoctor.query("run/", "SELECT count(*) > 0 AS some FROM kernels").rows
    [(1,)]

    Args:
        paths: What `analyze` takes, or the file of `perfdoctor export --sqlite`.
        sql: One question: SELECT … on the tables of docs/tables.md.
        limit: At most so many rows; all, if not given.
        seconds: How long the question may take.
        process: Which training of a command that ran several is read, counted from 1.
        progress: A function that is called with a line of text when another part of the work begins.

    Returns:
        Columns and rows.

    Raises:
        PerfdoctorError: Something cannot be read, or the question is not understood or takes too long.
    """
    from perfdoctor.export.tables.query import ALL, query_paths  # noqa: PLC0415

    said = changes_only(progress) or silent
    with in_words_of_python(), at_hand(listed(paths), progress) as files:
        return query_paths(files, sql, said, limit=limit or ALL, seconds=seconds, process=process)


def scaling(
    recordings: Sequence[AnyPath] | Mapping[int, AnyPath],
    *,
    kind: str | None = None,
    network: float | None = None,
    gpu: str | None = None,
    peaks: Mapping[str, float] | None = None,
    progress: Progress | None = None,
) -> ScalingSeries:
    """What one training gains from more GPUs: what `perfdoctor compare --scaling` does.

    Args:
        recordings: Recordings or `diagnosis.json` files of one training, in any order; by their number of ranks where
            a recording does not say it: `{1: "1gpu/", 4: "4gpu/"}`.
        kind: `"weak"` if each rank has the same work, `"strong"` if the ranks share it; found out, if not given.
        network: What a network gives each GPU beyond the recorded ones, in bytes/s.
        gpu: The GPU's name, where a recording does not say it.
        peaks: The GPU's peaks, where they are not known, in FLOP/s and bytes/s, as in `analyze`.
        progress: A function that is called with a line of text when another part of the work begins.

    Returns:
        Each number of ranks with its step, speed-up and efficiency, and what the rest went into.

    Raises:
        PerfdoctorError: Something cannot be read, or the recordings are no series.
    """
    from perfdoctor.comparison.scaling import recorded  # noqa: PLC0415
    from perfdoctor.comparison.scaling.series import scaling as of_series  # noqa: PLC0415

    progress = changes_only(progress)
    with in_words_of_python():
        given = (
            [(int(ranks), run) for ranks, run in recordings.items()]
            if isinstance(recordings, Mapping)
            else [(0, run) for run in several(recordings)]
        )
        is_wrong = isinstance(recordings, Mapping) and any(ranks < 1 for ranks, _ in given)
        if len(given) < 2 or is_wrong or kind not in (None, "weak", "strong"):
            do = 'Example: scaling({1: "1gpu/", 4: "4gpu/"}, kind="weak")'
            raise UsageError("scaling takes two recordings or more, and weak or strong as kind", do=do)
        known = known_rules()
        asked = AnalysisChoices(list(known.values()), known, user_values=user_values(gpu, peaks))
        found: list[Recorded] = []
        for ranks, run in given:
            name = name_of(listed(run))
            with at_hand(listed(run), progress) as files:
                examined = partial(asked.examined, files, progress)
                one = recorded.of_given(name, local(files), examined, known, _document(name, files))
            found = recorded.kept_for_replay([*found, recorded.stated(one, ranks) if ranks else one])
        return ScalingSeries(of_series(found, kind or "", network or 0.0))  # type: ignore[arg-type]  # checked above


def check(
    runs: AnyPath | Sequence[AnyPath],
    *,
    baseline: str | Sequence[str] = "main",
    fail_above: float | str | None = None,
    program: str | None = None,
    db: AnyPath | None = None,
    gpu: str | None = None,
    peaks: Mapping[str, float] | None = None,
    process: int | None = None,
    own_rules: AnyPath | Sequence[AnyPath] | None = None,
    config: AnyPath | None = None,
    thresholds: AnyThresholds | None = None,
    progress: Progress | None = None,
) -> CheckResult:
    """Is a training slower than its baseline? What `perfdoctor check` does.

    Args:
        runs: Run folders, recordings or `diagnosis.json` files: each is one run.
        baseline: What is pinned by this name in the history, or recordings; may be several.
        fail_above: The change of the step that fails: a share, or `"5%"`; 0.03, if not given.
        program: All commands with this text in them are taken for one program.
        db: The file of the history; that of the project around the working directory, if not given.
        gpu: The GPU's name, where a recording does not say it.
        peaks: The GPU's peaks, where they are not known, in FLOP/s and bytes/s, as in `analyze`.
        process: Which training of a command that ran several is read, counted from 1.
        own_rules: Folders whose rules are applied as well. These rules are code, which is run.
        config: A `pyproject.toml` whose `[tool.perfdoctor]` names rules and thresholds, as in `analyze`.
        thresholds: Thresholds by rule and name, which replace those of any file, as in `analyze`.
        progress: A function that is called with a line of text when another part of the work begins.

    Returns:
        The decision, and the comparison behind it.

    Raises:
        PerfdoctorError: Something cannot be read, there is no such baseline, or the runs are of another program.
    """
    from perfdoctor.api.check_runs import Reader, checked, stored_runs  # noqa: PLC0415
    from perfdoctor.history.store import history_file  # noqa: PLC0415
    from perfdoctor.report.given_run import Given  # noqa: PLC0415

    progress = changes_only(progress)
    with in_words_of_python(), ExitStack() as stack:
        known = known_rules(own_rules, config, thresholds)
        asked = AnalysisChoices(list(known.values()), known, user_values=user_values(gpu, peaks), process=process)
        limit = share("fail_above", fail_above)
        names, after = list(dict.fromkeys(listed(baseline))), listed(runs)
        stored = stored_runs(names, Path(db) if db is not None else history_file(Path.cwd()))
        given = {
            text: Given(name_of([text]), stack.enter_context(at_hand([text], progress)))
            for text in (*after, *(name for name in names if name not in stored))
        }
        read = Reader(partial(asked.examined, progress=progress), known, process)
        side = read.recordings([given[text] for text in after])
        return CheckResult(checked(names, read.baseline(names, stored, given), side, limit, program))


def run(
    command: Sequence[str],
    *,
    output: AnyPath | None = None,
    steps: int | None = None,
    passes: str = "auto",
    timeout: float | None = None,
    save: bool = True,
    progress: Progress | None = None,
) -> Diagnosis:
    """Record a command and diagnose it: what `perfdoctor run` does. What the command prints is printed.

    >>> diagnosis = perfdoctor.run(["python", "train.py"], steps=10)  # doctest: +SKIP

    Args:
        command: The program and its arguments.
        output: The folder of the run; a new one in `perfdoctor-runs`, if not given.
        steps: How many steps are recorded.
        passes: Which tools record, as the option `--passes`.
        timeout: After so many seconds the command is ended.
        save: Is the run stored in the history of the project?
        progress: A function that is called with a line of text when another part of the work begins.

    Returns:
        The diagnosis of the run, which stays in its folder.

    Raises:
        PerfdoctorError: The command did not end with 0, or nothing was recorded.
    """
    from perfdoctor.api.earlier_runs import recorded  # noqa: PLC0415
    from perfdoctor.system.run_folder import RUNS, free_name  # noqa: PLC0415

    with in_words_of_python():
        folder = Path(output) if output is not None else free_name(Path(RUNS), Path(str(command[0])).name)
        options = ["--passes", passes, *([] if save else ["--no-save"])]
        options += [*(["--steps", str(steps)] if steps is not None else [])]
        options += [*(["--timeout", str(timeout)] if timeout is not None else [])]
        recorded(command, folder, options)
    return analyze(folder, progress=progress)


def _stored(files: Sequence[object], given: Mapping[str, object]) -> Record | None:
    """The diagnosis that the one file is; None for a recording."""
    if len(files) != 1 or not isinstance(file := files[0], Path):
        return None
    if file.suffix != ".json" and not (file / "diagnosis.json").is_file():  # nearly all
        return None
    from perfdoctor.report.stored_diagnosis import only_stored  # noqa: PLC0415

    named = {name: value is not None for name, value in given.items()}
    return only_stored(files, named, "Give the recording, or only the file.")


def _cluster(named: str | None) -> str | None:
    if named is None:
        return None
    from perfdoctor.scale.cluster import checked  # noqa: PLC0415

    return checked(named)


def _document(name: str, files: Sequence[Path | RemoteFile]) -> dict[str, Any] | None:
    """The diagnosis.json that the one file is; None where it is anything else."""
    from perfdoctor.report.json_document import document  # noqa: PLC0415

    return document(name, file) if len(files) == 1 and isinstance(file := files[0], Path) else None


def _runs(side: AnyRun | Sequence[AnyRun]) -> list[AnyRun]:
    if not (runs := several(side)):
        raise PerfdoctorError("no run is given", do="Give one of each side, or several.")
    return runs


def _snapshot(run: AnyRun, asked: AnalysisChoices, progress: Progress | None) -> Snapshot:
    """What of one run is compared: of a diagnosis, of a diagnosis.json, or of a recording that is read now."""
    from perfdoctor.comparison.snapshot import of_document, of_examination  # noqa: PLC0415

    if isinstance(run, Diagnosis):
        return run._snapshot()  # noqa: SLF001 it is not public
    given = listed(run)
    with at_hand(given, progress) as files:
        here = local(files)
        if (written := _document(name_of(given), files)) is not None:
            return of_document(name_of(given), written, asked.known)
        return of_examination(name_of(given), asked.examined(files, progress), asked.known, here)
