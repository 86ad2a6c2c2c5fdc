"""Prefill and decoding, by the ranges of servers and the work that was launched in them."""

from __future__ import annotations

import pytest
from builders import draw
from tables import of_each

from perfdoctor.diagnosis.engine import diagnose
from perfdoctor.metrics.accounting.prepare import prepare
from perfdoctor.metrics.program import Phase, phases
from perfdoctor.vocabulary.names.serving import phase


@of_each(
    ("name", "is_phase"),
    [
        ("execute_8192_context_9(sq8155sk8430)_generation_37(sq37sk3)", "mixed"),
        ("execute_context_1(888_788544)_generation_0(0)", "prefill"),
        ("execute_32_context_0(sq0sk0sqsq0sqsk0)_generation_32(sq32sk32785)", "decode"),
        ("execute_new_2_cached_37", "mixed"),
        ("execute_new_2_cached_0", "prefill"),
        ("execute_new_0_cached_37", ""),
        ("step[DECODE bs=32]", "decode"),
        ("step[EXTEND bs=2 toks=900]", "prefill"),
        ("step[MIXED bs=2]", "mixed"),
        ("step[IDLE]", ""),
        ("execute_model", ""),
        ("decoder layer", ""),
    ],
)
def test_a_range_says_what_its_iteration_does(name, is_phase):
    assert phase(name) == is_phase


def served():
    """Each of six times: a prefill with 6 ms of work, which ends while decoding is launched already, and 2 ms of that."""
    legend = {"p": ("ranges", "step[EXTEND bs=2]"), "d": ("ranges", "step[DECODE bs=32]")}
    return draw(
        kernels=" ######++ ", host=["pppp", "l", "    dddd", "    l"], legend=legend, repeat=6, mark=None, unit_us=1000
    )


def test_work_belongs_to_the_range_in_which_it_was_launched():
    assert phases(prepare(served())) == (Phase("prefill", 6, 0.75), Phase("decode", 6, 0.25))


def test_the_notes_say_it():
    note = next(note for note in diagnose(served(), []).notes if "busy time" in note)
    assert note == (
        "Of the GPU's busy time in the server's iterations 75 % is prefill (6 iterations) and 25 % is decoding "
        "(6 iterations)."
    )


@pytest.mark.parametrize("name", ["forward", "execute_model"])
def test_where_no_range_says_it_nothing_is_said(name):
    assert phases(prepare(draw(kernels="##", host=["rr", "l"], legend={"r": ("ranges", name)}, repeat=6))) == ()
