"""Is a step without loading what is left when all that brings batches is gone?"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from builders import draw, only_place
from graphs import FEW, graph, random_graphs, simulated_step
from hypothesis import given
from msgspec.structs import replace

from perfdoctor.model.timeline import UNKNOWN
from perfdoctor.replay.edits.batch_work import (
    batch_copies,
    brings_batch,
    loader_kernels,
    loader_nodes,
    loader_threads,
)
from perfdoctor.replay.edits.synthetic_data import without_loading
from perfdoctor.replay.graph.simulate import simulate

UNIT = 100_000
DALI = {"+": "void dali::kernels::warp::BatchWarp<float>(int)", "e": "nvjpeg::decode_kernel(int)"}


def units(drawn, *, paced=True):
    found = graph(drawn, paced=paced)
    changed = without_loading(found)
    assert simulated_step([changed]) == pytest.approx(simulate([changed]).step_ns)
    return simulate([found]).step_ns / UNIT, simulate([changed]).step_ns / UNIT


def test_no_wait_for_a_loader_and_none_of_its_work_in_the_training_s_thread():
    paced = draw(kernels="      GGG ", host=["      l   ", "iiiii     ", "o" * 10], repeat=8)
    assert units(paced) == (pytest.approx(10, rel=0.02), pytest.approx(5, rel=0.02))  # what the host does besides
    own = draw(kernels="      GGG ", host=["      l   ", "IIIII     ", "o" * 10], repeat=8)
    assert units(own, paced=False) == (pytest.approx(10, rel=0.02), pytest.approx(5, rel=0.02))


def test_no_copies_of_batches_and_their_calls_but_those_of_scalars():
    """Per step of ten: four of a batch, five of kernels, for which the host waits; and one of the loss."""
    drawn = draw(kernels="    GGGGG ", copies="hhhh     d", host=["clcssssss "], repeat=6)
    place = only_place(drawn)
    assert batch_copies(place).sum() == 6
    before, after = units(drawn)
    assert before == pytest.approx(10, rel=0.02)
    assert 5 <= after <= 6.2, "five of kernels, and what the host does beside asking for the batch"


def test_small_copies_and_those_of_the_optimizer_are_no_batch():
    copies = draw(kernels="G" * 200, copies="h" * 150 + " h" + " " * 48, repeat=4)
    place = only_place(copies)
    assert batch_copies(place)[place.work.is_h2d].tolist() == [True, False] * 4
    updated = draw(kernels="G" * 10, copies=" hhh  hhh ", host=["c l  l    ", "  u       ", "o" * 10], repeat=4)
    place = only_place(updated)
    asked = batch_copies(place)[place.work.is_h2d]
    assert asked.tolist() == [False, True] * 4


def test_copies_of_parameters_are_no_batch_also_where_their_calls_are_missing():
    """Three of each step's copies are for a layer, and one of their calls was lost; the fourth is the batch."""
    drawn = draw(
        kernels="G" * 14,
        copies=" hh hh hh hhhh",
        host=["l c  c      c ", "  p  p        ", "o" * 14],
        legend={"p": ("ranges", "FSDP::pre_forward (layer.1)")},
        repeat=4,
    )
    copies = drawn.copies
    linked = copies["correlation"].reshape(4, 4)
    linked[:, 3], linked[:, 2] = linked[:, 2], UNKNOWN  # the third call is the batch's
    copies = copies.with_columns(correlation=linked.ravel())
    place = only_place(replace(drawn, frames={**drawn.frames, "copies": copies}))
    assert batch_copies(place)[place.work.is_h2d].tolist() == [False, False, False, True] * 4


def test_kernels_of_data_libraries_go_and_what_they_held_up_starts_sooner():
    """The loader's kernel keeps the GPU from the training's next one, which was queued long before."""
    drawn = draw(
        kernels=["GGG   GGGG", "   +++    "],
        host={1: "l lsssssss", 2: " l        "},
        kernel_names=DALI,
        repeat=6,
    )
    place = only_place(drawn)
    assert loader_kernels(place).sum() == 6
    before, after = units(drawn)
    assert before == pytest.approx(10, rel=0.02)
    assert after == pytest.approx(7, rel=0.05)


def two_threads(beside: str = "GGGG    "):
    """A thread that copies and decodes; the training's thread waits for its event, and launches then."""
    return draw(
        kernels=["     " + beside, " " * 2 + "+++" + " " * 8],
        copies="hh" + " " * 11,
        host={2: "cl           ", 1: "    l        "},
        kernel_names=DALI,
        repeat=6,
    )


def test_threads_that_only_bring_batches_do_nothing_more():
    drawn = two_threads()
    place = only_place(drawn)
    assert loader_threads(place) == (2,)
    found = graph(drawn)
    calls = place.timeline.calls
    own = calls["thread"][found.call_row[loader_nodes(found)]]
    assert set(own.tolist()) == {2}
    changed = without_loading(found)
    assert (changed.duration_ns[loader_nodes(found)] == 0).all()
    on_loader = [
        (depends != -1) & loader_nodes(found)[np.maximum(depends, 0)] & ~loader_nodes(found)
        for depends in changed.depends
    ]
    assert not np.any(on_loader), "nothing waits for them"
    assert simulate([changed]).step_ns <= simulate([found]).step_ns


def test_a_thread_that_also_computes_is_no_loader():
    drawn = draw(kernels="  GGGG    ", copies="hh        ", host={1: "cl        ", 2: " "}, repeat=6)
    place = only_place(drawn)
    assert loader_threads(place) == ()
    assert brings_batch(place).sum() == 6


def test_kernels_beside_the_loader_s_go_as_fast_as_alone():
    """In every other step the loader runs beside the one kernel, which takes eight units then, and four alone."""
    drawn = draw(
        kernels=["GGGGGGGG  GGGG      ", "++++++++            "],
        host={1: ["lsssssss  lsss      ", "11111111112222222222"], 2: "l" + " " * 19},
        kernel_names=DALI,
        repeat=6,
        mark=None,
    )
    found = graph(drawn)
    slow, fast, fastest = (without_loading(found, case) for case in range(3))
    own = (found.kind == 2) & ~loader_kernels(found.place)[np.maximum(found.work_row, 0)]
    assert set(slow.duration_ns[own].tolist()) == {8 * UNIT, 4 * UNIT}
    assert set(fast.duration_ns[own].tolist()) == {4 * UNIT}
    assert fastest.duration_ns.tolist() == fast.duration_ns.tolist()
    slowed_down = int((slow.duration_ns[own] == 8 * UNIT).sum())
    won = simulate([slow]).step_ns - simulate([fast]).step_ns
    assert won == pytest.approx(4 * UNIT * slowed_down / found.units, rel=0.01)


@FEW
@given(random_graphs())
def test_without_loading_no_step_is_longer(found):
    changed = [without_loading(found, case) for case in range(3)]
    steps = [simulate([each]).step_ns for each in (found, *changed)]
    assert all(after <= before * (1 + 1e-9) for before, after in itertools.pairwise(steps))
    assert all((each.duration_ns <= found.duration_ns).all() for each in changed)


def test_a_training_that_loads_nothing_stays_as_it_was():
    found = graph(draw(kernels="GG GG eee ", host=["ll    l   ", "o" * 10], repeat=6))
    assert simulate([without_loading(found)]).step_ns == simulate([found]).step_ns
