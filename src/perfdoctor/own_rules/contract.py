"""Does a rule keep what every rule must? Its files as they are written, its test, and what it does in recordings."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from msgspec import Struct, to_builtins

from perfdoctor.errors import PerfdoctorError
from perfdoctor.metrics.accounting.prepare import prepare
from perfdoctor.model.timeline import Timeline
from perfdoctor.own_rules import detector_contract, document_contract, recordings
from perfdoctor.own_rules import notes as noting
from perfdoctor.own_rules.tried import SEEN_FILE, found_in, lines_in, off, tried
from perfdoctor.records.findings import Finding
from perfdoctor.system.toml_tables import parsed
from perfdoctor.vocabulary.own_rules import unusable
from perfdoctor.vocabulary.rulebook import Rule, load_rules

_TEST_SECONDS = 120
#: Of the output of a failing test its end says what failed. By its summary a line in full is a problem.
_LAST_LINES = 12
_UNCUT = {"COLUMNS": "400"}


class Speed(Struct, frozen=True):
    """How long a rule, and all rules of perfdoctor together, take for so many kernels, in seconds."""

    kernels: int
    seconds: float
    ours: float


class Checked(Struct, frozen=True):
    """`problems`: `slow_tokenizer.py: line 12: …`; the rule keeps the contract where there are none.

    `tried`: in how many recordings it was. `fired`, `silent`: in how many of those that its test has. `speed`: None
    where it was not measured.
    """

    rule: Rule
    problems: tuple[str, ...]
    tried: int = 0
    fired: int = 0
    silent: int = 0
    speed: Speed | None = None
    notes: tuple[str, ...] = ()


def check(rule: Rule, known: Mapping[str, Rule], real: Sequence[tuple[str, Timeline]] = ()) -> Checked:
    """Check one rule. `known`: all rules; `real`: recordings of the author's, by name, in which it is tried as well."""
    assert rule.origin is not None
    folder = Path(rule.origin.folder)
    if rule.broken:
        named = rule.broken.partition(": ")[0]
        return Checked(rule, tuple(f"{named}: {each}" for each in unusable(folder / named)) or (rule.broken,))
    document = folder / f"{rule.id.rpartition('/')[2]}.toml"
    source, test = folder / f"{rule.module}.py", folder / f"test_{rule.module}.py"
    text = document.read_text("utf-8")
    written = [
        *_in(document, document_contract.problems(parsed(text), rule, known, text)),
        *_in(source, detector_contract.problems(source, rule)),
    ]
    drawn = [*recordings.recordings(), *real]
    asked: dict[str, str] = {}
    watched = [(name, noting.watched(recording, folder, asked)) for name, recording in drawn]
    raised = [*_in(source, _in_recordings(rule, watched))]
    if raised:  # its test would say the same, and how fast it fails is of no interest
        return Checked(rule, (*written, *raised), len(drawn))
    lines, of_test, notes = _tested(test, document)
    speed = _speed(rule)
    behaves = (*_in(test, of_test), *_in(document, _agreeing(rule, lines)), *_in(source, _too_slow(speed)))
    fired = sum(bool(line["findings"]) for line in lines)
    silent = sum(not line["findings"] and not line["lacking"] for line in lines)
    notes += noting.of_signals(source, rule, asked)
    notes += (note for each in real for note in noting.of_recording(rule, *each))
    return Checked(rule, (*written, *behaves), len(drawn), fired, silent, speed, tuple(notes))


def _in(file: Path, problems: Iterator[str]) -> Iterator[str]:
    return (f"{file.name}: {problem}" for problem in problems)


def _in_recordings(rule: Rule, given: Sequence[tuple[str, Timeline]]) -> Iterator[str]:
    """What is wrong in the `given` recordings: it raises, differs the second time, or saves more than a step takes."""
    failed: dict[str, list[str]] = {}
    for name, recording in given:
        try:
            once, again = (tried(rule, recording) for _ in range(2))
        except Exception as error:  # noqa: BLE001 whatever its code raises
            failed.setdefault(error.what if isinstance(error, PerfdoctorError) else str(error), []).append(name)
            continue
        if list(map(_plain, once.findings)) != list(map(_plain, again.findings)):
            yield f"in a recording with {name} it does not find the same twice"
        saved, step_ns = sum(each.saving_ns_per_step.likely for each in once.findings), prepare(recording).step_ns
        if saved > step_ns:
            yield f"in a recording with {name} its findings save {saved} ns of a step of {step_ns} ns"
        formulas = (advice.derivation for advice in once.advice if advice.derivation)
        for text in (*once.amiss, *(text for formula in formulas for text in off(formula))):
            yield f"in a recording with {name}: {text}"
    for what, names in failed.items():
        yield f"in a recording with {names[0]}{f', and in {len(names) - 1} others' if names[1:] else ''}: {what}"


def _plain(finding: Finding) -> dict[str, Any]:
    return {
        "values": dict(finding.values), "saving": to_builtins(finding.saving_ns_per_step),
        "situation": finding.situation,
        "evidence": [to_builtins(each) for each in finding.evidence], "confidence": finding.confidence,
        "work": {key: mask.tobytes() for key, mask in finding.work.items()},
    }  # fmt: skip


def _tested(test: Path, document: Path) -> tuple[list[dict[str, Any]], Iterator[str], list[str]]:
    """What its test saw of the rule, what is wrong with the test, and why it was not run."""
    if not test.is_file():
        return [], iter(["there is none: draw a recording in which it fires, and one in which it must not"]), []
    if importlib.util.find_spec("pytest") is None:
        return (
            [],
            iter(()),
            [f"{test.name} was not run: pytest is not installed; pip install 'perfdoctor[rules]' brings it"],
        )
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "seen"
        environment = {**os.environ, SEEN_FILE: str(file), "PYTHONDONTWRITEBYTECODE": "1", **_UNCUT}
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", "addopts=", test.name]
        try:
            done = subprocess.run(
                command, cwd=test.parent, env=environment, capture_output=True, text=True, errors="replace",
                timeout=_TEST_SECONDS, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return [], iter([f"it takes more than {_TEST_SECONDS} s"]), []
        lines = lines_in(file, document)
    if done.returncode:
        return lines, iter([_failed(done.stdout, test.name)]), []
    return lines, _too_few(lines), []


def _failed(output: str, test: str) -> str:
    """Which tests of the file `test` fail and why, in one line, and below it the end of the `output`."""
    lines = output.strip().splitlines()
    summed_up = [line for line in lines if line.startswith(("FAILED ", "ERROR "))]
    why = "; ".join(line.partition(" ")[2].removeprefix(f"{test}::") for line in summed_up)
    above = [line for line in lines if line not in summed_up and not line.startswith("===")]
    return f"it fails: {why}" + "".join(f"\n    {line}" for line in above[-_LAST_LINES:])


def _too_few(lines: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    if not lines:
        yield "it never calls perfdoctor.rule_testing.findings with this rule"
        return
    if not any(line["findings"] for line in lines):
        yield "the rule finds something in none of its recordings"
    if not any(not line["findings"] and not line["lacking"] for line in lines):
        yield "the rule is silent in none of its recordings that have what it needs: draw one that only looks like it"


def _agreeing(rule: Rule, lines: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Where the findings of its test and the document disagree: values, savings, doubts, situations, formulas."""
    found = [finding for line in lines for finding in line["findings"]]
    if not found:
        return
    named = document_contract.named_values(rule)
    for name in sorted({name for finding in found for name in finding["values"]} - named):
        yield f"the value {name} of a finding is in no sentence, fix or formula"
    saves = any(finding["saves"] for finding in found)
    if saves and rule.derivation is None:
        yield "it saves time, and there is no [derivation] that says how that is computed"
    if rule.derivation is not None and not saves:
        yield "there is a [derivation], and no finding of its test saves time"
    if any(finding["confidence"] != "high" for finding in found) and not (rule.doubt or rule.doubts):
        yield "a finding is not of high confidence, and no `doubt` says why"
    for situation in sorted(set(rule.summaries) - {finding["situation"] for finding in found}):
        yield f"no recording of its test is of the situation {situation!r}"
    yield from sorted({text for line in lines for text in (*line["off"], *line["amiss"])})


def _speed(rule: Rule) -> Speed:
    recording = recordings.many_rows()
    return Speed(len(recording.kernels), _seconds(lambda: found_in(rule, prepare(recording))), _ours_seconds())


@cache
def _ours_seconds() -> float:
    """Seconds that all rules of perfdoctor take with many rows, measured once for all rules that are checked."""
    run = prepare(recordings.many_rows())
    return _seconds(lambda: [found_in(each, run) for each in load_rules().values()])


def _seconds(function: Callable[[], object]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def _too_slow(speed: Speed) -> Iterator[str]:
    if speed.seconds > speed.ours:
        yield (
            f"it takes {speed.seconds:.2g} s for {speed.kernels:,} kernels, all rules of perfdoctor "
            f"{speed.ours:.2g} s: ask columns, not rows"
        )
