"""What passes before the first step, by kind. A unit is 1 ms."""

from __future__ import annotations

import pytest
from builders import draw

from perfdoctor.metrics.accounting.prepare import prepare
from perfdoctor.metrics.accounting.start import before_first_step, start_kinds
from perfdoctor.model.run import Run, Selection


def started(name: str, signal: str = "functions", **more: object) -> Run:
    """60 ms of something, 20 ms in which nothing was recorded of the host, and six steps."""
    marks = "".join(str(step) * 10 for step in range(6))
    drawn = draw(
        kernels=" " * 80 + " #####    " * 6,
        host=["n" * 60 + " " * 20 + "l         " * 6, " " * 80 + marks],
        legend={"n": (signal, name)},
        unit_us=1000,
    )
    return prepare(drawn, Selection(**more)) if more else prepare(drawn)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("<frozen importlib._bootstrap>(1165): _find_and_load", "imports"),
        ("torch/nn/init.py(554): kaiming_uniform_", "weights"),
        ("site-packages/transformers/modeling_utils.py(3600): from_pretrained", "weights"),
        ("torch/nn/modules/module.py(1330): to", "moves"),
        ("torch/utils/data/dataloader.py(1101): __init__", "workers"),
        ("torch/_inductor/compile_fx.py(1): compile_fx", "compiling"),
    ],
)
def test_each_kind_is_known_by_the_functions_that_do_it(name, kind):
    (place,) = before_first_step(started(name)).places
    found = {each: pieces.total_ns for each, pieces in start_kinds(place).items() if pieces}
    assert found[kind] == pytest.approx(60e6, abs=1e6)
    assert sum(found.values()) == place.window_ns


def test_of_chosen_steps_and_ranges_nothing_is_said_of_the_start():
    assert before_first_step(started("train.py(3): main", steps=(2, 3))) is None
    assert before_first_step(started("train.py(3): main", range_name="ProfilerStep#3")) is None
