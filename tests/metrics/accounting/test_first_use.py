"""What comes once, and what comes again: loading a kernel, capturing a graph, a child process. A unit is 10 µs."""

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


def test_where_each_kernel_is_launched_once_all_of_them_may_be_loading():
    kernels, host = "e" + " " * 61 + "S" + " " * 61 + "#", ("c" * 60 + "  ") * 3
    drawn = draw(kernels=kernels, host=host, legend=LONG, unit_us=10)
    assert idle_units(only_place(drawn), 10)["compilation"] == pytest.approx(120, abs=2)


def first_op(before: int, later: int) -> dict[str, float]:
    """An op that runs so many units before it first launches, then three times so many; a unit is 100 µs."""
    picture = "e" + " " * (before + 2) + "S" + (" " * (later + 4) + "S") * 3
    host = [
        "l " + " " * before + " l" + (" " * (later + 4) + "l") * 3,
        "  " + "o" * before + "  " + ("    " + "o" * later + " ") * 3,
    ]
    return idle_units(only_place(draw(kernels=picture, host=host, legend={"o": ("ops", "aten::conv2d")}, unit_us=100)))


def test_an_op_that_takes_long_before_it_first_launches_opens_a_library():
    found = first_op(before=200, later=2)
    assert found["compilation"] == pytest.approx(200, abs=2)
    assert found.get("host_work", 0) <= 10


def test_an_op_that_takes_as_long_each_time_is_work_of_the_host():
    found = first_op(before=200, later=100)
    assert "compilation" not in found
    assert found["host_work"] > 400


def begun_while_busy(launch: int) -> dict[str, float]:
    """A kernel of 31 units, and behind its launch one of so many units; then twelve launches as they usually are."""
    kernels = "#" * 31 + " " * max(launch - 27, 3) + "S" + "  + #" * 12
    host = "l  " + "c" * launch + " " * max(32 - launch, 2) + "  l  " * 12
    return idle_units(only_place(draw(kernels=kernels, host=host, legend=LONG, unit_us=10)), 10)


def test_a_launch_that_began_while_the_device_was_busy_and_was_still_loading_when_it_had_run_dry_is_loading():
    assert begun_while_busy(launch=200)["compilation"] == pytest.approx(172, abs=2)


def test_a_launch_that_loads_beside_a_busy_device_costs_nothing():
    assert "compilation" not in begun_while_busy(launch=25)


def test_where_all_launches_are_slow_none_of_them_loads():
    kernels, host = "e" + (" " * 61 + "S") * 3, ("c" * 60 + "  ") * 4
    assert "compilation" not in idle_units(only_place(draw(kernels=kernels, host=host, legend=LONG, unit_us=10)), 10)


@pytest.mark.parametrize(("call", "before", "loads"), [
    ("cudaFuncGetAttributes", "", True),
    ("cudaFuncGetAttributes", "f", False),
    ("cudaEventSynchronize", "", False),
    ("cudaMemcpyAsync", "", False),
    ("cudaMalloc", "", False),
])  # fmt: skip
def test_the_first_of_other_calls_loads_too_unless_it_has_something_to_wait_for(call, before, loads):
    """20 ms between two kernels; `before`: the same call, short, ahead of it."""
    drawn = draw(
        kernels="##" + " " * 2_010 + "##  " * 4,
        host=["l" + " " * 2_008 + "l   " * 4, "  " + before.ljust(2) + "f" * 2_000],
        legend={"f": ("calls", call)},
        unit_us=10,
    )
    assert (idle_units(only_place(drawn), 10).get("compilation", 0) > 1_000) is loads


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


COMPILER = {"p": ("os_calls", "pipe2"), "W": ("os_calls", "waitpid"), "m": ("calls", "cuModuleLoadData")}


def compiled(calls: str, system: str) -> dict[str, float]:
    picture = {"kernels": "##" + " " * 30 + "GG", "host": [calls, system], "legend": COMPILER, "unit_us": 1000}
    return idle_units(only_place(draw(**picture)), 1000)


def test_until_what_another_process_made_is_loaded_code_is_compiled():
    """A source is hashed and compiled; all that is from the launch before to the load of the result."""
    found = compiled("l" + " " * 29 + "m l", "  " + "R" * 6 + "  p  RRRR W")
    assert found["compilation"] == 29
    assert "storage" not in found


def test_another_process_whose_result_is_not_loaded_is_no_compiler():
    assert "compilation" not in compiled("l" + " " * 31 + "l", "  " + "R" * 6 + "  p  RRRR W")
    only_loaded = compiled("l" + " " * 29 + "m l", "  " + "R" * 6)
    assert only_loaded["compilation"] == 1
    assert only_loaded["storage"] == 6
    assert compiled("l" + " " * 20 + "q" + " " * 8 + "m l", "   p  RRRR W")["compilation"] == 1, "a call between them"
