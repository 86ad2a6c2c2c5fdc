import itertools
import sys
from pathlib import Path

import pytest

from perfdoctor.recording.tools.torch_profiler import AGENT

sys.path.append(str(AGENT))

from perfdoctor_agent import window_end
from perfdoctor_agent.window_end import WindowEnd

MS = 1_000_000


def last_steps(
    folder: Path, *steps_ms: int, least_ms: int = 100, most: int = 100, heap: int | None = None
) -> list[int]:
    """The last step of each rank, where the steps of one rank take so long, and each in turn ends one.

    `heap`: by so many bytes it grows a step.
    """
    settings = {"steps": 10, "most_steps": most, "least_ns": least_ms * MS, "traces": str(folder)}
    ends = [WindowEnd(settings) for _ in steps_ms]
    for end in ends:
        end.begin()
    job, found = "port 1" if len(ends) > 1 else "", {}
    for number in range(1, most + 1):
        for rank, (end, step_ms) in enumerate(zip(ends, steps_ms, strict=True)):
            if rank not in found and end.is_reached(number, number * step_ms * MS, job, heap and heap * number):
                found[rank] = number
    return [found[rank] for rank in range(len(ends))]


def test_the_window_has_at_least_its_steps_and_its_time(tmp_path: Path) -> None:
    assert last_steps(tmp_path, 50) == [10]
    assert last_steps(tmp_path, 8) == [13]
    assert last_steps(tmp_path, 1, least_ms=1000) == [100]


def test_the_number_that_was_asked_for_is_recorded(tmp_path: Path) -> None:
    assert last_steps(tmp_path, 1, most=10) == [10]


def test_a_recording_that_fills_the_memory_is_not_made_longer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held = itertools.count(0, 5 << 20)
    monkeypatch.setattr(window_end, "_resident_bytes", lambda: next(held))
    assert last_steps(tmp_path, 1) == [16]


@pytest.mark.parametrize(("heap", "last"), [(4 << 20, 10), (3 << 20, 11), (1, 52)])
def test_freed_tensors_between_what_the_profiler_holds_do_not_end_it_soon(tmp_path, monkeypatch, heap, last):
    held = itertools.count(0, 6 << 20)
    monkeypatch.setattr(window_end, "_resident_bytes", lambda: next(held))
    assert last_steps(tmp_path, 1, heap=heap) == [last]


def test_all_ranks_of_a_job_end_with_the_same_step(tmp_path: Path) -> None:
    assert len(set(last_steps(tmp_path, 5, 8))) == 1
    assert [file.name for file in tmp_path.iterdir()] == ["last-step-port-1"]


def test_ranks_whose_folder_cannot_be_written_end_by_themselves(tmp_path: Path) -> None:
    assert last_steps(tmp_path / "missing", 5, 8) == [20, 13]


def test_ranks_whose_steps_are_long_record_the_fewest(tmp_path: Path) -> None:
    assert last_steps(tmp_path, 50, 80) == [10, 10]


@pytest.mark.parametrize(
    ("usual_s", "open_s", "grown_mb", "is_over"),
    [
        (0.05, 29, 0, False),
        (0.05, 31, 0, True),
        (0.05, 2, 200, True),
        (0.05, 2, 20, False),
        (0.05, 0.5, 200, False),
        (0.4, 1.6, 200, False),  # recording alone makes a step of small ops four times as long
        (60, 170, 2000, False),  # steps that are long by themselves
        (60, 1100, 0, False),
        (60, 1300, 0, True),
        (0, 110, 0, False),  # no length is known
        (0, 130, 0, True),
    ],
)
def test_a_step_is_open_for_too_long_by_what_steps_take_and_by_what_the_process_grows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, usual_s: float, open_s: float, grown_mb: int, is_over: bool
) -> None:
    end = WindowEnd({"steps": 10, "traces": str(tmp_path)})
    held = [0, grown_mb << 20]
    monkeypatch.setattr(window_end, "_resident_bytes", lambda: held.pop(0))
    end.begin()
    assert end.is_overdue(round(open_s * 1e9), round(usual_s * 1e9)) == is_over
