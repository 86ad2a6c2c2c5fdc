"""Does this code diagnose as that code does? Two checkouts read the same recordings; what they say must be the same.

    python benchmarks/same_diagnosis.py OLD NEW                     all recordings, each read once by either side
    python benchmarks/same_diagnosis.py OLD NEW --planted           and all faults that can be planted, and their twins
    python benchmarks/same_diagnosis.py OLD NEW --only 'nsys/*'     some of them
    python benchmarks/same_diagnosis.py OLD NEW --keep DIR          keep answers: later runs ask the old side only what changed

A diagnosis is its JSON report, or the error that refuses the recording. Numbers, ids, statuses, keys and order must be
equal, to the nanosecond: one line each where they are not, and exit code 1. Words may be said better: they are counted,
and listed with --words; where a sentence holds other numbers than before, it is listed always. Each pair of sentences is
listed once. What was renamed on purpose stands in a file for --renamed: `[keys]`, `[values]` and `[patterns]`, each `old = "new"`.

Each side is a process of its own; they take turns recording by recording, so that a busy machine slows both. Times are
of the processor, from the first byte read to the report's last; times that were kept are those of the earlier run.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from itertools import count
from pathlib import Path
from typing import Any

from differences import Difference, Renamed, differences, renamed
from labels import recordings
from pairs import public

_WORKER = Path(__file__).parent / "one_side.py"
#: Asked of every recording of fixtures/, beside the plain diagnosis.
_ALSO_ASKED = (
    {"what_if": "batch=2x"},
    {"what_if": "ranks=16@50GB/s"},
    {"what_if": "synthetic-data"},
    {"steps": "2..3"},
)
_PLANTED_SHARE = 0.1
#: Digits of a name: files of which only these differ are the ranks of one job.
_NUMBERS = re.compile(r"\d+")
_LONGEST_VALUE = 60


@dataclass(frozen=True)
class Case:
    """What is read, and what is asked of it in the words of the command line. `group`: for the table of times."""

    name: str
    group: str
    paths: tuple[Path, ...]
    what_if: str = ""
    steps: str = ""

    def files(self) -> list[Path]:
        return [
            file
            for path in self.paths
            for file in (sorted(path.rglob("*")) if path.is_dir() else [path])
            if file.is_file()
        ]


@dataclass(frozen=True)
class Answer:
    """A report, or what was raised instead, and the seconds of processor time that it took."""

    said: dict[str, Any]
    cpu_s: float


# --- what is asked ---------------------------------------------------------------------------------------------------


def recording_cases(folder: Path) -> Iterator[Case]:
    """Every file under the folder, and every folder that holds the ranks of one job."""
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_file() or _holds_ranks(path):
            yield Case(name, name.split("/")[0], (path,))


def _holds_ranks(path: Path) -> bool:
    names = [each.name for each in path.iterdir() if each.is_file()] if path.is_dir() else []
    return len(names) > 1 and len({_NUMBERS.sub("#", name) for name in names}) == 1


def fixture_cases(checkout: Path) -> Iterator[Case]:
    """Every recording of the checkout's fixtures/, as it is, of another size and in part."""
    for form in ("nsys", "torch"):
        for path in sorted((checkout / "fixtures").glob(f"*/{form}")):
            name = path.relative_to(checkout).as_posix()
            yield Case(name, f"fixtures {form}", (path,))
            for asked in _ALSO_ASKED:
                yield Case(f"{name} {' '.join(asked.values())}", "fixtures asked", (path,), **asked)


def asked_cases(folder: Path) -> Iterator[Case]:
    """The questions of pairs.toml."""
    for each in public():
        asked = ", ".join(each["fixed"])
        yield Case(f"{each['path']} {asked}", "recordings asked", (folder / each["path"],), asked)


def planted_cases(folder: Path) -> Iterator[Case]:
    """Every fault by itself, and every healthy training that looks faulty, in both forms; written where they are not yet."""
    import faults  # noqa: PLC0415  needs numpy and a while, for this alone

    plant = faults.plant
    trainings = [({rule: _PLANTED_SHARE}, fault.fewest_ranks, "") for rule, fault in sorted(plant.FAULTS.items())]
    trainings += [({}, 1, twin) for twin in sorted(plant.TWINS)]
    for shares, ranks, twin in trainings:
        own = folder / (twin or next(iter(shares)))
        if not own.is_dir():
            own.mkdir(parents=True)
            machines = plant.faulty(shares, ranks, 1, twin).machines
            plant.write_nsys(machines, own / "nsys")
            plant.write_kineto(machines, own / "kineto")
        for form in faults.FORMS:
            yield Case(f"planted/{own.name}/{form}", f"planted {form}", tuple(plant.paths(own / form)))


def all_cases(old: Path, folder: Path | None, planted: Path | None) -> Iterator[Case]:
    if folder is not None:
        yield from recording_cases(folder)
        yield from asked_cases(folder)
    yield from fixture_cases(old)
    if planted is not None:
        yield from planted_cases(planted)


# --- who answers -----------------------------------------------------------------------------------------------------


class Side:
    """One checkout's code, in a process of its own that answers until it is closed."""

    def __init__(self, checkout: Path, answers: Path) -> None:
        self.checkout, self.answers = checkout.resolve(), answers
        self._process: subprocess.Popen[str] | None = None

    def ask(self, case: Case) -> Answer:
        """What this code says to the case now."""
        self._process = self._process or self._started()
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        to = self.answers / "last.json"
        question = {"paths": [str(path) for path in case.paths], "to": str(to)}
        asked = {"what_if": case.what_if, "steps": case.steps}
        print(json.dumps({**question, **asked}), file=self._process.stdin, flush=True)
        taken_s = self._process.stdout.readline()
        if taken_s:
            return Answer(json.loads(to.read_text("utf-8")), float(taken_s))
        code = self.close()
        if code == 1:  # it says why on standard error
            sys.exit(f"the code of {self.checkout} cannot be asked")
        return Answer({"raised": {"type": f"its process ended with {code}", "error": ""}}, 0.0)

    def _started(self) -> subprocess.Popen[str]:
        own = self.checkout / ".venv" / "bin" / "python"
        self.answers.mkdir(parents=True, exist_ok=True)
        return subprocess.Popen(
            [own if own.exists() else sys.executable, _WORKER],
            env={**os.environ, "PYTHONPATH": str(self.checkout / "src"), "PYTHONSAFEPATH": "1", "PYTHONHASHSEED": "0"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def close(self) -> int:
        """The exit code; 0 where it never ran."""
        process, self._process = self._process, None
        if process is None:
            return 0
        process.communicate()
        return process.returncode


class Kept:
    """Answers of one side, on disk. They hold as long as its code, the recording's bytes and the question are the same."""

    def __init__(self, side: Side, *, is_trusted: bool) -> None:
        self.side, self._is_trusted = side, is_trusted
        code = [*(side.checkout / "src").rglob("*.py"), *(side.checkout / "rules").rglob("*.toml")]
        self._code = _digest(sorted(code))

    def known(self, case: Case) -> Answer | None:
        file = self._file(case)
        if not self._is_trusted or not file.exists():
            return None
        kept = json.loads(file.read_text("utf-8"))
        return Answer(kept["said"], kept["cpu_s"]) if kept["of"] == self._of(case) else None

    def ask(self, case: Case) -> Answer:
        """Ask now, and keep the answer."""
        answer, file = self.side.ask(case), self._file(case)
        file.parent.mkdir(parents=True, exist_ok=True)
        kept = {"of": self._of(case), "cpu_s": answer.cpu_s, "said": answer.said}
        file.write_text(json.dumps(kept, indent=1), "utf-8")
        return answer

    def _file(self, case: Case) -> Path:
        return self.side.answers / f"{re.sub(r'[^A-Za-z0-9./_=-]+', '_', case.name)}.json"

    def _of(self, case: Case) -> str:
        return f"{self._code} {_digest(case.files())} {case.what_if} {case.steps}"


def _digest(files: Sequence[Path]) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for file in files:
        digest.update(file.name.encode() + b"\0")
        digest.update(file.read_bytes())
    return digest.hexdigest()


def answered(cases: Sequence[Case], old: Kept, new: Kept) -> Iterator[tuple[Case, Answer, Answer]]:
    """Both answers to every case. The sides take turns in who is first, and warm up on the smallest case of a group."""
    groups: dict[str, list[Case]] = defaultdict(list)
    for case in cases:
        groups[case.group].append(case)
    turns = count()
    for group in groups.values():
        asked = [(case, old.known(case)) for case in group]
        smallest = min(group, key=lambda case: sum(file.stat().st_size for file in case.files()))
        for side in (new, *(() if all(known for _, known in asked) else (old,))):
            side.side.ask(smallest)
        for case, known in asked:
            if known is None and next(turns) % 2:
                known = old.ask(case)  # noqa: PLW2901
            ours = new.ask(case)
            yield case, known or old.ask(case), ours


# --- what comes out --------------------------------------------------------------------------------------------------


def line(case: Case, found: Difference) -> str:
    """One line, values shortened. Long ones are shown around where they begin to differ."""
    old, new = str(found.old), str(found.new)
    same = next((at for at, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), 0)
    begin = max(same - _LONGEST_VALUE // 3, 0)
    said = (
        ("…" if begin else "") + text[begin : begin + _LONGEST_VALUE] + ("…" if text[begin + _LONGEST_VALUE :] else "")
        for text in (old, new)
    )
    mark = "" if found.kind == "number" else f"({found.kind}) "
    return f"{case.name}: {mark}{found.key.removeprefix('report.')}: {' → '.join(said)}".replace("\n", "↵")


def table_of_times(times: dict[str, list[tuple[float, float]]]) -> Iterator[str]:
    yield f"{'recordings':20s} {'number':>6s} {'old s':>8s} {'new s':>8s} {'new ÷ old':>10s}"
    whole = [each for group in times.values() for each in group]
    for group, pairs in (*times.items(), ("all", whole)):
        old, new = (sum(pair[side] for pair in pairs) for side in (0, 1))
        ratio = f"{new / old:10.3f}" if old else f"{'–':>10s}"
        yield f"{group:20s} {len(pairs):6d} {old:8.2f} {new:8.2f} {ratio}"


def compare(cases: Sequence[Case], old: Kept, new: Kept, names: Renamed, *, shows_words: bool) -> int:
    """Print what differs and how long it took; the number of numbers that differ."""
    counts: dict[str, int] = defaultdict(int)
    differing: set[str] = set()
    listed: set[tuple[str, str]] = set()
    times: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for case, one, other in answered(cases, old, new):
        for found in differences(one.said, other.said, names):
            counts[found.kind] += 1
            if found.kind == "number":
                differing.add(case.name)
            elif (pair := (str(found.old), str(found.new))) in listed or (found.kind == "words" and not shows_words):
                continue
            else:
                listed.add(pair)
            print(line(case, found), flush=True)
        times[case.group].append((one.cpu_s, other.cpu_s))
    words = counts["words"] + counts["numbers in words"]
    print(f"\nDiagnoses: {len(cases)}. Numbers differ: {counts['number']}, in {len(differing)} of them.", end=" ")
    print(f"Words differ: {words}, of which {counts['numbers in words']} name other numbers.\n")
    print(*table_of_times(times), sep="\n")
    return counts["number"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("old", type=Path, metavar="OLD_CHECKOUT")
    parser.add_argument("new", type=Path, metavar="NEW_CHECKOUT")
    parser.add_argument("--recordings", type=Path, default=recordings(), help="default: PERFDOCTOR_RECORDINGS")
    parser.add_argument("--renamed", type=Path, help="what was renamed on purpose, as TOML")
    parser.add_argument("--planted", action="store_true", help="plant every fault and compare what is found")
    parser.add_argument("--only", action="append", default=[], metavar="GLOB", help="only cases of such a name")
    parser.add_argument("--words", action="store_true", help="list words that differ, too")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep answers and planted recordings here")
    parser.add_argument("--fresh", action="store_true", help="ask the old side again, for its times")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = asked.keep or Path(scratch)
        cases = list(all_cases(asked.old.resolve(), asked.recordings, folder / "planted" if asked.planted else None))
        cases = [case for case in cases if not asked.only or any(fnmatch(case.name, each) for each in asked.only)]
        old = Kept(Side(asked.old, folder / "old"), is_trusted=not asked.fresh)
        new = Kept(Side(asked.new, folder / "new"), is_trusted=False)
        try:
            names = renamed(asked.renamed) if asked.renamed else Renamed()
            differing = compare(cases, old, new, names, shows_words=asked.words)
        finally:
            old.side.close(), new.side.close()
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
