"""What does one rule find in one recording, and does what it says agree with its document?

`rules check` runs the tests of a rule in a process of their own, which writes down what they saw.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from perfdoctor.detectors import detector
from perfdoctor.diagnosis.engine import check_sentence, examine, missing
from perfdoctor.errors import PerfdoctorError
from perfdoctor.metrics.accounting.prepare import prepare
from perfdoctor.metrics.program import facts
from perfdoctor.model.run import Run
from perfdoctor.model.timeline import Timeline
from perfdoctor.records.findings import Advice, Finding
from perfdoctor.records.savings import Derivation
from perfdoctor.replay.edits.actions import WORK_SIGNALS, affected_ns
from perfdoctor.vocabulary.own_rules import read
from perfdoctor.vocabulary.rulebook import Rule, known

_SIGNS = str.maketrans({"×": "*", "÷": "/", "−": "-"})
_FUNCTIONS = {"min": min, "max": max}
_NODES = (
    ast.Expression, ast.BinOp, ast.Add, ast.Sub, ast.Mult, ast.Div, ast.Call, ast.Name, ast.Load, ast.Constant,
)  # fmt: skip
#: What a formula says that adds up single kernels, collectives or steps, of which a finding has only the sums.
OF_EACH = ("mean over", "sum over")
#: How far a formula may be from the saving that its finding states: it gives ms, of numbers that are whole ns.
_ROUNDED_NS, _ROUNDED_SHARE = 1_000, 1e-3
#: A finding's time is a sum of whole ns that was divided by steps and places.
_AS_GOOD_AS_ALL = 0.99
#: The environment variable that names the file into which tests of a rule write.
SEEN_FILE = "PERFDOCTOR_RULES_SEEN"


class Tried(Struct, frozen=True):
    """`findings`: as the detector made them, `advice`: as a report shows them. `lacking`: what was not recorded.

    `amiss`: why the saving of one is another than its author means.
    """

    lacking: tuple[str, ...]
    findings: tuple[Finding, ...]
    advice: tuple[Advice, ...]
    amiss: tuple[str, ...] = ()


def rule_at(document: Path) -> Rule:
    """The rule in this file. Raises PerfdoctorError if it cannot be used."""
    rule = read(document)
    if rule.broken:
        raise PerfdoctorError(f"the rule cannot be used: {rule.broken}", do="Mend the file.")
    return rule


def found_in(rule: Rule, recording: Timeline | Run, thresholds: Mapping[str, float] | None = None) -> list[Finding]:
    """What the detector finds, with sentences that have all their numbers. Raises what is wrong with the rule."""
    for name in thresholds or {}:
        known(name, rule.thresholds, f"threshold of {rule.id}")
    run = recording if isinstance(recording, Run) else prepare(recording)
    if missing(rule, run) or not rule.applies(facts(run)):
        return []
    findings = list(detector(rule)(run, {**rule.at, **(thresholds or {})}))
    for finding in findings:
        check_sentence(rule, finding, run)
    return findings


def tried(rule: Rule, recording: Timeline | Run, thresholds: Mapping[str, float] | None = None) -> Tried:
    """What the rule finds, as `found_in`, and the whole diagnosis with this rule alone."""
    run = recording if isinstance(recording, Run) else prepare(recording)
    findings = found_in(rule, run, thresholds)
    set_so = {name: replace(rule.thresholds[name], value=value) for name, value in (thresholds or {}).items()}
    diagnosis = examine(run, [replace(rule, thresholds={**rule.thresholds, **set_so})]).diagnosis
    failed = [outcome.error for outcome in diagnosis.outcomes if outcome.error]
    if failed:
        raise ValueError(failed[0])
    amiss = dict.fromkeys(text for finding in findings for text in _amiss(rule, finding, run))
    return Tried(missing(rule, run), tuple(findings), diagnosis.findings, tuple(amiss))


def _amiss(rule: Rule, finding: Finding, run: Run) -> Iterator[str]:
    """Why a replay of the step does not shorten what the finding is about: then its saving is another one.

    Half lines that begin with the finding. Only findings that save time are replayed.
    """
    if not finding.saving_ns_per_step.likely:
        return
    if not rule.action and finding.work:
        yield (
            f'its finding names {_signal(finding, run)}, and the document has no action = "{_signal(finding, run)}": '
            "without it no replay of the step limits the saving"
        )
    elif rule.action in WORK_SIGNALS and not finding.work and not finding.changes:
        all_ns = affected_ns(rule.action, replace(finding, affected_ns=0), run)
        about_ns = finding.affected_ns or finding.saving_ns_per_step.high
        if about_ns < _AS_GOOD_AS_ALL * all_ns:
            yield (
                f"its finding is about {about_ns / 1e6:.3g} ms and names no rows: a replay shortens all "
                f"{' and '.join(WORK_SIGNALS[rule.action])}, {all_ns / 1e6:.3g} ms a step. Give it "
                "work={place.rank_and_device: rows for each place}, or take action out of the document"
            )


def _signal(finding: Finding, run: Run) -> str:
    """The signal whose rows the masks of the finding fit; kernels where they fit several."""
    sizes = {place.rank_and_device: place for place in run.places}
    fitting = (
        signal
        for signal in ("kernels", "copies", "collectives")
        if all(mask.size == len(getattr(sizes[key], signal)) for key, mask in finding.work.items())
    )
    return next(fitting, "kernels")


def names_in(formula: str) -> set[str]:
    """The names in plain arithmetic. Raises ValueError for what is none."""
    try:
        tree = ast.parse(formula.translate(_SIGNS), mode="eval")
    except SyntaxError as error:
        raise ValueError(f"{formula} is no arithmetic") from error
    if not all(isinstance(node, _NODES) for node in ast.walk(tree)):
        raise ValueError(f"{formula} is no plain arithmetic")
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)} - set(_FUNCTIONS)


def value_of(formula: str, values: Mapping[str, float]) -> float:
    """The value of a formula. Raises ValueError for what is no plain arithmetic, KeyError for a name without value."""
    if unknown := names_in(formula) - set(values):
        raise KeyError(*sorted(unknown))
    given: dict[str, Any] = {**_FUNCTIONS, **values}
    return float(eval(formula.translate(_SIGNS), {"__builtins__": {}}, given))  # noqa: S307 arithmetic alone, as checked


def off(how: Derivation) -> Iterator[str]:
    """Where the formulas of the document give another saving than the detector, or lack one of their numbers."""
    values = {each.name: each.value for each in how.inputs if each.value is not None}
    for each in how.inputs:
        if each.value is None:
            yield f"its formula needs {each.name}, which the finding's values have not"
    cases = (("low", how.low), ("formula", how.formula), ("high", how.high))
    for (case, formula), stated in zip(cases, (how.expected.low, how.expected.likely, how.expected.high), strict=True):
        try:
            if any(words in formula for words in OF_EACH) or names_in(formula) - set(values):
                continue
            gives = value_of(formula, values) * 1e6
        except (ValueError, ArithmeticError, TypeError) as error:
            yield f"{case} = {formula} cannot be computed: {error}"
            continue
        if abs(gives - stated) > _ROUNDED_NS + _ROUNDED_SHARE * how.expected.high:
            yield f"{case} = {formula} gives {gives / 1e6:.4g} ms, and the finding states {stated / 1e6:.4g} ms"


def line_of(document: Path, found: Tried) -> dict[str, Any]:
    """What the rule of this document found in one recording, as one line of JSON."""
    listed = [*found.advice, *(symptom for advice in found.advice for symptom in advice.symptoms)]
    return {
        "document": str(document.resolve()),
        "lacking": list(found.lacking),
        "findings": [
            {
                "values": sorted(finding.values),
                "situation": finding.situation,
                "formula": finding.formula,
                "confidence": finding.confidence,
                "saves": finding.saving_ns_per_step.high > 0,
            }
            for finding in found.findings
        ],
        "amiss": list(found.amiss),
        "off": sorted({text for advice in listed if advice.derivation for text in off(advice.derivation)}),
    }


def lines_in(file: Path, document: Path) -> list[dict[str, Any]]:
    """The lines that a test wrote into `file` about the rule of this document."""
    lines = [json.loads(line) for line in file.read_text("utf-8").splitlines()] if file.is_file() else []
    return [line for line in lines if line["document"] == str(document.resolve())]
