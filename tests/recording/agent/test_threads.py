"""torch's threads stay at the number of a treatment, and it is noticed where the program has or sets another."""

from __future__ import annotations

import os
import sys
from types import SimpleNamespace

import pytest

from perfdoctor.recording.tools import torch_profiler

sys.path.insert(0, str(torch_profiler.AGENT))
from perfdoctor_agent import threads

sys.path.remove(str(torch_profiler.AGENT))


class Torch:
    """What torch has of threads."""

    def __init__(self, number: int) -> None:
        self.number = number

    def get_num_threads(self) -> int:
        return self.number

    def set_num_threads(self, number: int) -> None:
        if number < 1:
            raise RuntimeError("set_num_threads expects a positive integer")
        self.number = number


@pytest.fixture
def given() -> SimpleNamespace:
    touched: list[int] = []
    return SimpleNamespace(touched=touched, touch=lambda: touched.append(1))


def test_what_the_program_sets_is_left_out_and_noticed(given: SimpleNamespace) -> None:
    torch = Torch(8)
    threads.fix(torch, given, 4)
    assert (torch.number, len(given.touched)) == (4, 1)
    torch.set_num_threads(4)
    assert len(given.touched) == 1
    torch.set_num_threads(2)
    assert (torch.number, len(given.touched)) == (4, 2)


def test_where_the_program_has_that_number_anyway_nothing_was_touched(given: SimpleNamespace) -> None:
    torch = Torch(4)
    threads.fix(torch, given, 4)
    assert (torch.number, given.touched) == (4, [])


def test_a_number_that_torch_refuses_is_not_raised_into_the_program(given: SimpleNamespace) -> None:
    torch = Torch(4)
    threads.fix(torch, given, 0)
    assert torch.number == 4


def test_a_worker_of_a_loader_sets_its_own(given: SimpleNamespace) -> None:
    torch = Torch(4)
    threads.fix(torch, given, 4)
    child = os.fork()
    if not child:
        torch.set_num_threads(1)
        os._exit(torch.number)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
    assert torch.number == 4
