"""Is what comes once told from what comes again: loading a kernel, capturing a graph, a child process? A unit is 10 µs."""

from __future__ import annotations

import pytest
from builders import draw, idle_units, only_place

#: `L` is a launch that may be drawn as long as one likes.
LONG = {"c": ("calls", "cudaLaunchKernel")}


def causes(length: int, kernels: str = "S", **more: object) -> dict[str, float]:
    """A launch of so many units that starts `kernels`, then twelve of one unit each that start a kernel of two."""
    picture = {
        "kernels": "e" + " " * (length + 1) + kernels + "  + #" * 12,
        "host": "l" + " " + "c" * length + " " + "  l  " * 12,
        "legend": LONG,
        "unit_us": 10,
        **more,
    }
    return idle_units(only_place(draw(**picture)), 10)


@pytest.mark.parametrize("length", [60, 1_000, 100_000])
def test_a_first_launch_far_longer_than_its_like_is_loading(length):
    assert causes(length)["compilation"] == pytest.approx(length, abs=1)


def test_a_launch_somewhat_longer_than_its_like_is_a_launch():
    assert "compilation" not in causes(40)


def test_a_long_launch_of_a_kernel_that_ran_before_is_loading_only_where_no_launch_takes_that_long():
    assert "compilation" not in causes(900, kernels="e")
    assert causes(1_000, kernels="e")["compilation"] == pytest.approx(1_000, abs=1)


def test_where_all_launches_are_slow_none_of_them_loads():
    kernels, host = "e" + (" " * 61 + "S") * 3, ("c" * 60 + "  ") * 4
    assert "compilation" not in idle_units(only_place(draw(kernels=kernels, host=host, legend=LONG, unit_us=10)), 10)


def captured(inside: str) -> dict[str, float]:
    host = ["l" + " " * 30 + "l", "  B" + inside + "E"]
    legend = {
        "B": ("calls", "hipStreamBeginCapture"),
        "E": ("calls", "hipStreamEndCapture"),
        "n": ("calls", "hipLaunchKernel"),
    }
    return idle_units(only_place(draw(kernels="##" + " " * 30 + "##", host=host, legend=legend, unit_us=10)), 10)


def test_from_the_begin_of_a_capture_to_its_end_nothing_is_launched():
    assert captured("n n n n n n n n n n ")["compilation"] == pytest.approx(22, abs=1)


@pytest.mark.parametrize(("first", "storage"), [("pipe2", 0), ("mmap", 22)])
def test_what_a_child_process_writes_is_no_file(first, storage):
    host = ["l" + " " * 30 + "l", "  p" + "R" * 22 + "W"]
    legend = {"p": ("os_calls", first), "W": ("os_calls", "waitpid")}
    found = idle_units(only_place(draw(kernels="##" + " " * 30 + "##", host=host, legend=legend, unit_us=100)), 100)
    assert found.get("storage", 0) == storage


def test_files_that_a_training_writes_between_the_start_of_its_workers_and_their_end_are_files():
    legend = {"p": ("os_calls", "fork"), "W": ("os_calls", "waitpid")}
    host = ["l" + " " * 27 + "l  l", "  p" + "R" * 22 + " " * 6 + "W"]
    drawn = draw(kernels="##" + " " * 27 + "#  #", host=host, legend=legend, unit_us=100)
    assert idle_units(only_place(drawn), 100)["storage"] == 22
