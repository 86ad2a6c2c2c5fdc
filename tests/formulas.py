"""What does a formula of a derivation give? Evaluated by Python, beside the detector's own arithmetic."""

from __future__ import annotations

import ast
from collections.abc import Mapping

from perfdoctor.records.derivations import Derivation

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


def off_by_ns(how: Derivation) -> dict[str, float]:
    """By how much the formulas, which give ms, miss what the detector expects; nothing of those `of each`."""
    values = {each.name: each.value for each in how.inputs if each.value is not None}
    cases = {"low": (how.low, how.expected.low), "likely": (how.formula, how.expected.likely)}
    cases["high"] = how.high, how.expected.high
    return {
        case: abs(value_of(formula, values) * 1e6 - expected)
        for case, (formula, expected) in cases.items()
        if not is_of_each(formula)
    }
