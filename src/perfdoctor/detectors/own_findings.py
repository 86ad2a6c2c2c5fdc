"""Does a finding of a rule that is not ours have what reports rely on? Tests check ours, and this module others."""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping
from typing import Any, get_args

import numpy as np
from msgspec.structs import replace

from perfdoctor.model.run import Run
from perfdoctor.model.steps import Confidence
from perfdoctor.records.findings import Evidence, Finding, Measure, Rows, Span, Value
from perfdoctor.records.savings import CASES, Saving
from perfdoctor.replay.edits.actions import WORK_SIGNALS
from perfdoctor.vocabulary.derivations import SOURCES
from perfdoctor.vocabulary.rulebook import Rule

_UNITS = ("ns", "bytes", "bytes_per_second", "count", "share")
#: A finding is read by people: longer texts are cut, and of a table the first rows are kept.
_LONGEST_TEXT, _MOST_ROWS, _MOST_EVIDENCE = 500, 50, 30


def checked(rule: Rule, finding: object, run: Run) -> Finding:
    """The same finding, its numbers as Python's own. ValueError or TypeError says what is wrong with it."""
    if not isinstance(finding, Finding):
        raise TypeError(f"it yields {type(finding).__name__}, and no Finding")
    if finding.rule != rule.id:
        raise ValueError(f"its finding is of the rule {finding.rule!r}, not {rule.id!r}")
    if finding.confidence not in get_args(Confidence):
        raise ValueError(f"its confidence is {finding.confidence!r}: it is high, medium or low")
    situations = {*rule.summaries, *rule.doubts, *(situation for fix in rule.fixes for situation in fix.situations)}
    if finding.situation and finding.situation not in situations:
        raise ValueError(f"its document knows no situation {finding.situation!r}")
    for source in finding.sources.values():
        if source not in SOURCES:
            raise ValueError(f"sources knows {', '.join(SOURCES)}, and not {source!r}")
    _check_work(finding, run, rule.action)
    return replace(
        finding,
        saving_ns_per_step=_saving(finding.saving_ns_per_step, run),
        values={_text(name): _value(name, value) for name, value in finding.values.items()},
        evidence=tuple(_evidence(each) for each in tuple(finding.evidence)[:_MOST_EVIDENCE]),
        symptom_of=_ids("symptom_of", finding.symptom_of),
        explains=_ids("explains", finding.explains),
        affected_ns=_whole("affected_ns", finding.affected_ns),
        bound_ns=None if finding.bound_ns is None else _whole("bound_ns", finding.bound_ns),
    )


def _saving(saving: object, run: Run) -> Saving:
    """The saving in whole ns, checked: ordered, and no longer than the step."""
    if not isinstance(saving, Saving):
        raise TypeError(f"saving_ns_per_step is {type(saving).__name__}, and no Saving")
    low, likely, high = (_whole(f"the {case} saving", getattr(saving, case)) for case in CASES)
    if not low <= likely <= high:
        raise ValueError(f"its saving is not ordered: low {low} ns, likely {likely} ns, high {high} ns")
    if likely > run.step_ns:
        raise ValueError(f"it saves {likely / 1e6:,.3f} of {run.step_ns / 1e6:,.3f} ms a step: it is in ns a step")
    return Saving(low, likely, min(high, max(run.step_ns, likely)))


def _whole(name: str, number: object) -> int:
    if isinstance(number, bool) or not isinstance(number, numbers.Real) or not math.isfinite(number) or number < 0:
        raise ValueError(f"{name} is {_shown(number)}: it is a number of ns, not below 0")
    return int(float(number)) if not isinstance(number, numbers.Integral) else int(number)


def _value(name: str, value: object) -> Value:
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real) and math.isfinite(value):
        return float(value)
    raise ValueError(f"the value {name} is {_shown(value)}: it is a finite number or a text")


def _text(text: object) -> str:
    if not isinstance(text, str):
        raise TypeError(f"{_shown(text)} is no text")
    return text if len(text) <= _LONGEST_TEXT else f"{text[: _LONGEST_TEXT - 1]}…"


def _shown(value: object) -> str:
    return repr(value)[:80]


def _evidence(evidence: object) -> Evidence:
    if isinstance(evidence, Measure):
        if evidence.unit not in _UNITS:
            raise ValueError(f"the unit of {evidence.label!r} is {evidence.unit!r}: it is one of {', '.join(_UNITS)}")
        return Measure(_text(evidence.label), float(_value(evidence.label, evidence.value)), evidence.unit)
    if isinstance(evidence, Span):
        times = (_whole(evidence.label, each) for each in (evidence.rank, evidence.start_ns, evidence.end_ns))
        return Span(_text(evidence.label), *times)
    if isinstance(evidence, Rows):
        return _rows(evidence)
    raise TypeError(f"evidence is a Measure, Rows or Span, and no {type(evidence).__name__}")


def _rows(table: Rows) -> Rows:
    columns, units, rows = tuple(table.columns), tuple(table.units), list(table.rows)[:_MOST_ROWS]
    if len(columns) != len(units) or any(len(row) != len(columns) for row in rows):
        raise ValueError(f"the table {table.label!r} has not as many units and values as columns")
    if unknown := [unit for unit in units if unit not in (*_UNITS, "text")]:
        raise ValueError(f"the unit of a column of {table.label!r} is {unknown[0]!r}")
    for row in rows:
        for value, unit in zip(row, units, strict=True):
            if isinstance(value, str) != (unit == "text"):
                raise ValueError(f"{_shown(value)} in {table.label!r} is not of the unit {unit}")
    kept = tuple(tuple(_value(table.label, value) for value in row) for row in rows)
    return Rows(_text(table.label), tuple(map(_text, columns)), units, kept)


def _check_work(finding: Finding, run: Run, action: str) -> None:
    """Check that `work` has one bool a row of the frames on which the rule's action acts, by rank and device."""
    signals = WORK_SIGNALS.get(action, ("kernels", "copies", "collectives"))
    places = {place.rank_and_device: place for place in run.places}
    for of_place in (finding.work, finding.changes):
        if unknown := [key for key in of_place if key not in places]:
            raise ValueError(f"it names work of {_shown(unknown[0])}, which is no (rank, device) of the run")
    for key, mask in finding.work.items():
        sizes = [len(getattr(places[key], signal)) for signal in signals]
        known = {*sizes, sum(sizes)} if action == "fused" else set(sizes)
        if not isinstance(mask, np.ndarray) or mask.dtype != np.bool_ or mask.ndim != 1 or mask.size not in known:
            raise ValueError(f"work of {key} is one bool for each of the place's {' or '.join(signals)}")
    if finding.waits is not None:
        raise ValueError("waits is for rules of perfdoctor")
    if not isinstance(finding.thread_time, Mapping):
        raise TypeError("thread_time is by rank")


def _ids(name: str, rules: Any) -> tuple[str, ...]:
    if isinstance(rules, str) or not all(isinstance(rule, str) for rule in rules):
        raise TypeError(f"{name} is a tuple of rules' ids")
    return tuple(rules)
