"""Steps of 100 µs with two matmuls: of a file that ends among its launches those are judged that are there whole."""

import json

import pytest
from kineto_traces import read_text

from perfdoctor.diagnosis.engine import diagnose
from perfdoctor.metrics.accounting.lost_launches import lost_launches
from perfdoctor.metrics.accounting.prepare import prepare
from perfdoctor.report.words.wording import verdict
from perfdoctor.vocabulary.sentences import LOST_LAUNCHES

STEPS = 8


def host(step: int, *, marked: bool = True) -> list[dict[str, object]]:
    begin = 1000 + 100 * step
    ops = [{"cat": "cpu_op", "name": "aten::mm", "ts": begin + at, "dur": 20} for at in (10, 50)]
    marks = [{"cat": "user_annotation", "name": f"ProfilerStep#{step}", "ts": begin, "dur": 100}] * marked
    return [{"ph": "X", "pid": 1, "tid": 1} | each for each in marks + ops]


def device(step: int) -> list[dict[str, object]]:
    """The launches of a step, with their kernels: the device runs 30 µs behind the host."""
    events: list[dict[str, object]] = []
    for number, at in enumerate((15, 55)):
        begin, args = 1000 + 100 * step + at, {"correlation": 2 * step + number + 1}
        call = {
            "cat": "cuda_runtime",
            "name": "cudaLaunchKernel",
            "ts": begin,
            "dur": 5,
            "pid": 1,
            "tid": 1,
            "args": args,
        }
        kernel = {"cat": "kernel", "name": "sgemm", "ts": begin + 30, "dur": 25, "pid": 0, "tid": 7}
        events += [{"ph": "X"} | call, {"ph": "X"} | kernel | {"args": args | {"device": 0, "stream": 7}}]
    return events


def trace(present: list[int], *, whole: bool = False, marked: bool = True, half: int | None = None):
    """What is read of a file whose launches are those of these steps, in this order; of `half` only the first."""
    events = [event for step in range(STEPS) for event in host(step, marked=marked)]
    events += [event for step in present for event in device(step)[: 2 if step == half else None]]
    text = '{"schemaVersion": 1, "traceEvents": ' + json.dumps(events)
    return read_text((text + "}" if whole else text[:-1] + ", {").encode())


def judged(timeline) -> tuple[int, int]:
    """The µs from which to which its device is judged."""
    (place,) = prepare(timeline).places
    return int(place.window.starts[0]) // 1000, int(place.window.ends[-1]) // 1000


def of_steps(first: int, behind: int) -> tuple[int, int]:
    """From the first kernel of a step to that of the one behind."""
    return 1045 + 100 * first, 1045 + 100 * behind


@pytest.mark.parametrize(
    ("present", "half", "expected"),
    [
        # Of the last step it is not known where it ends; one in front of a gap has its end behind that.
        ([0, 1, 2, 3, 4], None, of_steps(0, 4)),
        ([5, 6, 7, 0, 1, 2, 3, 4], None, of_steps(0, 7)),
        ([4, 5, 6, 7, 0, 1], None, of_steps(4, 7)),
        ([7, 6, 5, 4, 3, 0, 1, 2], 2, of_steps(3, 7)),
    ],
)
def test_the_longest_run_of_whole_steps_is_judged(present, half, expected):
    assert judged(trace(present, half=half)) == expected


def test_a_file_that_is_whole_may_have_matmuls_without_a_launch():
    timeline = trace([0, 1, 2, 3, 5, 6, 7], whole=True)
    assert not lost_launches(timeline, 0).share
    assert judged(timeline) == of_steps(0, 7)
    assert not any(note.startswith(LOST_LAUNCHES) for note in diagnose(timeline, []).notes)


@pytest.mark.parametrize(("marked", "expected"), [(True, (1700, 1810)), (False, (1745, 1810))])
def test_one_step_that_is_whole_is_judged_and_without_marks_the_longest_stretch_without_a_gap(marked, expected):
    # Of the last step both kernels, of the first the first one; between them nothing.
    assert judged(trace([0, 7], half=0, marked=marked)) == expected


def test_the_report_says_so_first_and_how_much_is_lost():
    diagnosis = diagnose(trace([4, 5, 6, 7, 0, 1]), [])
    assert verdict(diagnosis).startswith(
        "The file is cut off within its GPU activity (25 % of its launches are lost). "
    )
    (note,) = [note for note in diagnosis.notes if note.startswith(LOST_LAUNCHES)]
    assert "only the 3 steps that follow each other whole are judged" in note
    assert diagnosis.steps.used == 3
