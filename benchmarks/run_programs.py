"""Is `perfdoctor run` right about programs of others? Small programs with real packages, on this machine's processor.

`make programs [PROGRAMS="hogwild notebook"] [ROUNDS=10]`. Each round runs a program alone, records it, and runs it alone
with each fault mended by hand (`--fix`). The program counts its own steps, says how long one takes, and how much of the
training passes in what comes every k steps; a comment marks its slow lines. Held against that are

* the steps: how many of the program's own end within each recorded one;
* the unrecorded step that the diagnosis reports, and what recorded steps and those behind the window take;
* the first finding: its rule, and the line that it names;
* what comes every k steps: its kind, share, period and line;
* each fix that a finding puts first: what it promises to leave of the step or the training, against what it leaves.

What is true of each program stands in `programs/programs.toml`; `planted` runs every_k_steps.py in all the ways that
stand there. The packages are whatever `PERFDOCTOR_PROGRAMS_PYTHON` has; a program without its packages is left out, and said.

Results are kept (`--results`): `--table` writes the section of docs/accuracy.md from them, and a later run replaces those of
the programs that it runs.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

import program_runs
from page_sections import with_section
from program_runs import Round
from program_scores import ASPECTS, Score, planted_name, state, state_planted, table

_ROOT = Path(__file__).parents[1]
_PAGE = _ROOT / "docs" / "accuracy.md"
_KEPT = _ROOT / ".cache" / "programs.json"
_BEGIN, _END = "<!-- programs -->", "<!-- end of programs -->"
_PLANTED = "planted"

#: A program that fails, hangs or prints nothing; a recording that is not there.
_FAILURES = (RuntimeError, OSError, ValueError, LookupError, subprocess.SubprocessError)
#: By the name of a program, or of a planted case.
Results = dict[str, list[Round]]


def _read(file: Path) -> Results:
    return msgspec.json.decode(file.read_bytes(), type=Results) if file.is_file() else {}


def _keep(file: Path, results: Results) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(msgspec.json.format(msgspec.json.encode(results)))


def _rounds(count: int, one: Callable[[], Round]) -> list[Round]:
    return [one() for _ in range(count)]


def _program(python: str, name: str, known: Mapping[str, Any], count: int) -> list[Round]:
    if missing := program_runs.has(python, known.get("packages", ())):
        print(f"\n{name}: left out, {missing} is not installed", flush=True)
        return []
    return _rounds(count, lambda: program_runs.one_round(python, name, known))


def _planted(python: str, case: Mapping[str, Any], count: int) -> list[Round]:
    given = (case["kind"], "--share", str(case["share"]), "--period", str(case["period"]), "--way", str(case["way"]))
    return _rounds(count, lambda: program_runs.one_round(python, "every_k_steps", {}, given))


def _write_table(results: Results, known: Mapping[str, Any], cases: Sequence[Mapping[str, Any]]) -> None:
    programs = {name: results[name] for name in known if name in results}
    planted = [(case, results[planted_name(case)]) for case in cases if planted_name(case) in results]
    part = list(table(programs, known, planted))
    _PAGE.write_text(with_section(_PAGE.read_text("utf-8"), part, _BEGIN, _END), "utf-8")


def main() -> None:
    known: dict[str, Any] = tomllib.loads((program_runs.FOLDER / "programs.toml").read_text("utf-8"))
    cases: list[dict[str, Any]] = known.pop(_PLANTED)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument(
        "programs", nargs="*", metavar="PROGRAM", help=f"of benchmarks/programs/, or {_PLANTED} (default: all)"
    )
    parser.add_argument(
        "--rounds", type=int, default=3, help="of each program, and one of each planted case (default: 3)"
    )
    parser.add_argument("--results", type=Path, default=_KEPT, metavar="FILE", help="default: %(default)s")
    parser.add_argument("--kind", action="append", default=[], help=f"of {_PLANTED}: only such cases; may be repeated")
    parser.add_argument("--table", action="store_true", help="run nothing; write the table of docs/accuracy.md")
    parser.add_argument("--again", action="store_true", help="run nothing; print what the results say")
    given = parser.parse_args()
    if unknown := set(given.programs) - {*known, _PLANTED}:
        parser.error(f"no such program: {', '.join(sorted(unknown))}")
    results = _read(given.results)
    if given.table:
        _write_table(results, known, cases)
        return
    python = os.environ.get("PERFDOCTOR_PROGRAMS_PYTHON") or os.environ.get("PERFDOCTOR_TORCH_PYTHON") or sys.executable
    if not given.again and program_runs.has(python, ()):
        parser.error(f"{python} has no torch: name another one in PERFDOCTOR_PROGRAMS_PYTHON")
    chosen, score = given.programs or [*known, _PLANTED], Score()

    def took(name: str, run: Callable[[], list[Round]]) -> list[Round]:
        """A program that fails is a result too; the others go on."""
        if given.again:
            return results.get(name, [])
        try:
            rounds = run()
        except _FAILURES as error:
            print(f"\n{name}: {error}\n  {score.hold('steps', name, False)}", flush=True)
            return []
        if rounds:
            results[name] = rounds
            _keep(given.results, results)
        return rounds

    for name in (name for name in chosen if name != _PLANTED):
        if rounds := took(name, lambda name=name: _program(python, name, known[name], given.rounds)):  # type: ignore[misc]
            print("", *state(name, known[name], rounds, score), sep="\n", flush=True)
    for case in cases if _PLANTED in chosen else ():
        if given.kind and case["kind"] not in given.kind:
            continue
        if rounds := took(planted_name(case), lambda case=case: _planted(python, case, 1)):  # type: ignore[misc]
            print(*state_planted(case, rounds, score), sep="\n", flush=True)
    _print(score)
    if not given.programs and not given.again:
        _write_table(results, known, cases)


def _print(score: Score) -> None:
    print()
    for aspect, title in {**ASPECTS, "planted": "planted, kind, share and line"}.items():
        right, whole = score.counts(aspect)
        if whole:
            print(f"{title}: {right} of {whole}. Wrong: {'; '.join(score.wrong.get(aspect, ())) or 'none'}")


if __name__ == "__main__":
    main()
