"""`perfdoctor watch`: a whole training, lightly, with a full recording around what goes wrong."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from perfdoctor.cli import analyze, outside_options, recorded, run_options, say, shared_options
from perfdoctor.cli import run as running
from perfdoctor.cli.analyze import OutputFormat

if TYPE_CHECKING:
    from perfdoctor.recording.launch.program_run import Ended
    from perfdoctor.recording.plan import Plan
    from perfdoctor.system.run_folder import RunFolder

#: Beyond what the watcher itself waits for at the end (a diagnosis), it is ended.
_ENDING_S = 90.0

Windows = Annotated[
    int, typer.Option(min=0, help="Open so many windows of full recording by itself at most.", metavar="N")
]
Apart = Annotated[float, typer.Option(min=0, help="Minutes between two of them at least.", metavar="MINUTES")]
First = Annotated[
    float,
    typer.Option("--first-window", min=0, help="Open one to compare with after so long; 0: none.", metavar="SECONDS"),
]
HangAfter = Annotated[
    float,
    typer.Option(min=1, help="Call no shorter pause a hang; nor one below 20 steps or 3 times the longest pause.",
                 metavar="SECONDS"),
]  # fmt: skip
Hook = Annotated[
    str, typer.Option("--on-anomaly", help="Run this in a shell for each; PERFDOCTOR_TEXT says what.", metavar="CMD")
]
Port = Annotated[
    int,
    typer.Option(min=0, max=65535, metavar="PORT", help="Give OpenMetrics on http://127.0.0.1:PORT/metrics; 0: none."),
]
Summaries = Annotated[
    str,
    typer.Option(help="Where all nodes leave summaries meanwhile: a folder, or s3:// and the like.", metavar="FOLDER"),
]


def watch(
    *,
    command: run_options.Command,
    output: run_options.Output = None,
    windows: Windows = 3,
    apart: Apart = 10.0,
    first_window: First = 120.0,
    steps: run_options.Steps = None,
    hang_after: HangAfter = 60.0,
    on_anomaly: Hook = "",
    metrics: outside_options.Metrics = None,
    metrics_port: Port = 0,
    log: outside_options.Log = None,
    summaries: Summaries = "",
    timeout: run_options.Timeout = None,
    sampling: run_options.Sampling = True,
    source: run_options.Source = True,
    modules: run_options.Modules = True,
    no_save: run_options.NoSave = False,
    quiet: shared_options.Quiet = False,
    verbose: shared_options.Verbose = False,
) -> None:
    """Watch all steps of COMMAND; record what goes wrong. The exit code is COMMAND's."""
    outside = outside_options.outside(metrics, log or [])
    if metrics_port:
        outside_options.needs_metrics("--metrics-port")
    outside_options.needs_remote("--summaries", summaries)
    rules = analyze.rules_of([], [], None, None, quiet=quiet)
    running.wanted_passes(command, "torch")

    def notify(text: str) -> None:
        if not quiet:
            say.note(text)

    try:
        plan, folder = _begun(command, output)
    except Exception as error:  # noqa: BLE001 the training is started, whatever is wrong with the watch
        recorded.print_error("this run is not watched", error)
        running.leave(running.alone(command, timeout))
    from perfdoctor.cli import watch_process
    from perfdoctor.watching.watcher import Policy

    window = watch_process.window_of(steps, sampling=sampling, source=source, modules=modules)
    policy = Policy(windows, apart * 60, first_window, hang_after, window, tuple(log or ()))
    orders = watch_process.orders(folder.path, policy, on_anomaly, metrics, metrics_port, summaries, quiet=quiet)
    notify(f"watching into {folder.path}; perfdoctor status {folder.path} says what is known")
    ended = _run(command, plan, folder, orders, timeout, notify)
    if ended.at_once:
        notify(f"Ended at once. What is known is in {folder.path}")
    else:
        asked = analyze.AnalysisRequest(rules, quiet=quiet, verbose=verbose)
        reports = analyze.Reports(
            OutputFormat.TEXT, folder.path / "diagnosis.json", folder.path / "report.html", False, False, not no_save,
            outside_options.Outside(None, outside.trackers), on_error=True,
        )  # fmt: skip
        _report(folder, asked, reports, ended, notify)
    running.leave(ended)


def _begun(command: Sequence[str], output: Path | None) -> tuple[Plan, RunFolder]:
    """What can be recorded here, and the new run folder. Raises PerfdoctorError, and what a machine may raise."""
    from perfdoctor.errors import PerfdoctorError
    from perfdoctor.recording import plan
    from perfdoctor.system.run_folder import RUNS, free_name
    from perfdoctor.watching.windows import rows_folder

    environment = dict(os.environ)
    machine = plan.inspect(command, environment)
    where = output or free_name(Path(RUNS), machine.program.name)
    made = plan.make(machine, ("torch",), where)
    if not made.passes:
        why = "; ".join(made.left_out.values())
        raise PerfdoctorError(f"the program cannot be recorded here: {why}", do="perfdoctor env says what can be.")
    folder = running.new_folder(where, command, environment, made)
    rows_folder(folder.path).mkdir()
    folder.make("nccl")
    return made, folder


def _run(
    command: Sequence[str], plan: Plan, folder: RunFolder, orders: str, timeout: float | None,
    notify: Callable[[str], None],
) -> Ended:  # fmt: skip
    """Run the program with the watcher beside it; whatever fails of ours, the program runs."""
    from perfdoctor.recording.launch import program_run
    from perfdoctor.recording.tools import torch_profiler
    from perfdoctor.recording.tools.torch_profiler import PassSettings, StepWindow
    from perfdoctor.watching import hangs
    from perfdoctor.watching.windows import rows_folder

    watcher = _watcher(orders, notify)
    flight = hangs.flight_recorder(os.environ, folder.path / "nccl") if plan.machine.has_gpu else {}
    environment = torch_profiler.environment(
        {**os.environ, **flight}, PassSettings("torch", folder.make("torch"), "cpu+cuda"), StepWindow(steps=0),
        reports=folder.path / "agents", nccl=None,
        watch={"rows": str(rows_folder(folder.path).absolute()), "watcher": watcher.pid if watcher else 0},
    )  # fmt: skip
    began: list[int] = []
    try:
        with torch_profiler.while_running(environment) as given:
            ended = program_run.run(command, given, time_limit_s=timeout, started=began.append)
        running.let_go_of_closed_streams()
    except Exception as error:  # noqa: BLE001 the program runs on, or is started
        recorded.print_error("the watch failed", error)
        ended = running.awaited(began[0]) if began else running.alone(command, timeout)
    for note in ended.notes:
        notify(note)
    _end(watcher, ended)
    folder.manifest.exit_code = ended.code
    running.store(folder, notify)
    return ended


def _watcher(orders: str, notify: Callable[[str], None]) -> subprocess.Popen[bytes] | None:
    """The process that watches; None where it does not start. It is older than the program, and so no part of it."""
    from perfdoctor.system import tool_process

    try:
        return subprocess.Popen(
            [*tool_process.own_command("perfdoctor.cli.watch_process"), orders], stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        notify(f"nothing is watched: {error.strerror or error}")
        return None


def _end(watcher: subprocess.Popen[bytes] | None, ended: Ended) -> None:
    """Let the watcher end: it reads the last steps, and may wait for a diagnosis."""
    if watcher is None or watcher.stdin is None:
        return
    with contextlib.suppress(OSError):
        watcher.stdin.write(str(ended.code).encode())
        watcher.stdin.close()
    try:
        watcher.wait(0 if ended.at_once else _ENDING_S)
    except (subprocess.TimeoutExpired, KeyboardInterrupt):
        watcher.kill()
        watcher.wait()


def _report(
    folder: RunFolder, asked: analyze.AnalysisRequest, reports: analyze.Reports, ended: Ended,
    notify: Callable[[str], None],
) -> None:  # fmt: skip
    """The report of the window that says most: the last one of an anomaly, else the last one."""
    from perfdoctor.errors import PerfdoctorError
    from perfdoctor.system.run_folder import RunFolder
    from perfdoctor.watching import document, windows

    try:
        known = document.read(folder.path)
    except PerfdoctorError:  # the watcher was killed, or found no space
        notify("what was watched is not known: the process that watches has written nothing")
        return
    recorded_ones = [each for each in known.windows if each.state in ("diagnosed", "recorded")]
    of_trouble = [each for each in recorded_ones if each.why != "first"]
    chosen = (of_trouble or recorded_ones)[-1:]
    run = RunFolder.open(folder.path / windows.WINDOWS / str(chosen[0].number)) if chosen else None
    if not known.ranks:
        notify("no step was seen: nothing is known of this run. Mark where each step ends: perfdoctor.step()")
    elif run is None:
        count = len(known.anomalies)
        found = f"{count} anomalies" if count > 1 else "one anomaly" if count else "no anomaly"
        notify(f"{found} in {known.ranks[0].steps:,} steps, and no window was recorded; see {folder.path}/watch.json")
    else:
        with contextlib.suppress(OSError):
            document.write_curve(run.path, known)
        recorded.report(run, asked, reports, "watch", ended.code)
