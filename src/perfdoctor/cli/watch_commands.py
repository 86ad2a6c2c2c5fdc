"""`perfdoctor status` and `perfdoctor record-now`: what is known of a training that runs, and a window of it now."""

from __future__ import annotations

import contextlib
import json
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perfdoctor.cli import run_options, say, shared_options
from perfdoctor.errors import PerfdoctorError, UsageError

if TYPE_CHECKING:
    from perfdoctor.watching.document import WatchDocument

_POLL_S = 0.3
#: watch.json is written every five seconds: an older one of a run that has not ended is nobody's any more.
_STALE_NS = 60_000_000_000
#: What several machines leave in one folder.
_OF_NODES = "watch-rank*.json"
_TRAINING = "Name the run folder of perfdoctor watch or run --keep-going, or the number of one of its processes."


def status(
    *,
    given: Annotated[
        str,
        typer.Argument(
            metavar="DIR|PID",
            help="A run under watch, or where several leave --summaries: a folder, or s3:// and the like.",
        ),
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print watch.json itself.")] = False,
) -> None:
    """Print what is known of a training that runs."""
    from perfdoctor.report.words import watched
    from perfdoctor.watching import document

    is_of_nodes, every = _known(given)
    slowest = document.behind(every) if is_of_nodes else None
    if slowest is not None and not as_json:
        say.line(watched.anomaly(slowest))
    for found in every:
        if as_json:
            say.line(document.encoded(found).decode())
            continue
        if is_of_nodes:
            say.line(f"node of rank {min((each.rank for each in found.ranks), default=0)}:")
        age_ns = max(time.time_ns() - found.unix_ns, 0)
        for line in watched.status(found, age_ns):
            say.line(line)
        if age_ns > _STALE_NS and found.state != "ended":
            say.note("nobody watches it any more: these numbers are old")


def _known(given: str) -> tuple[bool, list[WatchDocument]]:
    """What is known of a run; or, True, what nodes have left in a folder or at an address, but for what is damaged of
    that. Raises PerfdoctorError where nothing is.
    """
    from perfdoctor.system import remote
    from perfdoctor.watching import document

    given = remote.local(given)
    if remote.is_url(given):
        contents = remote.read_all(f"{given.rstrip('/')}/{_OF_NODES}")
        reads = [partial(document.decoded, content, name) for name, content in contents.items()]
        if not reads:
            what = f"{remote.shown(given)} holds no {_OF_NODES}"
            raise PerfdoctorError(what, do="perfdoctor watch --summaries leaves them there.")
    else:
        folder = run_of(given)
        of_nodes = [] if (folder / document.FILE).exists() else sorted(folder.glob(_OF_NODES))
        if not of_nodes:
            return False, [document.read(folder)]
        reads = [partial(document.read, folder, file.name) for file in of_nodes]
    found, errors = [], []
    for read in reads:
        try:
            found.append(read())
        except PerfdoctorError as error:  # noqa: PERF203 of one node, which hides no other
            errors.append(error)
    if not found:
        raise errors[0]
    for each in errors:
        say.note(f"{each.what}: it is left out")
    return True, found


def record_now(
    *,
    given: Annotated[str, typer.Argument(metavar="DIR|PID", help="The run folder, or a process of the training.")],
    steps: run_options.Steps = None,
    sampling: run_options.Sampling = True,
    source: run_options.Source = True,
    modules: run_options.Modules = True,
    quiet: shared_options.Quiet = False,
) -> None:
    """Record a window of a training under watch, and diagnose it."""
    from perfdoctor.cli.watch_process import window_of
    from perfdoctor.recording.tools import py_spy
    from perfdoctor.report.words import watched
    from perfdoctor.system.run_folder import RunFolder
    from perfdoctor.watching import windows
    from perfdoctor.watching.rows import RankSteps, ranks_of
    from perfdoctor.watching.windows import Window

    folder = run_of(given)
    run = RunFolder.open(folder)
    is_told = False
    while True:
        files = [RankSteps(file) for file in windows.rows_folder(folder).glob("*.jsonl")]
        for each in files:
            each.read()
        ranks = {rank: each for rank, each in ranks_of(files).items() if not each.ended_ns and _lives(each)}
        if run is None or not ranks:
            raise PerfdoctorError(
                f"no training under watch makes steps in {folder}", do=f"{_TRAINING} Its first steps come first."
            )
        if not windows.is_recording(folder, ranks):
            break
        if not is_told and not quiet:
            say.note("another window is being recorded: this one comes behind it")
        is_told = True
        time.sleep(_POLL_S)
    number = max([0, *windows.numbers(folder)]) + 1
    settings = window_of(steps, sampling=sampling, source=source, modules=modules)
    window = Window(run, number, "asked", ranks, settings, py_spy.find())
    said: Any = None
    try:
        while not window.is_over:
            if window.state != said and not quiet:
                say.note(watched.window(window.state))
            said = window.state
            time.sleep(_POLL_S)
            window.poll(has_ended=not any(_lives(each) for each in ranks.values()))
    finally:
        window.end()
    say.line(watched.window(window.state))
    if window.state.state == "failed":
        raise typer.Exit(1)
    say.line(f"report: {window.folder.path / 'report.html'}")


def _lives(rank: Any) -> bool:
    """Is it a process that runs? One of another machine may: its files are here."""
    from perfdoctor.recording.launch import processes

    pid = rank.process.pid
    return bool(processes.is_alive(pid)) or time.time_ns() - rank.stretches[-1].end < _STALE_NS


def run_of(given: str) -> Path:
    """The run folder that was named, or that of a process. Raises PerfdoctorError where the process is not watched."""
    if not given:  # "$RUN", say, where RUN is not set: as a path it would be the current folder
        raise UsageError("The path is empty.", do=_TRAINING)
    if not given.isdecimal() or Path(given).is_dir():
        folder = Path(given)
        if not folder.is_dir():
            raise UsageError(f"{given}: there is no such folder", do=_TRAINING)
        return folder
    try:
        variables = Path(f"/proc/{given}/environ").read_bytes().split(b"\0")
    except OSError as error:
        raise PerfdoctorError(f"process {given}: {error.strerror or error}", do=_TRAINING) from error
    settings = next((each.partition(b"=")[2] for each in variables if each.startswith(b"PERFDOCTOR_AGENT=")), b"{}")
    try:
        rows = Path(json.loads(settings)["watch"]["rows"])
    except (ValueError, KeyError, TypeError):  # or perfdoctor.watch() was called in it
        rows = _rows_written_by(given)
    return rows.parent


def _rows_written_by(pid: str) -> Path:
    """The folder of the steps' files that a process has open. Raises PerfdoctorError where there is none."""
    with contextlib.suppress(OSError):  # it ends meanwhile
        for each in Path(f"/proc/{pid}/fd").iterdir():
            file = each.readlink()
            if file.parent.name == "steps" and file.name.endswith(f"-{pid}.jsonl"):
                return file.parent
    raise PerfdoctorError(f"process {pid} is not under watch", do=f"Record it from outside: perfdoctor attach {pid}")
