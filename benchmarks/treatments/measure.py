"""Does `perfdoctor treat` keep what helps, by as much as a person's own edit does, and nothing else?

```
python benchmarks/treatments/measure.py cases [NAME...] [--budget 300]    programs made slow, beside their mended twins
python benchmarks/treatments/measure.py harmful [--budget 1500]           twenty planted treatments, each wrong in its way
python benchmarks/treatments/measure.py same [--runs 20]                  a program against itself: how often is something kept?
python benchmarks/treatments/measure.py commands [--runs 100]             the same, each of them a whole command of its own
python benchmarks/treatments/measure.py ways [--runs 10]              runs that take turns against runs one behind the other
python benchmarks/treatments/measure.py simulated [--runs 300]            the same with drawn noise, and with effects of known size
```

`cases`: a program is diagnosed and treated as a user would, with nothing said about it. Beside the treatments its mended
twin runs in the same rounds, so that both intervals are of the same minutes. `harmful`: of each treatment the verdict is
known. `same`: races of one program against itself are dealt to a hundred sessions, in another order and with others on the
untreated side, and a keep is an error. `commands`: whole commands whose fix does nothing, one after the other. `ways`: of so many rounds, each of a program, the same once more and one that is
5 % slower, how much do the ratios differ, by either way, and what does a round cost? `simulated`: nothing is run; steps are drawn, with noise from run to run that is normal,
has rare long runs, or wanders. Results are added to `--results`.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import math
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

from perfdoctor.cli.treat import Asked, Treating
from perfdoctor.recording.race import Entry, run_race
from perfdoctor.recording.treated_run import TrialOrder, TrialProgram, TrialReport, run_trial
from perfdoctor.treatments import catalogue, evidence
from perfdoctor.treatments.catalogue import Treatment
from perfdoctor.treatments.choice import Arm, arms
from perfdoctor.treatments.records import TreatResult
from perfdoctor.treatments.session import Session
from perfdoctor.treatments.step_times import log_ratio

_HERE = Path(__file__).parent
_TWIN_ARM = Arm(catalogue.read(_HERE / "known")["twin"], {})
_PYTHON = os.environ.get("PERFDOCTOR_PROGRAMS_PYTHON") or os.environ.get("PERFDOCTOR_TORCH_PYTHON", sys.executable)
#: Of plain.py, whose step takes 3 ms of a core: a session would make as many.
_STEPS, _TURN = 700, 30
_TRUTH = {
    "slower": ("slower",), "wrong": ("changes the numbers",), "crash": ("failed",), "hang": ("failed",),
}  # fmt: skip


def _case(name: str, case: dict[str, Any], budget_s: float, into: Path) -> dict[str, Any]:
    os.chdir(_HERE)
    asked = Asked((_PYTHON, *case["slow"].split()), budget_s, (), (), None, False, {}, True, False, False, 1, False)
    treating = Treating(asked, catalogue.shipped(), into / name)
    (treating.folder / "trials").mkdir(parents=True)
    diagnosed, code = treating.diagnosed()
    if diagnosed is None:
        return {"failed": code}
    machine = treating.machine(diagnosed)
    chosen, _ = arms(treating.known, diagnosed.findings, machine)
    twin = TrialProgram((_PYTHON, *case["mended"].split()), dict(os.environ), _HERE)

    treating.entry = functools.partial(_entry, twin, treating.entry)  # type: ignore[method-assign]
    session = treating.session([_TWIN_ARM, *chosen], machine)
    session.go()
    result = session.result()
    (treating.folder / "treat.json").write_bytes(msgspec.json.encode(result))
    return {"found": [each.rule for each in diagnosed.findings], "wanted": case["fix"], "rows": _rows(result),
            "together": msgspec.to_builtins(result.together), "untreated_ms": result.untreated_ns / 1e6}  # fmt: skip


def _entry(twin: TrialProgram, original: Callable[..., Entry], given: Sequence[Arm], *rest: Any, **facts: Any) -> Entry:
    """A trial as ever; that of the twin is of another program."""
    entry = original(given, *rest, **facts)
    return msgspec.structs.replace(entry, program=twin) if _TWIN_ARM in given else entry


def _rows(result: TreatResult) -> list[dict[str, Any]]:
    return [
        {"fix": row.fix, "verdict": row.verdict, "why": row.why, "measured": msgspec.to_builtins(row.measured),
         "pairs": row.pairs, "loss": row.loss.verdict, "promised": msgspec.to_builtins(row.promised)}
        for row in result.rows
    ]  # fmt: skip


def _harmful(budget_s: float, into: Path, only: Sequence[str]) -> dict[str, Any]:
    os.chdir(_HERE)
    known = catalogue.read(_HERE / "harmful")
    names = tuple(name for name in known if not only or name in only)
    asked = Asked((_PYTHON, "plain.py"), budget_s, (), names, None, False, {}, True, False, False, 1, False)
    treating = Treating(asked, known, into / "harmful")
    (treating.folder / "trials").mkdir(parents=True)
    chosen, _ = arms(known, (), treating.machine(treating.diagnosed()[0]), fixes=names)  # type: ignore[arg-type]
    session = treating.session(chosen, treating.machine(treating.diagnosed()[0]))  # type: ignore[arg-type]
    session.go()
    result = session.result()
    (treating.folder / "treat.json").write_bytes(msgspec.json.encode(result))
    rows = _rows(result)
    right = [row["fix"] for row in rows if row["verdict"] in _TRUTH[row["fix"].split("_")[0]]]
    return {"right": len(right), "of": len(known), "left_out": list(result.left_out), "rows": rows}


def _same(count: int, into: Path) -> dict[str, Any]:
    """Run one program five times at once, so often, and deal these races to a hundred sessions of four treatments."""
    program = TrialProgram((_PYTHON, "plain.py"), dict(os.environ), _HERE)
    made = []
    for number in range(count):
        orders = [TrialOrder(n, end_after=_STEPS, limit_s=200) for n in range(5)]
        entries = [Entry(program, order, into / "same" / f"{number}-{order.number}") for order in orders]
        race = run_race(entries, steps=_TURN, seed=number)
        ratios = [round(log_ratio(each, race[0]), 4) for each in race[1:] if not each.why and not race[0].why]
        print(number, ratios, f"{race[0].others:.1f} cores used by others", flush=True)
        if not any(each.why for each in race):
            made.append(race)
    every = [log_ratio(race[n], race[m]) for race in made for n, m in itertools.combinations(range(len(race)), 2)]
    return {"races": len(made), "spread of a pair": statistics.stdev(every), **dealt(made, 100, 4)}


def _commands(count: int, budget_s: float, into: Path) -> dict[str, Any]:
    """Whole commands, as a user types them, whose fix does nothing: what do they say of it?"""
    verdicts, kept, seconds = [], 0, []
    for number in range(count):
        begun, folder = time.monotonic(), into / f"command-{number}"
        words = [
            "--treatments",
            str(_HERE / "known"),
            "--fix",
            "nothing",
            "--budget",
            f"{budget_s:g}s",
            "-o",
            str(folder),
        ]
        words += ["--seed", str(number)]
        subprocess.run(
            [sys.executable, "-m", "perfdoctor", "treat", *words, "--", _PYTHON, "plain.py"], cwd=_HERE, check=True,
            stdout=subprocess.DEVNULL,
        )  # fmt: skip
        rows = json.loads((folder / "treat.json").read_bytes())["rows"]
        seconds.append(time.monotonic() - begun)
        found = [row["verdict"] for row in rows]
        kept += "keep" in found
        verdicts += found
        print(
            number,
            [(row["verdict"], row["pairs"], row["measured"]) for row in rows],
            f"{seconds[-1]:.0f} s",
            flush=True,
        )
        shutil.rmtree(folder)
    return {"commands": count, "kept": kept, "verdicts": {each: verdicts.count(each) for each in set(verdicts)},
            "median seconds": statistics.median(seconds)}  # fmt: skip


def _ways(rounds: int, into: Path) -> dict[str, Any]:
    """The logarithms of the ratios of each round, by both ways in turn, and what follows from them."""
    program = TrialProgram((_PYTHON, "plain.py"), dict(os.environ), _HERE)
    slower = {"name": "five_percent", "file": str(_HERE / "known" / "five_percent.py"), "values": {}}
    orders = [
        TrialOrder(n, treatments, end_after=_STEPS, limit_s=200) for n, treatments in enumerate(((), (), (slower,)))
    ]
    found: dict[str, list[tuple[float, ...]]] = {"turns": [], "one behind the other": []}
    for number in range(rounds):
        entries = [Entry(program, order, into / "ways" / f"{number}-{order.number}") for order in orders]
        begun = time.monotonic()
        raced = run_race(entries, steps=_TURN, seed=number)
        found["turns"].append((*_ratios(raced), time.monotonic() - begun, raced[0].others))
        begun = time.monotonic()
        mixed = random.Random(number).sample(entries, len(entries))
        alone = {each.order.number: run_trial(program, each.order, into / f"{each.into.name}-alone") for each in mixed}
        ratios = _ratios([alone[n] for n in range(len(alone))])
        found["one behind the other"].append((*ratios, time.monotonic() - begun, alone[0].others))
        print(number, {way: [round(each, 4) for each in values[-1]] for way, values in found.items()}, flush=True)
    return {way: _of_way(values) for way, values in found.items()}


def _ratios(reports: Sequence[TrialReport]) -> tuple[float, float]:
    plain, same, slower = reports
    return log_ratio(same, plain), log_ratio(slower, plain)


def _of_way(rounds: Sequence[tuple[float, ...]]) -> dict[str, Any]:
    """Spread of a pair and bias, seconds and cores of others a round, and what the intervals of a session would say."""
    same, slower, seconds, others = zip(*rounds, strict=True)
    level = evidence.level(1)
    intervals = {name: evidence.change(values, level) for name, values in (("same", same), ("slower", slower))}
    return {
        "rounds": len(rounds), "seconds a round": statistics.mean(seconds), "others": statistics.mean(others),
        "spread of a pair": {"same": statistics.stdev(same), "slower": statistics.stdev(slower)},
        "mean": {"same": statistics.mean(same), "slower": statistics.mean(slower)},
        "intervals": {name: (each.low, each.high) for name, each in intervals.items() if each}, "ratios": rounds,
    }  # fmt: skip


def dealt(made: Sequence[Sequence[TrialReport]], sessions: int, treatments: int) -> dict[str, Any]:
    """How many of so many sessions keep something where every run is of the same program."""
    names = [f"nothing{n}" for n in range(treatments)]
    kept, verdicts = 0, []
    for number in range(sessions):
        drawn = random.Random(number)
        order = drawn.sample(range(len(made)), len(made))

        def races(
            many: Sequence[Sequence[Arm]], *, drawn: random.Random = drawn, order: list[int] = order, **_: Any
        ) -> list[TrialReport]:
            if not order:
                raise KeyboardInterrupt  # there are no more of them: it ends with what it knows
            reports = drawn.sample(made[order.pop()], len(many))
            return [
                msgspec.structs.replace(report, touched={arm.name: 1 for arm in arms})
                for arms, report in zip(many, reports, strict=True)
            ]

        chosen = [Arm(Treatment(name, "", "Nothing", ""), {}) for name in names]
        session = Session(
            lambda *_, **__: made[0][0], chosen, budget_s=1e9, cores=2, seed=number, races=races,
            most_at_once=lambda _: (1 + treatments, ""),
        )  # fmt: skip
        session.go()
        found = [row.verdict for row in session.result().rows]
        kept += "keep" in found
        verdicts += found
    return {"sessions": sessions, "kept": kept, "verdicts": {each: verdicts.count(each) for each in set(verdicts)}}


#: By their names: the noise of runs as a standard deviation, how many take up to twice as long, and how far the machine wanders
#: from run to run.
_NOISE = {"normal": (0.05, 0.0, 0.0), "rare long runs": (0.1, 0.1, 0.0), "wandering": (0.03, 0.0, 0.05)}
#: The step of each treatment over the untreated one.
_EFFECTS = {"nothing": (1.0,) * 4, "some": (0.7, 0.9, 1.15)}


def _simulated(sessions: int) -> dict[str, Any]:
    return {
        f"{effects}, {noise}": _drawn_sessions(
            sessions if effects == "nothing" else sessions // 5, factors, *_NOISE[noise]
        )
        for effects, factors in _EFFECTS.items()
        for noise in _NOISE
    }


def _drawn_sessions(
    sessions: int, factors: Sequence[float], noise: float, long: float, wandering: float
) -> dict[str, Any]:
    known = {f"times {factor} ({n})": factor for n, factor in enumerate(factors)}
    wrong, verdicts = 0, dict[str, int]()
    for number in range(sessions):
        drawn = random.Random(number)
        level = [0.0]

        def runs(
            given: Sequence[Arm], *, drawn: random.Random = drawn, level: list[float] = level, **_: Any
        ) -> TrialReport:
            level[0] += drawn.gauss(0, wandering)
            mean = 5e7 * math.exp(level[0]) * drawn.lognormvariate(0, noise)
            mean *= drawn.uniform(1.2, 2.0) if drawn.random() < long else 1.0
            mean *= math.prod(known[arm.name] for arm in given)
            lengths = tuple(round(mean * drawn.uniform(0.98, 1.02)) for _ in range(40))
            return TrialReport(lengths, wall_s=1.0, touched={arm.name: 1 for arm in given})

        session = Session(
            runs, [Arm(Treatment(name, "", "Drawn", ""), {}) for name in known], budget_s=1e9, cores=2, seed=number
        )
        session.go()
        rows = session.result().rows
        wrong += any(row.verdict == "keep" and known[row.fix] >= 1 for row in rows)
        for row in rows:
            key = f"{known[row.fix]}: {row.verdict}"
            verdicts[key] = verdicts.get(key, 0) + 1
    return {"sessions": sessions, "something kept wrongly": wrong, "verdicts": dict(sorted(verdicts.items()))}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("cases", "harmful", "same", "commands", "ways", "simulated"))
    parser.add_argument("names", nargs="*")
    parser.add_argument("--budget", type=float, default=300.0)
    parser.add_argument("--runs", type=int, default=120)
    parser.add_argument("--results", type=Path)
    given = parser.parse_args()
    os.environ.setdefault("PERFDOCTOR_HISTORY", "off")
    into = Path(tempfile.mkdtemp(prefix="perfdoctor-measure-"))
    begun = time.time()
    if given.what == "cases":
        cases = tomllib.loads((_HERE / "cases.toml").read_text("utf-8"))
        found = {name: _case(name, cases[name], given.budget, into) for name in given.names or cases}
    elif given.what == "harmful":
        found = {"harmful": _harmful(given.budget, into, given.names)}
    elif given.what == "simulated":
        found = {"simulated": _simulated(given.runs)}
    elif given.what == "commands":
        found = {"commands": _commands(given.runs, given.budget, into)}
    elif given.what == "ways":
        found = {"ways": _ways(given.runs, into)}
    else:
        found = {"same": _same(given.runs, into)}
    text = json.dumps({"seconds": round(time.time() - begun), **found}, indent=1)
    print(text)
    if given.results:
        with given.results.open("a", encoding="utf-8") as file:
            file.write(text + "\n")


if __name__ == "__main__":
    main()
