"""Which loader feeds the training, and is it the limit?"""

from __future__ import annotations

import pytest
from builders import draw

from perfdoctor.metrics.accounting.prepare import prepare
from perfdoctor.metrics.host.loader import loader, unhidden_share
from perfdoctor.model.run import Run

WAIT = "#" * 8 + " " * 12


def waiting(char: str, name: str = "", signal: str = "ranges", repeat: int = 6) -> Run:
    """Each step computes for 8 units and waits for 12."""
    legend = {"z": (signal, name)} if name else None
    host = ["l" + " " * 19, " " * 7 + char * 12 + " "]
    return prepare(draw(kernels=WAIT, host=host, repeat=repeat, legend=legend))


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", "single-process"),
        ("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", "workers"),
        ("wait_for_batch", "other"),
        ("something", "unmarked"),
    ],
)
def test_a_loader_is_known_by_its_mark(name, kind):
    assert loader(waiting("z", name)) == kind


def test_a_loader_is_known_from_stacks_as_well():
    name = "torch/utils/data/dataloader.py(700): _SingleProcessDataLoaderIter.__next__"
    assert loader(waiting("z", name, "functions")) == "single-process"


def test_with_workers_that_are_the_limit_faster_work_gains_nothing():
    assert unhidden_share(waiting("i")) == 0.0


def test_with_a_loader_in_the_same_process_faster_work_gains_all():
    assert unhidden_share(waiting("I")) == 1.0


def test_without_a_wait_worth_the_name_faster_work_gains_all():
    picture = draw(kernels="#" * 40, host=["l" + " " * 39, " " * 30 + "i" * 9], repeat=5)
    assert unhidden_share(prepare(picture)) == 1.0


def test_without_steps_nothing_is_held_back():
    assert unhidden_share(prepare(draw(kernels="##      ##", host=["l      l  ", "  iiiii   "]))) == 1.0


def steps_that_wait(*which: int, of: int) -> Run:
    """Steps of 20 units of which some wait for 12; the others compute all the time."""
    kernels = "".join(WAIT.replace("#", "e") if n in which else "#+"[n % 2] * 20 for n in range(of))
    waits = "".join(" " * 7 + ("i" * 12 if n in which else " " * 12) + " " for n in range(of))
    calls = ("l" + " " * 19) * of
    marks = "".join(str(n) * 20 for n in range(of))
    return prepare(draw(kernels=kernels, host=[calls, waits, marks]))


def test_a_loader_that_only_started_slowly_keeps_up_now():
    assert unhidden_share(steps_that_wait(0, 1, of=9)) == 1.0


def test_only_steps_after_the_last_wait_gain():
    # of the eight steps used the last wait is in the seventh
    assert unhidden_share(steps_that_wait(3, 6, of=9)) == 1 / 8
