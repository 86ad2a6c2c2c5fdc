"""What treatments are made of: constructors whose arguments are corrected, once or by several of them."""

from __future__ import annotations

import importlib.util

import pytest

from perfdoctor.recording.tools.torch_profiler import AGENT

_SPEC = importlib.util.spec_from_file_location("treating", AGENT / "perfdoctor_agent" / "treating.py")
treating = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(treating)


def made_anew():
    class Optimizer:
        def __init__(self, parameters, *, fused=None, foreach=None):
            if fused == "refused":
                raise RuntimeError("fused is refused")
            self.given = (parameters, fused, foreach)

    return Optimizer


def setting(**arguments):
    def change(given):
        if all(given[name] == value for name, value in arguments.items()):
            return False
        given.update(arguments)
        return True

    return change


def test_two_treatments_of_one_constructor_are_both_made():
    kind, one, other = made_anew(), treating.Given(None, {}), treating.Given(None, {})
    one.construct(kind, setting(foreach=True))
    assert other.takes(kind, "fused")
    other.construct(kind, setting(fused=True))
    assert kind([1]).given == ([1], True, True)
    assert (one.touched, other.touched) == (1, 1)


def test_what_is_set_already_is_not_touched():
    kind, given = made_anew(), treating.Given(None, {})
    given.construct(kind, setting(fused=True))
    assert kind([1], fused=True).given == ([1], True, None)
    assert given.touched == 0


def test_a_dry_treatment_counts_and_changes_nothing():
    kind, given = made_anew(), treating.Given(None, {}, is_dry=True)
    given.construct(kind, setting(fused=True))
    assert kind([1]).given == ([1], None, None)
    assert given.touched == 1


def test_a_refused_argument_falls_back_to_the_program_s_own():
    kind, given = made_anew(), treating.Given(None, {})
    given.construct(kind, setting(fused="refused"), falls_back=True)
    assert kind([1]).given == ([1], None, None)
    assert given.touched == 0


def test_the_program_s_own_mistake_is_its_own_error():
    kind, given = made_anew(), treating.Given(None, {})
    given.construct(kind, setting(fused=True), falls_back=True)
    with pytest.raises(TypeError, match="unknown"):
        kind([1], unknown=2)
