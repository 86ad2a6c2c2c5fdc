"""In which function of the user's own code was work launched?"""

from __future__ import annotations

from builders import timeline

from perfdoctor.metrics.accounting.prepare import prepare
from perfdoctor.metrics.host.own_code import own_function, own_functions
from perfdoctor.model.launches import launches
from perfdoctor.model.timeline import UNKNOWN


def functions_and_ops(correlation: int = 1, **more):
    return timeline(
        kernels=[{"start_ns": 500, "end_ns": 600, "name": "k", "correlation": correlation}],
        calls=[{"start_ns": 30, "end_ns": 31, "name": "cudaLaunchKernel", "correlation": 1, **more}],
        ops=[
            {"start_ns": 10, "end_ns": 60, "name": "aten::linear"},
            {"start_ns": 20, "end_ns": 50, "name": "aten::addmm"},
        ],
        functions=[
            {"start_ns": 0, "end_ns": 400, "name": "train.py(3): train"},
            {"start_ns": 5, "end_ns": 70, "name": "model.py(9): forward"},
            {"start_ns": 6, "end_ns": 69, "name": "torch/nn/modules/linear.py(130): forward"},
        ],
    )


def names(drawn):
    """The innermost op and own function around the launch."""
    (place,) = prepare(drawn).places
    launched = launches(place)
    (op,), (line,) = launched.enclosing("ops"), own_function(launched)
    return (
        drawn.ops.name[op] if op != UNKNOWN else "",
        own_functions(drawn, 0).rows.name[line] if line != UNKNOWN else "",
    )


def test_a_launch_belongs_to_the_innermost_op_and_own_function():
    assert names(functions_and_ops()) == ("aten::addmm", "model.py(9): forward")


def test_a_thread_without_functions_works_for_the_one_that_waits():
    assert names(functions_and_ops(thread=2, start_ns=200, end_ns=201)) == ("", "train.py(3): train")


def test_what_was_launched_before_the_recording_belongs_to_nothing():
    assert names(functions_and_ops(correlation=2)) == ("", "")


def test_only_functions_of_the_users_own_are_lines():
    own, library = "train.py(10): train", "torch/nn/modules/linear.py(90): forward"
    agent = "/opt/lib/perfdoctor_agent/ranges.py(77): around"
    every = (library, own, agent, "logging/__init__.py(1720): getEffectiveLevel", "<built-in method add>")
    drawn = timeline(
        functions=[{"start_ns": 10 * n, "end_ns": 10 * n + 5, "name": name} for n, name in enumerate(every)]
    )
    found = own_functions(drawn, 0)
    assert (list(found.rows.name), found.numbers.tolist()) == ([own], [1])
    assert own_functions(drawn, 0) is found


def test_where_no_own_function_was_recorded_none_is_found():
    (place,) = prepare(timeline(kernels=[{"start_ns": 5, "end_ns": 6, "name": "k"}])).places
    assert own_function(launches(place)).tolist() == [UNKNOWN]
