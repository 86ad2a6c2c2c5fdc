"""Is `perfdoctor run` right about programs of others? Small programs with real packages, on this machine's processor.

`make programs [PROGRAMS="hogwild notebook"] [ROUNDS=10]`. Each round runs a program alone, records it, and runs it alone
with each fault mended by hand (`--fix`). The program counts its own steps and says how long one takes; held against that are

* the steps: how many of the program's own end within each recorded one;
* the unrecorded step that the diagnosis reports;
* the first finding, in every round the same or "no clear limit";
* each fix that a finding puts first: what it promises to leave of the step, against what it leaves.

What is true of each program stands in `programs/programs.toml`. The packages are whatever `PERFDOCTOR_PROGRAMS_PYTHON` has;
a program without its packages is left out, and said.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_ROOT = Path(__file__).parents[1]
_FOLDER = _ROOT / "benchmarks" / "programs"
_LENGTH = re.compile(r"^a step takes ([\d.]+) ms$", re.MULTILINE)
_STEP = re.compile(r"ProfilerStep#\d+")
#: A length that differs by more from the program's own is wrong, unless the program differs as much from itself.
_CLOSE = 0.05


@dataclass(frozen=True)
class Promise:
    """What one finding says its first fix leaves of the step: shares, at least, likely, at most."""

    rule: str
    fix: str
    confidence: str
    left: tuple[float, float, float]


@dataclass
class Round:
    """One round with one program. Times in ms a step."""

    alone: float
    first: str
    steps_in_each: list[int]
    unrecorded: float | None
    promises: list[Promise]
    fixed: dict[str, float] = field(default_factory=dict)


# --- to run ---


def _command(python: str, name: str, known: Mapping[str, Any], fix: str = "") -> list[str]:
    ranks = known.get("ranks", 1)
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)) if ranks > 1 else ()
    return [python, *launcher, str(_FOLDER / f"{name}.py"), *(("--fix", fix) if fix else ())]


def _run(command: Sequence[str], **environment: str) -> str:
    done = subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True, check=False, timeout=900
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}\n{(done.stdout + done.stderr)[-2000:]}")
    return done.stdout


def _alone_ms(command: Sequence[str]) -> float:
    """The step as the program prints it; of several processes that train, the mean.

    torch 2.13 sometimes aborts at the end of a program of several ranks, with gloo: then it is run once more.
    """
    try:
        printed = _run(command)
    except RuntimeError as error:
        print(f"  once more: {str(error).splitlines()[0]}")
        printed = _run(command)
    return statistics.mean(float(each) for each in _LENGTH.findall(printed))


def _perfdoctor(*arguments: str, **environment: str) -> None:
    code = f"import sys; sys.path.insert(0, {str(_ROOT / 'src')!r}); from perfdoctor.cli.main import main; main()"
    _run([sys.executable, "-c", code, *arguments], **environment)


def _round(python: str, name: str, known: Mapping[str, Any], scratch: Path) -> Round:
    beats = scratch / "beats"
    beats.mkdir()
    alone = _alone_ms(_command(python, name, known))
    file = scratch / "diagnosis.json"
    _perfdoctor(
        *("run", "--quiet", "--no-html", "--passes", "torch", "-o", str(scratch / "run"), "--json", str(file), "--"),
        *_command(python, name, known),
        PROGRAM_BEATS=str(beats),
    )
    diagnosis = json.loads(file.read_text("utf-8"))
    fixed = {fix["name"]: _alone_ms(_command(python, name, known, fix["name"])) for fix in known.get("fix", ())}
    return Round(
        alone,
        _first(diagnosis),
        _steps_in_each(scratch / "run", beats),
        _unrecorded_ms(diagnosis),
        [_promise(finding, diagnosis) for finding in diagnosis["findings"] if finding["saving_ns_per_step"]["likely"]],
        fixed,
    )


# --- what the diagnosis says ---


def _first(diagnosis: Mapping[str, Any]) -> str:
    if diagnosis["contenders"]:
        return "none"
    worth = [each["rule"] for each in diagnosis["findings"] if each["saving_ns_per_step"]["high"]]
    return worth[0] if worth else "none"


def _unrecorded_ms(diagnosis: Mapping[str, Any]) -> float | None:
    found = diagnosis["run"]["steps"].get("unrecorded_ns")
    return found / 1e6 if found else None


def _promise(finding: Mapping[str, Any], diagnosis: Mapping[str, Any]) -> Promise:
    step_ns = statistics.mean(each["step_ns"] for each in diagnosis["time"])
    saving = finding["saving_ns_per_step"]
    least, likely, most = (1 - saving[case] / step_ns for case in ("high", "likely", "low"))
    fixes = finding["fixes"]
    return Promise(finding["rule"], fixes[0]["title"] if fixes else "", finding["confidence"], (least, likely, most))


def _steps_in_each(run: Path, beats: Path) -> list[int]:
    """How many of the program's own steps end within each recorded one, by torch's trace alone."""
    trace = json.loads(gzip.decompress(min(run.glob("torch/*rank0.pt.trace.json.gz")).read_bytes()))
    origin_ns = int(trace.get("baseTimeNanoseconds", 0))
    steps = sorted(
        (event["ts"], event["ts"] + event["dur"], event["pid"])
        for event in trace["traceEvents"]
        if event.get("cat") == "user_annotation" and _STEP.fullmatch(str(event.get("name")))
    )
    ends = [int(line) for line in (beats / f"{steps[0][2]}.txt").read_text().split()]
    borders = [origin_ns + round(start * 1000) for start, _, _ in steps] + [origin_ns + round(steps[-1][1] * 1000)]
    return [bisect_right(ends, b) - bisect_right(ends, a) for a, b in pairwise(borders)]


# --- to hold one against the other ---


def _spread(values: Sequence[float]) -> float:
    return (max(values) - min(values)) / 2 / statistics.median(values)


@dataclass
class Score:
    """What held, of what was held against the truth."""

    right: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def hold(self, what: str, good: bool) -> str:
        (self.right if good else self.wrong).append(what)
        return "holds" if good else "WRONG"


def _state(name: str, known: Mapping[str, Any], rounds: Sequence[Round], score: Score) -> None:
    alone = [each.alone for each in rounds]
    print(f"\n{name}: {statistics.median(alone):.2f} ms a step alone (± {100 * _spread(alone):.0f} % against itself)")
    _state_steps(name, rounds, score)
    firsts = [each.first for each in rounds]
    true = set(firsts) <= {*known["first"], "none"} and len({*firsts} - {"none"}) <= 1
    true &= "none" in known["first"] or firsts.count("none") < len(firsts)
    print(
        f"  first: {', '.join(f'{n} x {firsts.count(n)}' for n in dict.fromkeys(firsts))}: {score.hold(f'{name} first', true)}"
    )
    for fix in known.get("fix", ()):
        _state_fix(name, fix, rounds, score)


def _state_steps(name: str, rounds: Sequence[Round], score: Score) -> None:
    counts = [count for each in rounds for count in each.steps_in_each]
    # A border may lie a moment before or behind the program's own: the sum over a window says whether one is one.
    good = all(abs(sum(each.steps_in_each) - len(each.steps_in_each)) <= 1 for each in rounds)
    print(f"  own steps in a recorded one: {statistics.mean(counts):.2f}: {score.hold(f'{name} steps', good)}")
    ratios = [each.unrecorded / each.alone for each in rounds if each.unrecorded]
    if not ratios:
        print(f"  unrecorded step: not reported: {score.hold(f'{name} length', False)}")
        return
    off = statistics.median(ratios) - 1
    noise = _spread([each.alone for each in rounds])
    close = abs(off) <= max(_CLOSE, noise)
    print(
        f"  unrecorded step as reported: {100 * off:+.1f} % against the program: {score.hold(f'{name} length', close)}"
    )


def _state_fix(name: str, fix: Mapping[str, str], rounds: Sequence[Round], score: Score) -> None:
    what = f"{name} {fix['name']}"
    left = [each.fixed[fix["name"]] / each.alone for each in rounds]
    measured, noise = statistics.median(left), _spread(left)
    advised = [
        promise
        for each in rounds
        for promise in each.promises
        if promise.rule == fix["rule"] and fix.get("title", "") in promise.fix.lower()
    ]
    said = f"  --fix {fix['name']}: {measured:.3f} of the step is left (± {100 * noise:.0f} %)"
    if not advised:
        print(f"{said}; not advised")
        return
    least, likely, most = (statistics.median(each.left[case] for each in advised) for case in range(3))
    sure = any(each.confidence != "low" for each in advised)
    inside = least - max(noise, _CLOSE) <= measured <= most + max(noise, _CLOSE)
    print(
        f"{said}; promised in {len(advised)} of {len(rounds)}: {likely:.3f} ({least:.3f} to {most:.3f}), "
        f"{advised[0].confidence}: {score.hold(what, inside)}"
    )
    if sure:
        print(f"    no slower: {score.hold(f'{what} no slower', measured <= 1 + max(noise, _CLOSE))}")


def _missing(python: str, packages: Sequence[str]) -> str:
    """The first of `packages` that this Python does not have."""
    code = "import sys, importlib.util as u; print(next((p for p in sys.argv[1:] if u.find_spec(p) is None), ''))"
    return _run([python, "-c", code, "torch", *packages]).strip()


def _rounds(python: str, name: str, known: Mapping[str, Any], count: int) -> list[Round]:
    rounds = []
    for _ in range(count):
        with tempfile.TemporaryDirectory() as scratch:
            rounds.append(_round(python, name, known, Path(scratch)))
    return rounds


def main() -> None:
    known: dict[str, Any] = tomllib.loads((_FOLDER / "programs.toml").read_text("utf-8"))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("programs", nargs="*", metavar="PROGRAM", help="of benchmarks/programs/ (default: all)")
    parser.add_argument("--rounds", type=int, default=3, help="of each program (default: 3)")
    given = parser.parse_args()
    if unknown := set(given.programs) - set(known):
        parser.error(f"no such program: {', '.join(sorted(unknown))}")
    python = os.environ.get("PERFDOCTOR_PROGRAMS_PYTHON") or os.environ.get("PERFDOCTOR_TORCH_PYTHON") or sys.executable
    score = Score()
    for name in given.programs or known:
        if missing := _missing(python, known[name].get("packages", ())):
            print(f"\n{name}: left out, {missing} is not installed")
            continue
        _state(name, known[name], _rounds(python, name, known[name], given.rounds), score)
    print(
        f"\n{len(score.right)} of {len(score.right) + len(score.wrong)} hold. Wrong: {', '.join(score.wrong) or 'none'}"
    )


if __name__ == "__main__":
    main()
