"""One round with one program: alone, under `perfdoctor run`, alone with each fault mended. What was said, and what is so.

Everything that a round found is plain numbers and texts, which go to JSON and back.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from marked_lines import marks

_ROOT = Path(__file__).parents[1]
FOLDER = _ROOT / "benchmarks" / "programs"
_LENGTH = re.compile(r"^a step takes ([\d.]+) ms$", re.MULTILINE)
_TRAINING = re.compile(r"^the training takes ([\d.]+) s$", re.MULTILINE)
_KIND = re.compile(r"^(\w+) takes ([\d.]+) of the training: [\d.]+ s(?:, every (\d+) steps)?$", re.MULTILINE)
_STEP = re.compile(r"ProfilerStep#\d+")
#: A program that takes longer hangs.
_LONGEST_S = 900
#: Steps before and behind a window in which the recorder is made ready and put away.
_PUT_AWAY = 2
#: Fewer steps behind the window say nothing of a percent.
_FEWEST_BEHIND = 20


@dataclass(frozen=True)
class Kind:
    """What comes every `every` steps, as a share of the training; `every` is 0 where it is not known."""

    share: float
    every: int


@dataclass
class Alone:
    """One run of the program by itself: a step without what comes between, the training, all from start to end."""

    step_ms: float
    training_s: float
    wall_s: float
    kinds: dict[str, Kind] = field(default_factory=dict)


@dataclass
class Promise:
    """What one finding says its first fix leaves of the step, or of the run: at least, likely, at most; None where it is unknown."""

    rule: str
    fix: str
    confidence: str
    of_run: bool
    left: tuple[float, float, float] | None

    def is_of(self, fix: Mapping[str, str]) -> bool:
        """Is it this fix of the program that is advised first?"""
        return self.rule in rules_of(fix) and fix.get("title", "") in self.fix.lower()


def rules_of(fix: Mapping[str, Any]) -> Sequence[str]:
    """The rules that may advise this fix of a program: one, or several of the same time."""
    return [fix["rule"]] if isinstance(fix["rule"], str) else list(fix["rule"])


@dataclass
class Said:
    """What comes every k steps, as the diagnosis says: `line` is "right", "wrong" or "" for none."""

    share: float
    every: int
    line: str


@dataclass
class Round:
    """`recorded` and `behind`: median recorded step, and median step behind the window, over the same ones alone."""

    alone: Alone
    under: Alone
    firsts: list[str]
    found: list[str]
    line: str
    named: str
    steps_in_each: list[int]
    unrecorded_ms: float | None
    promises: list[Promise]
    recorded: float | None
    behind: float | None
    said: dict[str, Said]
    fixed: dict[str, Alone] = field(default_factory=dict)


# --- to run ---


def command(python: str, name: str, known: Mapping[str, Any], *arguments: str) -> list[str]:
    ranks = known.get("ranks", 1)
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)) if ranks > 1 else ()
    return [python, *launcher, str(FOLDER / f"{name}.py"), *arguments]


def _run(arguments: Sequence[str], **environment: str) -> str:
    done = subprocess.run(
        arguments, env={**os.environ, **environment}, capture_output=True, text=True, check=False, timeout=_LONGEST_S
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(arguments)} ended with {done.returncode}\n{(done.stdout + done.stderr)[-2000:]}")
    return done.stdout


def has(python: str, packages: Sequence[str]) -> str:
    """The first of `packages` that this Python does not have."""
    code = "import sys, importlib.util as u; print(next((p for p in sys.argv[1:] if u.find_spec(p) is None), ''))"
    return _run([python, "-c", code, "torch", *packages]).strip()


def printed(text: str, wall_s: float) -> Alone:
    """What a program prints of itself (beats.py); of several processes that train, the mean step."""
    training = _TRAINING.findall(text)
    return Alone(
        statistics.mean(float(each) for each in _LENGTH.findall(text)),
        max((float(each) for each in training), default=0.0),
        wall_s,
        {kind: Kind(float(share), int(every or 0)) for kind, share, every in _KIND.findall(text)},
    )


def alone(arguments: Sequence[str], beats: Path | None = None) -> Alone:
    """Torch 2.13 sometimes aborts at the end of a program of several ranks, with gloo: then it is run once more."""
    environment = {"PROGRAM_BEATS": str(beats)} if beats else {}
    for trial in range(2):
        begun = time.perf_counter()
        try:
            return printed(_run(arguments, **environment), time.perf_counter() - begun)
        except RuntimeError as error:
            if trial:
                raise
            print(f"  once more: {str(error).splitlines()[0]}", flush=True)
    raise AssertionError


def recorded(arguments: Sequence[str], scratch: Path, beats: Path) -> tuple[Alone, dict[str, Any]]:
    """The program under `perfdoctor run` as a user calls it, to the report's end, and the diagnosis."""
    code = f"import sys; sys.path.insert(0, {str(_ROOT / 'src')!r}); from perfdoctor.cli.main import main; main()"
    options = ("run", "--quiet", "--no-save", "--passes", "torch", "-o", str(scratch / "run"))
    begun = time.perf_counter()
    text = _run([sys.executable, "-c", code, *options, "--", *arguments], PROGRAM_BEATS=str(beats))
    wall_s = time.perf_counter() - begun
    return printed(text, wall_s), json.loads((scratch / "run" / "diagnosis.json").read_text("utf-8"))


def one_round(python: str, name: str, known: Mapping[str, Any], arguments: Sequence[str] = ()) -> Round:
    """`name`: the program's file, without its ending. What a fix leaves is measured where it is advised, or what it saves unknown."""
    # Not below the folder of a training that is recorded at the same time.
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        (scratch / "alone").mkdir()
        (scratch / "beats").mkdir()
        plain = alone(command(python, name, known, *arguments), scratch / "alone")
        under, diagnosis = recorded(command(python, name, known, *arguments), scratch, scratch / "beats")
        windows = Windows(scratch / "run", scratch / "beats")
        under = replace(under, kinds={name: windows.of_training(name, kind) for name, kind in under.kinds.items()})
        promises = [_promise(finding, diagnosis) for finding in diagnosis["findings"] if _most(finding)]
        asked = [fix["name"] for fix in known.get("fix", ()) if any(_asks(each, fix) for each in promises)]
        lines = Lines(FOLDER / f"{name}.py", known.get("library", ""))
        line, named = first_line(diagnosis, lines)
        return Round(
            plain,
            under,
            firsts(diagnosis),
            [finding["rule"] for finding in diagnosis["findings"]],
            line,
            named,
            windows.steps_in_each(),
            _unrecorded_ms(diagnosis),
            promises,
            windows.recorded(scratch / "alone"),
            windows.behind(scratch / "alone"),
            said_between(diagnosis, lines),
            {fix: alone(command(python, name, known, "--fix", fix)) for fix in asked},
        )


def _asks(promise: Promise, fix: Mapping[str, str]) -> bool:
    return promise.is_of(fix) or (promise.left is None and promise.rule in rules_of(fix))


# --- what the diagnosis says ---


def _saving(finding: Mapping[str, Any]) -> tuple[Mapping[str, int], bool]:
    """What it saves in ns, and is that of the whole run."""
    of_run = finding.get("basis") == "run"
    return finding["saving_ns_per_run" if of_run else "saving_ns_per_step"], of_run


def _most(finding: Mapping[str, Any]) -> int:
    return _saving(finding)[0]["high"]


def firsts(diagnosis: Mapping[str, Any]) -> list[str]:
    """The rule that a report begins with, both where it says "no clear limit", `["none"]` where nothing is worth fixing."""
    if diagnosis["contenders"]:
        return list(diagnosis["contenders"])
    worth = [each["rule"] for each in diagnosis["findings"] if each["is_verdict"] or _most(each)]
    return worth[:1] or ["none"]


@dataclass
class Lines:
    """Which lines are right: those marked in the program's `file`, and the function of a library that does it for it."""

    file: Path
    library: str = ""

    def kinds(self, line: Mapping[str, Any]) -> frozenset[str]:
        if self.library and f"{line['file']}: {line['function']}".endswith(self.library):
            return frozenset({"any"})
        return marks(self.file, line)


def first_line(diagnosis: Mapping[str, Any], known: Lines) -> tuple[str, str]:
    """Is the first line of the first finding right ("" without one), and which it is."""
    first = next((each for each in diagnosis["findings"] if each["rule"] == firsts(diagnosis)[0]), None)
    if first is None or not first["lines"]:
        return "", ""
    line = first["lines"][0]
    return _right(bool(known.kinds(line))), f"{Path(line['file']).name}:{line['line']} {line['function']}"


def _right(good: bool) -> str:
    return "right" if good else "wrong"


def said_between(diagnosis: Mapping[str, Any], known: Lines) -> dict[str, Said]:
    """Shares are of the steps and what is between them: without the start, the end, and what recording took."""
    noted = diagnosis.get("run_time")
    if not noted:
        return {}
    outside = ("start", "end", "recording")
    between = {kind: ns for kind, ns in noted["between_ns"].items() if kind not in outside}
    whole_ns = noted["steps_ns"] + sum(between.values())
    lines = {kind: _right(bool(known.kinds(line) & {kind, "any"})) for kind, line in noted["lines"].items()}
    return {
        kind: Said(ns / max(whole_ns, 1), noted["every_steps"].get(kind, 0), lines.get(kind, ""))
        for kind, ns in between.items()
        if ns
    }


def _unrecorded_ms(diagnosis: Mapping[str, Any]) -> float | None:
    found = diagnosis["run"]["steps"].get("unrecorded_ns")
    return found / 1e6 if found else None


def _promise(finding: Mapping[str, Any], diagnosis: Mapping[str, Any]) -> Promise:
    saving, of_run = _saving(finding)
    step = diagnosis["run"]["steps"]
    whole_ns = (
        diagnosis["run_time"]["wall_ns"] - diagnosis["run_time"]["between_ns"].get("start", 0)
        if of_run
        else _base_ns(diagnosis, step)
    )
    least, likely, most = (1 - saving[case] / whole_ns for case in ("high", "likely", "low"))
    title = finding["fixes"][0]["title"] if finding["fixes"] else ""
    left = (least, likely, most) if saving["likely"] else None
    return Promise(finding["rule"], title, finding["confidence"], of_run, left)


def _base_ns(diagnosis: Mapping[str, Any], steps: Mapping[str, Any]) -> float:
    """The step that savings are taken off: the unrecorded one where recording stretched it."""
    stretch = steps.get("stretch")
    if stretch and stretch > 1.1 and steps.get("unrecorded_ns"):
        return float(steps["unrecorded_ns"])
    return statistics.mean(each["step_ns"] for each in diagnosis["time"])


# --- the program's own steps, and those recorded ---


def _recorded_steps(trace: Mapping[str, Any]) -> tuple[list[tuple[int, int]], int]:
    """From when to when each lasted, in ns since 1970, and the process."""
    origin_ns = int(trace.get("baseTimeNanoseconds", 0))
    marks = [
        event
        for event in trace["traceEvents"]
        if event.get("cat") == "user_annotation" and _STEP.fullmatch(str(event.get("name")))
    ]
    steps = sorted(
        (origin_ns + round(each["ts"] * 1000), origin_ns + round((each["ts"] + each["dur"]) * 1000)) for each in marks
    )
    return steps, marks[0]["pid"] if marks else 0


def _apart(steps: Sequence[tuple[int, int]]) -> list[list[tuple[int, int]]]:
    """Windows of steps: within one a step begins where the last one ended."""
    longest_ns = max(end - begin for begin, end in steps)
    windows = [[steps[0]]]
    for (_, ended_ns), step in pairwise(steps):
        if step[0] - ended_ns > longest_ns:
            windows.append([])
        windows[-1].append(step)
    return windows


class Windows:
    """Where torch's traces alone say that steps were recorded, of one process, and when its own steps ended."""

    def __init__(self, run: Path, beats: Path) -> None:
        self.windows: list[list[tuple[int, int]]] = []
        pid = None
        for path in sorted(run.glob("torch/*rank0.pt.trace.json.gz")):
            steps, of = _recorded_steps(json.loads(gzip.decompress(path.read_bytes())))
            if steps and pid in (None, of):
                pid = of
                self.windows += _apart(steps)
        if not self.windows:
            raise RuntimeError(f"no step was recorded: {sorted(path.name for path in run.rglob('*'))[:20]}")
        self.windows.sort()
        noted = json.loads((beats / f"{pid}.json").read_text("utf-8"))
        self.ends_ns: list[int] = noted["ends_ns"]
        self.lengths_ns: list[float] = noted["steps_ns"]
        self.between: list[tuple[str, int, int]] = [tuple(each) for each in noted["between"]]

    def of_training(self, name: str, kind: Kind) -> Kind:
        """This kind with its share of the training as it is without a recorder: each recorded step counts as a usual one."""
        begin, end = self.ends_ns[0], max(self.ends_ns[-1], *(end for _, _, end in self.between))
        training_ns = float(end - begin)
        usual_ns = statistics.median(self.lengths_ns)
        for steps in self.windows:
            first, behind = self._number(steps[0][0]) - _PUT_AWAY, self._number(steps[-1][1]) + _PUT_AWAY
            recorded = self.lengths_ns[max(first, 0) : behind]
            training_ns -= sum(recorded) - usual_ns * len(recorded)
        # The training is timed from the end of its first step.
        spent_ns = sum(
            after - max(before, begin) for each, before, after in self.between if each == name and after > begin
        )
        return replace(kind, share=spent_ns / training_ns)

    def steps_in_each(self) -> list[int]:
        """How many of the program's own steps end within each recorded one."""
        borders = [[*(begin for begin, _ in steps), steps[-1][1]] for steps in self.windows]
        return [
            bisect_right(self.ends_ns, b) - bisect_right(self.ends_ns, a)
            for steps in borders
            for a, b in pairwise(steps)
        ]

    def recorded(self, plain: Path) -> float | None:
        """The lengths of steps that lie within a window; one may end a moment before or behind the program's own."""
        within = [
            number
            for number, (begin, end) in enumerate(pairwise(self.ends_ns))
            if any(steps[0][0] <= (begin + end) // 2 < steps[-1][1] for steps in self.windows)
        ]
        return self._over(plain, within)

    def behind(self, plain: Path) -> float | None:
        """The lengths of steps behind the first window and in no other, without the two in which the recorder ends."""
        busy = {
            number
            for steps in self.windows
            for number in range(self._number(steps[0][0]) - _PUT_AWAY, self._number(steps[-1][1]) + _PUT_AWAY)
        }
        first = self._number(self.windows[0][-1][1])
        numbers = [number for number in range(first, len(self.lengths_ns)) if number not in busy]
        return self._over(plain, numbers) if len(numbers) >= _FEWEST_BEHIND else None

    def _number(self, moment_ns: int) -> int:
        """The first of the program's own steps, by its place in `lengths_ns`, that begins behind this moment."""
        return bisect_right(self.ends_ns, moment_ns)

    def _over(self, plain: Path, numbers: Sequence[int]) -> float | None:
        """The median of these steps, over that of the same ones in a plain run, of whichever process."""
        same = [
            lengths[number]
            for path in plain.glob("*.json")
            for lengths in (json.loads(path.read_text("utf-8"))["steps_ns"],)
            for number in numbers
            if number < len(lengths)
        ]
        ours = [self.lengths_ns[number] for number in numbers]
        return statistics.median(ours) / statistics.median(same) if ours and same else None
