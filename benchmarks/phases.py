"""How long does each phase of a diagnosis take? Start, read, prepare, rules, replay, pages: in one process, on one core.

    PERFDOCTOR_JOBS=1 python benchmarks/phases.py FILE      as JSON: seconds of each phase, of them on the processor, and the most memory

Part of `make bench`. Rules are all of the diagnosis that is not replay: what detectors find, how findings are ranked and worded.
Replay is what `perfdoctor.replay` is asked from outside. Modules that are imported when they are first needed count where that is.
"""

from __future__ import annotations

import time

_BEGUN = time.perf_counter(), time.process_time()

import sys  # noqa: E402 the start is measured
from collections.abc import Callable  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

#: What the diagnosis calls of the replay; methods of `RunReplay` beside them.
_ENTRIES = {
    "perfdoctor.replay.what_if.run_replay": ("replay_of",),
    "perfdoctor.replay.graph.critical_path": ("critical_path",),
    "perfdoctor.replay.what_if.sizes": ("simulated", "throughput"),
}


class Clock:
    """Adds up the time in some functions; one that is called by another of them counts once."""

    def __init__(self) -> None:
        self.spent, self._depth = (0.0, 0.0), 0

    def timed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any, **more: Any) -> Any:
            self._depth += 1
            begun = now()
            try:
                return function(*args, **more)
            finally:
                self._depth -= 1
                if self._depth == 0:
                    self.spent = plus(self.spent, minus(now(), begun))

        return timed


Times = tuple[float, float]


def now() -> Times:
    """Seconds that passed, and of this process on the processor."""
    return time.perf_counter(), time.process_time()


def plus(a: Times, b: Times) -> Times:
    return a[0] + b[0], a[1] + b[1]


def minus(a: Times, b: Times) -> Times:
    return a[0] - b[0], a[1] - b[1]


def watched_replay() -> Clock:
    """A clock on what the replay is asked. Before others import it: they would have the functions themselves."""
    import importlib  # noqa: PLC0415
    import types  # noqa: PLC0415

    clock = Clock()
    for name, functions in _ENTRIES.items():
        module = importlib.import_module(name)
        for function in functions:
            setattr(module, function, clock.timed(getattr(module, function)))
    from perfdoctor.replay.what_if.run_replay import RunReplay  # noqa: PLC0415

    for name, method in list(vars(RunReplay).items()):
        if isinstance(method, types.FunctionType) and not name.startswith("_"):
            setattr(RunReplay, name, clock.timed(method))
    return clock


def measured(path: Path) -> dict[str, tuple[float, float, int]]:
    """Seconds of each phase, of them on the processor, and the peak of memory in bytes until its end.

    Rules and replay take turns and have one peak.
    """
    clock = watched_replay()
    from perfdoctor.diagnosis.engine import examine  # noqa: PLC0415 the start is measured
    from perfdoctor.metrics.accounting.prepare import prepare  # noqa: PLC0415
    from perfdoctor.readers.open import read  # noqa: PLC0415
    from perfdoctor.vocabulary.rulebook import load_rules  # noqa: PLC0415

    rules = list(load_rules().values())
    spent, peaks, before = {}, {}, _BEGUN

    def mark(name: str) -> None:
        nonlocal before
        spent[name], before, peaks[name] = minus(now(), before), now(), peak_bytes()

    mark("start")
    timeline = read([path])
    mark("read")
    run = prepare(timeline)
    mark("prepare")
    diagnosis = examine(run, rules).diagnosis
    mark("rules")
    spent["rules"], spent["replay"], peaks["replay"] = minus(spent["rules"], clock.spent), clock.spent, peaks["rules"]
    from perfdoctor.report import html  # noqa: PLC0415 only who wants pages pays for them
    from perfdoctor.views.build import views  # noqa: PLC0415

    html.render(diagnosis, views(run, diagnosis))
    mark("pages")
    return {name: (*taken, peaks[name]) for name, taken in spent.items()}


def peak_bytes() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


if __name__ == "__main__":
    import json

    print(json.dumps(measured(Path(sys.argv[1]))))
