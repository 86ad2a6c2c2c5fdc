"""Iterations of a server: by its own ranges, or by the CUDA graphs that it replays."""

from __future__ import annotations

import pytest
from builders import draw, only_place

from perfdoctor.diagnosis.engine import diagnose
from perfdoctor.metrics.accounting.prepare import prepare
from perfdoctor.metrics.program import basis_of
from perfdoctor.report.words import wording
from perfdoctor.views.build import views
from perfdoctor.vocabulary.basis import ITERATION

STEP_NS = 10_000_000


def served(name: str, repeat: int = 6, **more):
    """Iterations of 10 ms, of which the device is busy for 6; a range of that name around the host's part of each."""
    legend = {"r": ("ranges", name), "z": ("ranges", "gpu_model_runner: sample")}
    return draw(
        kernels="  " + "#" * 6 + "  ",
        host=["rrrrrrrr  ", " l   zz   "],
        legend=legend,
        repeat=repeat,
        mark=None,
        unit_us=1000,
        **more,
    )


@pytest.mark.parametrize(
    "name",
    [
        "execute_8192_context_9(sq8155sk8430sqsq7475785)_generation_37(sq37sk3)",
        "execute_context_1(888_788544)_generation_0(0)",
        "execute_new_0_cached_37",
        "step[DECODE bs=32]",
        "execute_model",
        "gpu_model_runner: forward",
        "decode",
    ],
)
def test_the_ranges_of_a_server_are_its_iterations(name):
    run = prepare(served(name))
    (place,) = run.places
    assert (place.steps.found_by, place.steps.used) == ("user-range", 5)
    assert place.steps.durations_ns.tolist() == [STEP_NS] * 5
    assert (basis_of(run).noun, basis_of(run).serves) == (ITERATION.noun, True)


def test_they_are_called_iterations_wherever_they_are_shown():
    diagnosis = diagnose(served("step[DECODE bs=32]"), [])
    assert "1 iteration at the edge of the recording left out: only partly recorded." in diagnosis.notes
    assert wording.bar_heading(diagnosis) == "One iteration, 10.0 ms"
    shown = views(prepare(served("step[DECODE bs=32]")), diagnosis).timeline
    assert shown is not None
    assert [track.title for track in shown.tracks if track.kind == "step"] == ["iterations"]


def test_of_one_or_two_it_is_not_known_where_they_begin_on_the_device():
    """A server schedules the next iteration while the one before still runs."""
    for repeat in (1, 2):
        assert only_place(served("step[DECODE bs=32]", repeat)).steps.used == 0


def test_ranges_inside_an_iteration_are_none():
    assert only_place(served("gpu_model_runner: preprocess")).steps.used == 0


def replayed(kernels: str, copies: str = "", host: str = "@   @   c ", repeat: int = 8):
    """Graphs that are recorded as a whole, and the copy of the sampled tokens behind them."""
    return only_place(draw(kernels=kernels, copies=copies, host=[host], repeat=repeat, mark=None, unit_us=1000)).steps


def test_graphs_with_a_copy_between_them_are_iterations():
    steps = replayed("@         ", copies=" " * 7 + "D  ", host="@     c   ")
    assert (steps.found_by, steps.confidence, steps.used) == ("periodicity", "low", 7)
    assert steps.durations_ns.tolist() == [STEP_NS] * 7


def test_of_several_graphs_without_a_copy_between_them_one_begins_an_iteration():
    """A server that captures each layer, or the two halves of a model, replays several."""
    steps = replayed("@@@ @@@   ", copies=" " * 8 + "D ", host="@@@ @@@ c ")
    assert steps.durations_ns.tolist() == [STEP_NS] * 7


def test_graphs_without_any_copy_are_no_iterations():
    assert replayed("@         ", host="@         ").used == 0


def test_a_graph_that_is_little_of_the_work_is_no_iteration():
    assert replayed("@ ######  ", copies=" " * 9 + "D", host="@ l    c  ").used == 0
