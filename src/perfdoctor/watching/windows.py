"""How is a window of full recording opened in a training that runs, on all ranks at once, and diagnosed meanwhile?

    asked ── request for the agents (step, folder) ── all ranks recorded ── stacks kept ── finish.py: diagnosis, report

Each window is a run folder of its own, `windows/N`, which `analyze`, `compare` and `summarize` read as any other. The
request is a file beside the ranks' steps (agent/perfdoctor_agent/watching.py): ranks that share it share the window.
"""

from __future__ import annotations

import contextlib
import json
import math
import time
from collections.abc import Container, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from perfdoctor.errors import PerfdoctorError
from perfdoctor.recording.inside.report_process import ReportProcess
from perfdoctor.recording.sampling.session import SamplerProcess
from perfdoctor.recording.tools import torch_profiler
from perfdoctor.recording.tools.py_spy import PySpy
from perfdoctor.recording.tools.torch_profiler import MOST_STEPS, PassSettings, StepWindow
from perfdoctor.system.paths import write_whole
from perfdoctor.system.run_folder import Manifest, PassRecord, RunFolder, json_object
from perfdoctor.watching import throttling
from perfdoctor.watching.anomalies import ANSWERS, Anomaly
from perfdoctor.watching.rows import RankSteps

WINDOWS = "windows"
REQUEST = "window.json"
#: Agents ask for requests twice a second (agent/perfdoctor_agent/light.py), and write a stretch of steps when it is
#: long enough: until then a rank is further than its file says.
_ASKED_EVERY_NS = 500_000_000
_AHEAD_NS = 3 * _ASKED_EVERY_NS
#: Steps beside that, as ranks are not exactly alike.
_AHEAD_STEPS = 3
#: No more than this is unseen of a rank: a stretch of ten seconds, and the silence behind which it is written. A rank
#: that has written nothing for longer makes no steps, and goes on where it was.
_MOST_UNSEEN_NS = 13_000_000_000
#: Of so many stretches the usual length of a step is taken: one of them may be nothing but a pause.
_USUAL_OF = 8
#: A window that is not recorded so long after its steps were due will not be: the program has ended its training, or
#: hangs.
_LIMIT_S = 600.0
#: Beside the recorded steps: one of warm-up, and those behind it that are timed (agent/perfdoctor_agent/pace.py).
_MORE_STEPS = 1 + 21
#: Recorded steps in front of a slow one, with which it is compared.
_BEFORE_SLOW = 2
#: So long its diagnosis may take: it is nicer than the training, and has an eighth of the cores.
_DIAGNOSIS_S = 300.0
PASS = "torch"  # noqa: S105 a pass of the run
#: Samples of the GPUs, in a run folder as in that of a window, and so long before its request: those in which a GPU is
#: found to be held back, and of a window of a second there is one.
SAMPLES = "device/samples.csv"
_SAMPLED_BEFORE_NS = 30_000_000_000


class WindowState(Struct, frozen=True):
    """`why`: the kind of an anomaly, `asked` or `first`; `state`: asked, recorded, diagnosed, failed.

    `finding`: the title of the finding that says why, `rule` its id; the first one, where none does.
    """

    number: int
    why: str
    first_step: int
    state: str = "asked"
    finding: str = ""
    rule: str = ""
    note: str = ""


def usual_ns(rank: RankSteps) -> float:
    """The length of a step of late."""
    latest = [each for each in rank.stretches[-_USUAL_OF:] if not each.recorded] or rank.stretches[-1:]
    return max(float(np.median([each.q[2] for each in latest])), 1.0)


def next_step(ranks: Mapping[int, RankSteps], now_ns: int) -> int:
    """The step with which all ranks can begin a window: none has made it when it has read the request."""
    latest = 0
    for each in _alive(ranks):
        last = each.stretches[-1]
        usual = min(usual_ns(each), max(last.q[2], 1))
        unseen_ns = min(max(now_ns - last.end, 0), _MOST_UNSEEN_NS + usual) + _AHEAD_NS
        latest = max(latest, last.last + math.ceil(unseen_ns / usual) + _AHEAD_STEPS)
    return latest


def first_step(ranks: Mapping[int, RankSteps], now_ns: int, anomaly: Anomaly | None, recorded: int) -> int:
    """The step with which a window of so many recorded steps begins: the next one, or the one from which a slow step is
    recorded where those come regularly.

    A slow step that is longer than the longest window is not waited for: its recording would fill memory and disk.
    """
    soonest = next_step(ranks, now_ns)
    numbers = [anomaly.values.get(name) for name in ("every", "phase", "slow_ns")] if anomaly else []
    usual = max((usual_ns(each) for each in _alive(ranks)), default=0.0)
    match numbers:
        case int(every), int(phase), float(slow_ns) if slow_ns <= MOST_STEPS * usual:
            before = 2 + min(_BEFORE_SLOW, recorded - 1)  # the first step and the one of warm-up are not recorded
            return soonest + (phase - soonest - before) % every
    return soonest


def limit_s(ranks: Mapping[int, RankSteps], first_step: int, recorded: int) -> float:
    """How long a window may take from its request to the end of its recording: the steps up to there, and more."""
    alive = _alive(ranks)
    if not alive:
        return _LIMIT_S
    steps = max(first_step - min(each.steps for each in alive), 0) + recorded + _MORE_STEPS
    return _LIMIT_S + steps * max(map(usual_ns, alive)) / 1e9


def _alive(ranks: Mapping[int, RankSteps]) -> list[RankSteps]:
    return [each for each in ranks.values() if each.stretches and not each.ended_ns]


class Window:
    """One window, from its request to its diagnosis; `poll` goes on with it, and is called until `is_over`."""

    def __init__(
        self, run: RunFolder, number: int, why: str, ranks: Mapping[int, RankSteps], settings: StepWindow,
        py_spy: PySpy, *, log: tuple[str, ...] = (), anomaly: Anomaly | None = None,
    ) -> None:  # fmt: skip
        self.folder = _folder(run, number)
        self._samples, self._sampled_since_ns = run.path / SAMPLES, time.time_ns() - _SAMPLED_BEFORE_NS
        self.state = WindowState(number, why, first_step(ranks, time.time_ns(), anomaly, settings.steps))
        self._ranks = _alive(ranks)
        self._settings, self._log = settings, log
        self._limit_s = limit_s(ranks, self.state.first_step, settings.steps)
        self._until = time.monotonic() + self._limit_s
        self._process: ReportProcess | None = None
        self._sampler: SamplerProcess | None = None
        if settings.sampling and not py_spy.trouble:
            with contextlib.suppress(OSError):
                self._sampler = SamplerProcess(py_spy, with_source=settings.source)
        try:
            self._ask(run)
        except OSError as error:
            self.fail(f"it could not be asked for: {error.strerror or error}")

    def _ask(self, run: RunFolder) -> None:
        recording = PassSettings(PASS, self.folder.make(PASS), "cpu+cuda")
        given = torch_profiler.settings(
            recording, self._settings, reports=self.folder.make("agents"),
            sampling=self._sampler.settings if self._sampler else None,
        )  # fmt: skip
        wanted: dict[str, Any] = {
            name: given[name]
            for name in ("traces", "reports", "steps", "most_steps", "least_ns", "sampling", "stacks", "modules")
        }
        wanted |= {"window": self.state.number, "first_step": self.state.first_step, "processes": self._pids()}
        now_ns = time.time_ns()
        wanted |= {"asked": now_ns, "until": now_ns + round(self._limit_s * 1e9)}
        write_whole(rows_folder(run.path) / REQUEST, json.dumps(wanted).encode())

    def _pids(self) -> list[int]:
        """The processes that record it, and have not ended meanwhile."""
        return [each.process.pid for each in self._ranks if each.process and not each.ended_ns]

    @property
    def is_over(self) -> bool:
        return self.state.state in ("diagnosed", "failed")

    def poll(self, *, has_ended: bool = False) -> bool:
        """Go on; True if the state has changed. `has_ended`: the program has, and writes nothing any more."""
        before = self.state
        if self.state.state == "asked":
            self._recorded(has_ended=has_ended)
        elif self._process is not None:
            self._diagnosed()
        return self.state != before

    def _recorded(self, *, has_ended: bool) -> None:
        reports = self.folder.reports(PASS)
        done = {report.pid for report in reports if report.ended}
        is_late = has_ended or time.monotonic() > self._until
        if not (done.issuperset(self._pids()) or is_late):
            return
        if not any(report.trace for report in reports):
            said = [note for report in reports for note in report.notes]
            self.fail(said[-1] if said else "no rank has recorded a step of it")
            return
        record = self.folder.manifest.passes[0]
        record.state, record.seconds = "done", round((time.time_ns() - record.started_unix_ns) / 1e9, 3)
        self._keep_stacks()
        with contextlib.suppress(OSError):
            throttling.keep_since(self._samples, self._sampled_since_ns, self.folder.path / SAMPLES)
        with contextlib.suppress(OSError):
            self.folder.write()
        self.state = replace(self.state, state="recorded")
        world_size = max((report.world_size or 1 for report in reports), default=1)
        given = {
            "world_size": world_size, "steps": self._settings.steps, "skip": 1, "wait_s": 1.0, "log": self._log,
        }  # fmt: skip
        try:
            self._process = ReportProcess(self.folder.path, given, _DIAGNOSIS_S)
            self._process.is_told = True  # what it says is said here
        except OSError as error:
            self.fail(f"it was not diagnosed: {error.strerror or error}")

    def _keep_stacks(self) -> None:
        if self._sampler is None:
            return
        sampler, self._sampler = self._sampler, None
        with contextlib.suppress(OSError, ValueError), contextlib.closing(sampler):
            sampler.end()
            self.folder.manifest.passes[0].notes += list(sampler.keep(self.folder.path / "stacks", PASS, Path.cwd()))
            kept = self.folder.files("stacks", f"{PASS}-*.json.gz")
            self.folder.manifest.passes[0].files += [f"stacks/{file.name}" for file in kept]

    def _diagnosed(self) -> None:
        if self._process is None or not self._process.has_ended:
            return
        page, diagnosis = self._process.page, json_object(self.folder.path / "diagnosis.json")
        self._process = None
        if page is not None and diagnosis is not None:
            self.state = replace(self.state, state="diagnosed", **_answer(diagnosis, self.state.why))
        else:
            self.fail(f"it was not diagnosed; perfdoctor analyze {self.folder.path} says why")

    def fail(self, why: str) -> None:
        """Give it up; what was recorded stays."""
        self.state = replace(self.state, state="failed", note=why)
        self.end()

    def end(self) -> None:
        """End what samples for it."""
        if self._sampler is not None:
            sampler, self._sampler = self._sampler, None
            with contextlib.suppress(OSError), contextlib.closing(sampler):
                sampler.end()


def _answer(diagnosis: Mapping[str, Any], why: str) -> dict[str, Any]:
    """The finding that says why there is what the window was opened for; else the first one."""
    given = diagnosis.get("findings")
    findings = [each for each in given if isinstance(each, dict)] if isinstance(given, list) else []
    answers = [each for each in findings if each.get("rule") in ANSWERS.get(why, ())]
    first = (answers or findings or [{}])[0]
    return {"finding": str(first.get("title", ""))[:200], "rule": str(first.get("rule", ""))[:80]}


def found(run: Path, number: int) -> WindowState:
    """The state of a window that somebody else has opened, by its files."""
    diagnosis = json_object(run / WINDOWS / str(number) / "diagnosis.json")
    if diagnosis is None:
        return WindowState(number, "asked", 0)
    return WindowState(number, "asked", 0, "diagnosed", **_answer(diagnosis, "asked"))


def is_recording(run: Path, ranks: Mapping[int, RankSteps]) -> bool:
    """Is a window that somebody has asked for still being recorded by a rank that runs?

    One rank may be through with it while another one writes: a request in between would be read at different steps.
    """
    asked = _asked(run)
    return asked is not None and not _is_recorded(run, asked, ranks)


def is_diagnosed_elsewhere(run: Path, ranks: Mapping[int, RankSteps], own: Container[int]) -> bool:
    """Is a window that is none of these being diagnosed, or about to be? By the command that has asked for it."""
    asked = _asked(run)
    if asked is None or asked["window"] in own or (run / WINDOWS / str(asked["window"]) / "diagnosis.json").exists():
        return False
    return _is_recorded(run, asked, ranks)


def _asked(run: Path) -> Mapping[str, Any] | None:
    """The last request, unless its time is over."""
    asked = json_object(rows_folder(run) / REQUEST) or {}
    number, until = asked.get("window"), asked.get("until")
    return asked if isinstance(number, int) and isinstance(until, int) and until > time.time_ns() else None


def _is_recorded(run: Path, asked: Mapping[str, Any], ranks: Mapping[int, RankSteps]) -> bool:
    pids = asked.get("processes")
    alive = {each.process.pid for each in _alive(ranks) if each.process}
    recording = alive.intersection(each for each in pids if isinstance(each, int)) if isinstance(pids, list) else alive
    window = RunFolder.open(run / WINDOWS / str(asked["window"]))
    reports = window.reports(PASS) if window is not None else []
    return recording <= {each.pid for each in reports if each.ended}


def _folder(run: RunFolder, number: int) -> RunFolder:
    """A new run folder for a window, whose manifest says what the run's says."""
    path = run.make(WINDOWS) / str(number)
    now = time.time_ns()
    manifest = _manifest(run.manifest, now)
    try:
        return RunFolder.create(path, manifest)
    except PerfdoctorError as error:
        raise OSError(error.what) from error


def _manifest(manifest: Manifest, now: int) -> Manifest:
    first = PassRecord(PASS, _version(manifest), list(manifest.command), started_unix_ns=now)
    return Manifest(
        perfdoctor=manifest.perfdoctor, command=list(manifest.command), environment=dict(manifest.environment),
        started_unix_ns=now, passes=[first], checkout=dict(manifest.checkout), project=dict(manifest.project),
    )  # fmt: skip


def _version(manifest: Manifest) -> str:
    return manifest.passes[0].tool_version if manifest.passes else ""


def rows_folder(run: Path) -> Path:
    """Where the agents of a run write their steps, and are asked for windows (also `recording.record`)."""
    return run / "steps"


def numbers(run: Path) -> list[int]:
    """The windows of a run, by number."""
    folder = run / WINDOWS
    found = [each.name for each in folder.iterdir()] if folder.is_dir() else []
    return sorted(int(name) for name in found if name.isdecimal())
