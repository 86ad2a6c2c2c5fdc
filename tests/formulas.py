"""What does a formula of a derivation give? Evaluated by Python, beside the detector's own arithmetic."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping

from perfdoctor.records.findings import Advice
from perfdoctor.records.savings import Derivation

_SIGNS = str.maketrans({"×": "*", "÷": "/", "−": "-"})
_FUNCTIONS = {"min": min, "max": max}
_NODES = (
    ast.Expression, ast.BinOp, ast.Add, ast.Sub, ast.Mult, ast.Div, ast.Call, ast.Name, ast.Load, ast.Constant,
)  # fmt: skip
#: What a formula says that adds up single kernels, collectives or steps, of which a finding has only the sums.
OF_EACH = ("mean over", "sum over")


def is_of_each(formula: str) -> bool:
    return any(words in formula for words in OF_EACH)


def names_in(formula: str) -> set[str]:
    """The names in plain arithmetic. SyntaxError, or AssertionError, for what is none."""
    tree = ast.parse(formula.translate(_SIGNS), mode="eval")
    assert all(isinstance(node, _NODES) for node in ast.walk(tree)), f"no plain arithmetic: {formula}"
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)} - set(_FUNCTIONS)


def value_of(formula: str, values: Mapping[str, float]) -> float:
    assert names_in(formula) <= set(values), formula
    return float(eval(formula.translate(_SIGNS), {"__builtins__": {}}, {**_FUNCTIONS, **values}))


def missed(how: Derivation) -> dict[str, float | None]:
    """Inputs without a number, and by how many ns the formulas, which give ms, miss what the detector expects.

    To a µs, and a thousandth. Nothing of formulas `of each`.
    """
    unknown = {each.name: None for each in how.inputs if each.value is None}
    values = {each.name: each.value for each in how.inputs if each.value is not None}
    expected = {how.low: how.expected.low, how.formula: how.expected.likely, how.high: how.expected.high}
    plain = {formula: ns for formula, ns in expected.items() if not is_of_each(formula) and not unknown}
    off = {formula: abs(value_of(formula, values) * 1e6 - ns) for formula, ns in plain.items()}
    return {**unknown, **{formula: ns for formula, ns in off.items() if ns > 1_000 + 1e-3 * how.expected.high}}


def all_missed(findings: Iterable[Advice]) -> dict[str, dict[str, float | None]]:
    """Of all findings whose formulas miss anything, and of those that predict a saving without one."""
    found = {each.rule: _missed(each) for each in findings}
    return {rule: wrong for rule, wrong in found.items() if wrong}


def _missed(advice: Advice) -> dict[str, float | None]:
    if advice.derivation is None:
        return {"a derivation": None} if advice.saving_ns_per_step.high else {}
    return missed(advice.derivation)
