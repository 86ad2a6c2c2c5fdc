"""Which numbers entered a predicted saving, where do they come from, and what limited it?"""

from __future__ import annotations

import math

from perfdoctor.diagnosis.records import Found
from perfdoctor.metrics.program import basis_of
from perfdoctor.metrics.work.device_peaks import RateOrigin, origin
from perfdoctor.model.run import Run
from perfdoctor.records.derivations import Derivation, DerivedInput
from perfdoctor.records.findings import Value
from perfdoctor.vocabulary.basis import Basis
from perfdoctor.vocabulary.derivations import FormulaInput, plain, unit_of
from perfdoctor.vocabulary.rulebook import SET_BY_CALLER, SET_BY_USER, Threshold


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
    if described is None:
        return _threshold(name, found.rule.thresholds[name], basis_of(run))
    source = found.finding.sources.get(name, described.source)
    where = _origin(source, described, run)
    what = basis_of(run).numbers(described.what)
    value = _number(found.finding.values.get(name))
    return DerivedInput(name, value, unit_of(name), where.source, what, where.document)


def _threshold(name: str, threshold: Threshold, basis: Basis) -> DerivedInput:
    source = "option" if threshold.why in (SET_BY_USER, SET_BY_CALLER) else "rule"
    return DerivedInput(name, threshold.value, basis.prose(threshold.unit), source, basis.prose(threshold.why))


def _origin(source: str, described: FormulaInput, run: Run) -> RateOrigin:
    """The origin of a source: for a rate its document or how else it is known here, for a table the one it names."""
    if not described.rate or source not in ("machine", "data-sheet") or not run.places:
        return RateOrigin(source, described.document if source == "table" else "")
    return origin(run.places[0], described.rate, attained=source == "machine")


def _number(value: Value | None) -> float | None:
    return None if value is None or isinstance(value, str) or math.isnan(value) else float(value)
