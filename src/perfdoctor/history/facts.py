"""What is stored of one run? Facts of its diagnosis, manifest and checkout: no rows of the trace, no host name."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shlex
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timezone
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct

from perfdoctor import __version__
from perfdoctor.metrics.accounting.timed_steps import steady
from perfdoctor.metrics.machine.software import software
from perfdoctor.patterns import regex
from perfdoctor.records.findings import Advice, with_symptoms
from perfdoctor.records.time_split import parts_ns
from perfdoctor.system.checkout import Checkout, checkout, committed_unix_s
from perfdoctor.system.masking import masked_command
from perfdoctor.system.paths import without_home
from perfdoctor.system.project import project_of
from perfdoctor.system.remote import RemoteFile, is_view
from perfdoctor.system.run_folder import Manifest, RunFolder

if TYPE_CHECKING:
    from perfdoctor.diagnosis.records import Examination
    from perfdoctor.model.run import Run, Selection
    from perfdoctor.records.diagnosis import Diagnosis

Row = dict[str, Any]

#: A text of a recording that is longer is no name.
MOST_TEXT = 4000
#: Of more steps, these are the first.
MOST_STEPS = 10_000
_ID_BYTES = 6
#: The first day of 2016, the year of the first PyTorch: an earlier time is one since a machine was started.
_FIRST_UNIX_NS = 1_451_606_400_000_000_000
#: Columns of lists, as JSON of our own.
OF_JSON = ("step_times_ns", "timed_steps_ns", "predicted_fixed")
_UNPRINTABLE = regex("[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]")

#: Columns of `runs` that every row has: what is none is empty text here.
_ALWAYS = ("id", "recorded_at", "stored_at", "source")


class Facts(Struct, frozen=True):
    """One run: its row, the rows of its parts and findings; `id` is in all of them."""

    run: Row
    parts: tuple[Row, ...]
    findings: tuple[Row, ...]

    @property
    def id(self) -> str:
        return str(self.run["id"])


def new_id() -> str:
    """An id of 12 hexadecimal digits: two of a hundred thousand runs have the same one with a chance of 1 in 50,000."""
    return secrets.token_hex(_ID_BYTES)


def facts(
    examination: Examination,
    paths: Sequence[Path | RemoteFile],
    *,
    source: str,
    process: int | None = None,
    verdict: str = "",
) -> Facts:
    """All facts stored of a run. `source`: the command, `run` or `analyze`. `verdict`: the report's first sentence."""
    run, diagnosis = examination.run, examination.diagnosis
    first, here = paths[0], [path for path in paths if isinstance(path, Path) and not is_view(path)]
    folder = RunFolder.open(first) if len(paths) == 1 and isinstance(first, Path) and first.is_dir() else None
    manifest = folder.manifest if folder else Manifest()
    name = new_id()
    recorded_unix_ns, recorded_from = _recorded(manifest, run, here)
    row: Row = {
        "id": name,
        "recorded_at": iso(recorded_unix_ns),
        "recorded_from": recorded_from,
        "stored_at": iso(time.time_ns()),
        "source": source,
        "recording": fingerprint(manifest, diagnosis),
        "part": _part(run.selection, process),
        "exit_code": manifest.exit_code,
        "perfdoctor": __version__,
        "verdict": verdict,
        **_program(manifest, diagnosis),
        **_project(diagnosis, source),
        "folder": _folder(first),
        **_commit(manifest, here),
        **_machine(run, diagnosis, folder),
        **_steps(diagnosis),
        **_prediction(diagnosis),
        **_efficiency(diagnosis),
        "peak_memory_bytes": _most(use.peak_bytes for use in diagnosis.memory),
        "reserved_memory_bytes": _most(use.most_reserved_bytes for use in diagnosis.memory),
        # What `comparison/` needs to tell how alike two runs are, and how certain their difference is.
        "unrecorded_step_ns": diagnosis.real_time.unrecorded_ns if diagnosis.real_time else None,
        "contended_share": diagnosis.contended_share,
        "items_per_step": diagnosis.items_per_step,
    }
    parts = tuple({"run_id": name, "part": part, "ns": ns} for part, ns in parts_ns(diagnosis.time).items() if ns)
    findings = (_finding(name, position, each) for position, each in enumerate(with_symptoms(diagnosis.findings), 1))
    return Facts(plain(row), parts, tuple(map(plain, findings)))


# --- text and time ---------------------------------------------------------------------------------------------------


def iso(unix_ns: int) -> str:
    """The moment as `2026-11-23T05:21:34.123Z`, whose text sorts as time does."""
    moment = datetime.fromtimestamp(unix_ns // 1_000_000 / 1000, timezone.utc)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z"


def now() -> str:
    return iso(time.time_ns())


def plain_text(text: str, limit: int = MOST_TEXT) -> str:
    """What SQLite can store and every reader of it shows as one text: no NUL, no half character, bounded."""
    return _UNPRINTABLE.sub("\ufffd", text[:limit])


def plain(row: Row) -> Row:
    """The row with None in place of NaN and infinity, which SQLite does not have."""
    return {name: value if name in OF_JSON else _plain(value) for name, value in row.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        return plain_text(value)
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, float | np.floating):
        return float(value) if np.isfinite(value) else None
    return int(value) if isinstance(value, np.integer) else value


# --- what ran --------------------------------------------------------------------------------------------------------


def _recorded(manifest: Manifest, run: Run, paths: Sequence[Path]) -> tuple[int, str]:
    """When the recording began, in ns since 1970, and who says so: `run`, the `recording`'s own clock, or the newest
    `file` by the time at which it was written, where that clock is none of the day.
    """
    if manifest.started_unix_ns > 0:
        return manifest.started_unix_ns, "run"
    starts = [int(place.window.starts[0]) for place in run.places if place.window]
    begun = (run.timeline.epoch_ns or 0) + min(starts) if starts else 0  # without an epoch time 0 may have been in 1970
    if _FIRST_UNIX_NS <= begun <= time.time_ns():
        return begun, "recording"
    return _written_unix_ns(paths), "file"


def _written_unix_ns(paths: Sequence[Path]) -> int:
    return max((path.stat().st_mtime_ns for path in paths if path.exists()), default=time.time_ns())


def fingerprint(manifest: Manifest, diagnosis: Diagnosis) -> str:
    """A text that is equal for all analyses of one recording, and differs between recordings."""
    known = [
        manifest.started_unix_ns,
        sorted((source.kind, source.file) for source in diagnosis.sources),
        [(s.rank, s.device, s.window_start_ns, s.window_ns, s.kernel_count) for s in diagnosis.recording],
    ]
    return hashlib.sha256(json.dumps(known).encode()).hexdigest()[:16]


def _program(manifest: Manifest, diagnosis: Diagnosis) -> Row:
    diagnosed = next((each.command for each in diagnosis.processes if each.diagnosed), ())
    command = masked_command([without_home(plain_text(word)) for word in manifest.command or diagnosed])
    files = " ".join(dict.fromkeys(source.file for source in diagnosis.sources))
    return {"program": _program_name(command), "command": shlex.join(command) or None, "files": files}


def _project(diagnosis: Diagnosis, source: str) -> Row:
    """The project that was recorded; of what is stored later, the one in which it is stored."""
    known = diagnosis.project or (project_of(Path.cwd()) if source == "analyze" else None)
    if known is None:
        return {}
    return {"project": known.name, "project_id": known.id, "program_words": known.program or None}


def _program_name(command: Sequence[str]) -> str | None:
    """The script: `train.py` of `torchrun --nproc-per-node 8 train.py`; the first word where none is named."""
    script = next((word for word in command if word.endswith((".py", ".sh"))), "")
    module = next((after for word, after in pairwise(command) if word == "-m"), "")
    name = script or module or (command[0] if command else "")
    return Path(name).name or None


def _folder(path: Path | RemoteFile) -> str:
    """The path relative to where the command was started: a whole path may name a user."""
    if not isinstance(path, Path) or is_view(path):
        return path.name
    relative = os.path.relpath(path)
    return relative if not relative.startswith("..") else path.resolve().name


def _commit(manifest: Manifest, paths: Sequence[Path]) -> Row:
    """The commit that was recorded with the run, else the one checked out here, unless the recording is older."""
    recorded = manifest.checkout
    if recorded:
        known: Checkout | None = Checkout(
            str(recorded.get("commit", "")), bool(recorded.get("dirty")), str(recorded.get("branch", ""))
        )
        by = "run"
    else:
        known, by = checkout(Path.cwd()) if paths else None, "analyze"
        committed = committed_unix_s(Path.cwd(), known.commit) if known else None
        if committed is None or _written_unix_ns(paths) < committed * 1_000_000_000:
            known = None
    if known is None:
        return dict.fromkeys(("git_commit", "git_dirty", "git_branch", "git_from"))
    return {
        "git_commit": known.commit, "git_dirty": known.dirty, "git_branch": known.branch or None, "git_from": by,
    }  # fmt: skip


def _part(selection: Selection, process: int | None) -> str | None:
    """The analysed part, as `range forward, steps 3..5, process 2`; None where all was analysed."""
    pieces = [f"range {selection.range_name}"] if selection.range_name else []
    pieces += [f"steps {selection.steps[0]}..{selection.steps[1]}"] if selection.steps else []
    pieces += [f"process {process}"] if process is not None else []
    return ", ".join(pieces) or None


def _machine(run: Run, diagnosis: Diagnosis, folder: RunFolder | None) -> Row:
    measured = next((rates.machine for rates in run.timeline.measured), None)
    known = software(run, folder)
    names = dict.fromkeys(gpu.name for gpu in diagnosis.gpus if gpu.name)
    tools = dict.fromkeys(f"{source.kind} {source.tool_version}".strip() for source in diagnosis.sources)
    return {
        "device": ", ".join(names) or (measured.device if measured else None),
        "gpus": len(diagnosis.gpus),
        "world_size": diagnosis.world_size or None,
        "work": diagnosis.kind_of_work,
        "torch": known.torch or None,
        "cuda": known.cuda or None,
        "driver": known.driver or None,
        "tools": "; ".join(tools),
    }


# --- how long --------------------------------------------------------------------------------------------------------


def _steps(diagnosis: Diagnosis) -> Row:
    """`step_ns` is the mean step without a recorder, where that is known; all other times are as recorded."""
    steps = diagnosis.steps
    window = sum(split.window_ns for split in diagnosis.time) or None
    if not steps.used:
        return {"window_ns": window, "steps": 0}
    return {
        "step_ns": diagnosis.base_ns or None,
        "recorded_step_ns": diagnosis.recorded_ns or None,
        "median_ns": steps.median_ns,
        "p10_ns": steps.p10_ns,
        "p90_ns": steps.p90_ns,
        "steps": steps.used,
        "steps_found_by": steps.found_by,
        "steps_confidence": steps.confidence,
        "step_times_ns": json.dumps(steps.durations_ns[:MOST_STEPS], separators=(",", ":")),
        "timed_steps_ns": _timed(diagnosis),
        "window_ns": window,
    }


def _timed(diagnosis: Diagnosis) -> str | None:
    timed = diagnosis.timed
    if timed is None:
        return None
    return json.dumps(steady(timed.lengths_ns, timed.recorded).astype(np.int64).tolist(), separators=(",", ":"))


def _prediction(diagnosis: Diagnosis) -> Row:
    predicted = diagnosis.prediction
    if predicted is None or predicted.asked:
        return {}
    low, likely, high = predicted.step_ns
    return {
        "predicted_low_ns": low, "predicted_ns": likely, "predicted_high_ns": high,
        "predicted_fixed": json.dumps(predicted.fixed),
    }  # fmt: skip


def _efficiency(diagnosis: Diagnosis) -> Row:
    known = diagnosis.efficiency
    if known is None:
        return {}
    return {
        "mfu": known.mfu, "hfu": known.hfu, "flop_per_step": known.flop_per_step,
        "items": known.items or None, "items_per_second": known.items_per_second,
    }  # fmt: skip


def _most(sizes: Iterable[int]) -> int | None:
    """The size on the device that used most; None if it was not recorded."""
    return max((size for size in sizes if size > 0), default=None)


def _finding(name: str, position: int, advice: Advice) -> Row:
    saving = advice.saving_ns_per_step
    return {
        "run_id": name, "position": position, "rule": advice.rule, "title": advice.title, "category": advice.category,
        "confidence": advice.confidence, "symptom_of": advice.symptom_of, "low_ns": saving.low,
        "likely_ns": saving.likely, "high_ns": saving.high, "speedup": advice.speedup[1], "summary": advice.summary,
    }  # fmt: skip


def checked(row: Mapping[str, Any], columns: Mapping[str, type]) -> Row:
    """The row with each of these columns in its type, and None in place of any other type; other columns stay.

    SQLite stores any type in any column, and a file may come from elsewhere.
    """
    found = dict(row)
    for name, kind in columns.items():
        value = row.get(name)
        fits = isinstance(value, kind) or (kind is float and isinstance(value, int))
        if not fits:
            found[name] = "" if name in _ALWAYS else None
        else:
            found[name] = plain_text(value) if isinstance(value, str) and name not in OF_JSON else value
    return found
