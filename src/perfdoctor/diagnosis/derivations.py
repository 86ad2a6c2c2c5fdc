"""Which numbers entered a predicted saving, where do they come from, and what limited it?"""

from __future__ import annotations

import math

from perfdoctor.diagnosis.records import Found
from perfdoctor.metrics.program import basis_of
from perfdoctor.metrics.work.device_peaks import RateOrigin, origin
from perfdoctor.model.run import Run
from perfdoctor.records.savings import Derivation, DerivedInput
from perfdoctor.vocabulary.derivations import FormulaInput, plain, unit_of
from perfdoctor.vocabulary.rulebook import SET_BY_CALLER, SET_BY_USER


def derivation(found: Found, run: Run) -> Derivation | None:
    """How the saving of a finding was computed; None if it only informs, or if its rule has no formulas."""
    if found.rule.derivation is None or not (found.saving.expected.high or found.saving.ns.high):
        return None
    how = found.rule.derivation.of(found.finding.formula or found.finding.situation)
    return Derivation(
        plain(how.formula),
        plain(how.low),
        plain(how.high),
        basis_of(run).prose(how.source),
        tuple(_input(name, how.inputs.get(name), found, run) for name in how.names),
        found.saving.expected,
        found.saving.bounds,
    )


def _input(name: str, described: FormulaInput | None, found: Found, run: Run) -> DerivedInput:
    """The input of a formula: a value of the finding that its rule `described`, else a threshold of the rule."""
    basis = basis_of(run)
    if described is None:
        threshold = found.rule.thresholds[name]
        source = "option" if threshold.why in (SET_BY_USER, SET_BY_CALLER) else "rule"
        return DerivedInput(name, threshold.value, basis.prose(threshold.unit), source, basis.prose(threshold.why))
    source = found.finding.sources.get(name, described.source)
    where = RateOrigin(source, described.document if source == "table" else "")
    if described.rate and source in ("machine", "data-sheet") and run.places:
        where = origin(run.places[0], described.rate, attained=source == "machine")
    value = found.finding.values.get(name)
    number = None if value is None or isinstance(value, str) or math.isnan(value) else float(value)
    return DerivedInput(name, number, unit_of(name), where.source, basis.numbers(described.what), where.document)
