"""Without a GPU the training thread's ops are those of the backward pass, of the optimizer, and others."""

from __future__ import annotations

from builders import draw, only_place

from perfdoctor.metrics.accounting.split import compute_by_phase, split

LEGEND = {
    "b": ("ops", "autograd::engine::evaluate_function: AddmmBackward0"),
    "a": ("ops", "aten::addmm"),
    "O": ("ranges", "Optimizer.step#Adam.step"),
}


def test_the_phases_add_up_to_what_the_ops_take():
    drawn = draw(host=["aaaa  bbb aa", " " * 9 + "OOO"], legend=LEGEND, repeat=5, unit_us=100)
    place = only_place(drawn)
    phases = compute_by_phase(place)
    steps = place.units
    assert phases == {"other": 4 * 100_000 * steps, "backward": 3 * 100_000 * steps, "optimizer": 2 * 100_000 * steps}
    assert sum(phases.values()) == split(place).compute_ns


def test_with_a_gpu_there_are_none():
    assert compute_by_phase(only_place(draw(kernels="#" * 10, host=["l" + " " * 9], repeat=5))) == {}
