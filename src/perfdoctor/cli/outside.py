"""How does a diagnosis get to other tools, and what does the run cost? Loaded only where somebody asks for it."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perfdoctor.cli import report_files, say
from perfdoctor.errors import PerfdoctorError

if TYPE_CHECKING:
    from perfdoctor.cli.outside_options import Outside, Pricing, Tracker
    from perfdoctor.diagnosis.records import Examination
    from perfdoctor.export.numbers import Number
    from perfdoctor.history.facts import Facts
    from perfdoctor.system.remote import RemoteFile

#: A tracker's server may be far away, and a report is some megabytes: what takes longer does not come to an end.
_MOST_SECONDS = 120.0
#: What a tracker does by itself if its server does not answer: four minutes of new attempts.
_PATIENCE = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2", "MLFLOW_HTTP_REQUEST_TIMEOUT": "20"}


def with_cost(
    examination: Examination, paths: Sequence[Path | RemoteFile], pricing: Pricing, *, quiet: bool
) -> Examination:
    """The examination with its costs; unchanged, with a line on standard error, where these are not known."""
    from perfdoctor.diagnosis import cost
    from perfdoctor.report.words.foreign_text import clean_name

    price = pricing.price or cost.listed(examination.run)
    if price is not None and examination.diagnosis.gpus:
        return cost.with_cost(examination, price, _run_seconds(paths))
    if not quiet:
        gpus = [clean_name(gpu.name, 48) or "an unnamed GPU" for gpu in examination.diagnosis.gpus]
        names = ", ".join(dict.fromkeys(gpus))
        why = f"no list price is known of {names}; give --gpu-hour-price" if gpus else "no GPU was recorded"
        say.note(f"no cost: {why}")
    return examination


def _run_seconds(paths: Sequence[Path | RemoteFile]) -> float | None:
    """How long the recorded program ran under the first tool that says so; None without a run folder."""
    from perfdoctor.system.run_folder import RunFolder

    first = paths[0]
    folder = RunFolder.open(first) if len(paths) == 1 and isinstance(first, Path) and first.is_dir() else None
    return next((each.seconds for each in folder.manifest.passes if each.seconds), None) if folder else None


def publish(
    examination: Examination, paths: Sequence[Path | RemoteFile], outside: Outside, page: Path | None, *,
    process: int | None, quiet: bool,
) -> None:  # fmt: skip
    """Write to all of `outside`. Raises PerfdoctorError at the end for the first that failed; others print a line."""
    from perfdoctor.export import numbers
    from perfdoctor.history import facts
    from perfdoctor.report.words import wording

    found = facts.facts(
        examination, paths, source="outside", process=process, verdict=wording.verdict(examination.diagnosis)
    )
    known = numbers.numbers(found, examination.diagnosis.cost)
    targets = (*([outside.metrics] if outside.metrics else ()), *outside.trackers)
    tries = (_failure(target, examination, found, known, page, quiet=quiet) for target in targets)
    failures = [failure for failure in tries if failure is not None]
    for failure in failures[1:]:
        say.failure(failure.what, failure.do)
    if failures:
        raise failures[0]


def _failure(
    target: Path | Tracker, examination: Examination, facts: Facts, known: Sequence[Number], page: Path | None, *,
    quiet: bool,
) -> PerfdoctorError | None:  # fmt: skip
    """Why the target got nothing, or None. Whatever is raised becomes the error: the training's exit code stays."""
    from perfdoctor.export.numbers import open_metrics
    from perfdoctor.report.words.foreign_text import clean

    try:
        if isinstance(target, Path):
            name = target.name.removesuffix(".prom")
            report_files.written("--metrics", target, lambda: open_metrics(known, name))
        else:
            _log(target, examination, facts, known, page, quiet=quiet)
    except PerfdoctorError as error:
        return error
    except Exception as error:  # noqa: BLE001 see above
        name = f"--metrics {target}" if isinstance(target, Path) else f"--log {target.name}"
        return PerfdoctorError(
            clean(f"{name}: {type(error).__name__}: {error}"), do="The reports are written as always."
        )
    return None


def _log(
    tracker: Tracker, examination: Examination, facts: Facts, known: Sequence[Number], page: Path | None, *, quiet: bool
) -> None:
    """Log in a process of its own: trackers print, ask for passwords, wait for servers, and start threads."""
    with tempfile.TemporaryDirectory(prefix="perfdoctor-") as folder:
        if page is None:
            from perfdoctor.report import html
            from perfdoctor.views.build import views

            page = Path(folder) / "report.html"
            page.write_text(html.render(examination.diagnosis, views(examination.run, examination.diagnosis)), "utf-8")
        request, answer = Path(folder) / "request.json", Path(folder) / "answer.json"
        request.write_text(json.dumps(_request(tracker, examination, facts, known, page)), "utf-8")
        where = _answered(tracker, request, answer)
    if not quiet:
        say.note(f"logged to {tracker.name}: {where}")


def _request(
    tracker: Tracker, examination: Examination, facts: Facts, known: Sequence[Number], page: Path
) -> dict[str, Any]:
    from perfdoctor.export.numbers import OF_THE_RUN
    from perfdoctor.report import markdown

    tags = {name: facts.run.get(name) for name in ("perfdoctor", "verdict", "program", "device", "git_commit", "torch")}
    recorded = next(number.value for number in known if number.metric.name == "recorded_timestamp_seconds")
    return {
        "tracker": tracker.name,
        "name": f"perfdoctor {facts.run.get('program') or facts.run['files']}"[:100],
        "folder": str(tracker.folder or Path("runs") / "perfdoctor" / facts.run["recorded_at"].replace(":", "-")),
        "recorded_unix_s": recorded,
        "numbers": {f"perfdoctor/{each.key}": each.value for each in known if each.metric.name not in OF_THE_RUN},
        "tags": {f"perfdoctor.{name}": str(value)[:500] for name, value in tags.items() if value},
        "text": markdown.render(examination.diagnosis),
        "page": str(page.resolve()),
    }


def _answered(tracker: Tracker, request: Path, answer: Path) -> str:
    """Run the tracker's process; the address that it answers. Raises PerfdoctorError if it fails or is too slow."""
    from perfdoctor.report.words.foreign_text import clean
    from perfdoctor.system import tool_process

    later = f"Log it later: perfdoctor analyze … --log {tracker.name}."
    code, output, _ = tool_process.run(
        [sys.executable, "-m", "perfdoctor.export.trackers", str(request), str(answer)],
        environment={**_PATIENCE, **os.environ},
        timeout_s=_MOST_SECONDS,
        not_started=later,
        too_slow=PerfdoctorError(f"--log {tracker.name}: no answer for {_MOST_SECONDS:.0f} s", do=later),
        merged=True,
    )
    said = json.loads(answer.read_text("utf-8")) if answer.exists() else {}
    if code or "where" not in said:
        last = output.decode(errors="replace").strip().rpartition("\n")[2]
        raise PerfdoctorError(
            clean(f"--log {tracker.name}: {said.get('error') or last or f'exit code {code}'}"), do=later
        )
    return clean(str(said["where"]))
