"""The process beside a training under `perfdoctor watch`: it watches, says what changes, and publishes what is known.

    python -m perfdoctor.cli.watch_process JSON          ends when its standard input is closed

What is written there before is the exit code of the program. Its process group is not the terminal's: Ctrl-C is the
training's alone.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from perfdoctor.cli import say
from perfdoctor.errors import PerfdoctorError
from perfdoctor.recording.tools import py_spy
from perfdoctor.recording.tools.nvml import DeviceSampler
from perfdoctor.recording.tools.torch_profiler import StepWindow
from perfdoctor.report.words import watched
from perfdoctor.system.run_folder import RunFolder
from perfdoctor.watching.anomalies import Anomaly
from perfdoctor.watching.hangs import Hang
from perfdoctor.watching.watcher import Policy, Watcher
from perfdoctor.watching.windows import SAMPLES, WINDOWS, WindowState

if TYPE_CHECKING:
    from perfdoctor.export.watched import Port

_TICK_S = 1.0
#: At the end summaries of windows that are still written are waited for so long.
_LAST_S = 30.0
#: A row a GPU and second: throttling is seen within twenty.
_HERTZ = 1.0
#: A quarter of an hour: a row has 160 bytes, which were 113 MB a day of eight GPUs.
_MOST_TICKS = 900
_NICER = 5
#: What a shared folder or a store gets is written so often.
_SHARED_EVERY_S = 30.0


class Orders(Struct, frozen=True):
    """What the process is to do. `hook`: a shell's command for each anomaly; `metrics`: a file for OpenMetrics, `port`
    a port for them, 0 for none; `summaries`: where summaries of windows, and watch.json, go.
    """

    folder: str
    policy: Policy
    hook: str = ""
    metrics: str = ""
    port: int = 0
    summaries: str = ""
    quiet: bool = False


def _port(number: int, run: str) -> Port | None:
    """The port of this number; None where none is asked for, or that one is not free."""
    if not number:
        return None
    from perfdoctor.export.watched import Port

    try:
        return Port(number, run)
    except ImportError:  # of the training's own Python, where perfdoctor.watch() was called in it
        say.note("no metrics on a port: pip install 'perfdoctor[metrics]'")
    except (OSError, OverflowError) as error:
        say.note(f"no metrics on port {number}: {getattr(error, 'strerror', '') or error}. Give a free one")
    return None


class _Beside:
    def __init__(self, orders: Orders, run: RunFolder) -> None:
        self.orders, self.run = orders, run
        self._shared_at = 0.0
        self._running: list[subprocess.Popen[bytes]] = []
        self.port = _port(orders.port, run.path.name)
        self.watcher = Watcher(run, orders.policy, py_spy.find(), self.happened)

    def happened(self, what: Anomaly | Hang | WindowState) -> None:
        """Say it, and let others know."""
        if isinstance(what, Anomaly):
            text = watched.said(what)
            self._call_hook(what.kind, text)
        else:
            text = watched.hang(what) if isinstance(what, Hang) else watched.window(what)
        is_worth_a_line = not isinstance(what, WindowState) or what.state != "recorded"
        if is_worth_a_line and not self.orders.quiet:
            with contextlib.suppress(OSError):  # nobody reads it any more
                say.note(text)
        # Before, its traces are being compressed: a summary of then would find them gone.
        if isinstance(what, WindowState) and what.state in ("diagnosed", "failed"):
            self._summarize(what.number)

    def _call_hook(self, kind: str, text: str) -> None:
        if not self.orders.hook:
            return
        facts = {"PERFDOCTOR_KIND": kind, "PERFDOCTOR_TEXT": text, "PERFDOCTOR_RUN": str(self.run.path.absolute())}
        self._start(["/bin/sh", "-c", self.orders.hook], facts)

    def _summarize(self, number: int) -> None:
        if self.orders.summaries:
            window = str(self.run.path / WINDOWS / str(number))
            # Machines open their windows by themselves: those of one number need not be of one moment.
            first = min((each.rank for each in self.watcher.ranks.values()), default=0)
            target = f"{self.orders.summaries}/window-{number}-rank{first}"
            self._start([sys.executable, "-m", "perfdoctor", "summarize", window, "-o", target, "-q"], {})

    def _start(self, command: list[str], facts: dict[str, str]) -> None:
        """Start what nobody waits for; what it says goes into a file."""
        self._running = [each for each in self._running if each.poll() is None]
        with contextlib.suppress(OSError), (self.run.path / "watch.log").open("ab") as log:
            self._running.append(
                subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env={**os.environ, **facts},
                    start_new_session=True,
                )
            )  # fmt: skip

    def publish(self, *, is_last: bool = False) -> None:
        """Write what is known for others: a file for OpenMetrics, and where all nodes write."""
        now, orders = time.monotonic(), self.orders
        is_shared = bool(orders.summaries) and (is_last or now - self._shared_at >= _SHARED_EVERY_S)
        if self.port is None and not orders.metrics and not is_shared:
            return  # nobody gets it, and it has the curve of the whole run
        document = self.watcher.document(time.time_ns(), has_ended=is_last)
        if self.port is not None:
            self.port.document = document
        if orders.metrics:
            from perfdoctor.export import watched as metrics

            with contextlib.suppress(OSError, PerfdoctorError, ImportError):
                metrics.write(Path(orders.metrics), document, self.run.path.name)
        if is_shared:
            from perfdoctor.system import remote

            self._shared_at = now
            first = min((each.rank for each in document.ranks), default=0)
            with contextlib.suppress(OSError, PerfdoctorError):
                remote.write(orders.summaries, f"watch-rank{first}.json", msgspec.json.encode(document))

    def to_the_end(self) -> None:
        """Watch until the program has ended, or whoever started it has."""
        while not select.select([0], [], [], _TICK_S)[0]:
            self.watcher.tick()
            self.publish()
        said = os.read(0, 16).decode("ascii", "replace").strip()
        self.watcher.end(int(said) if said.isdecimal() else None)
        self.publish(is_last=True)
        until = time.monotonic() + _LAST_S
        for each in self._running:
            with contextlib.suppress(subprocess.TimeoutExpired):
                each.wait(max(until - time.monotonic(), 0.0))


def main() -> None:
    """Takes the orders as JSON."""
    orders = msgspec.json.decode(sys.argv[1], type=Orders)
    run = RunFolder.open(Path(orders.folder))
    if run is None:
        sys.exit(f"{orders.folder} is no run folder")
    with contextlib.suppress(OSError):
        os.nice(_NICER)
    run.make("device")
    samples = DeviceSampler(run.path / SAMPLES, _HERTZ, _MOST_TICKS)
    if samples.start():  # no GPU here
        with contextlib.suppress(OSError):
            (run.path / "device").rmdir()
    try:
        _Beside(orders, run).to_the_end()
    finally:
        samples.stop()


def orders(
    folder: Path, policy: Policy, hook: str, metrics: Path | None, port: int, summaries: str, *, quiet: bool
) -> str:  # fmt: skip
    """The argument of this process."""
    file = str(metrics.absolute()) if metrics else ""
    made = Orders(str(folder.absolute()), policy, hook, file, port, summaries, quiet)
    return json.dumps(msgspec.to_builtins(made))


def window_of(steps: int | None, *, sampling: bool, source: bool, modules: bool) -> StepWindow:
    """Which steps a window records: by number, or until enough time is recorded."""
    from perfdoctor.recording.tools.torch_profiler import default_window

    many = default_window() if steps is None else StepWindow(steps)
    return msgspec.structs.replace(many, skip=1, sampling=sampling, source=source, modules=modules)
