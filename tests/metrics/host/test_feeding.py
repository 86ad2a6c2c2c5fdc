"""With what, by whom and on which cores is a training fed?"""

from __future__ import annotations

import math

import pytest
from builders import BASE_NS, draw
from machine_builders import beside
from msgspec.structs import replace

from perfdoctor.metrics.accounting.prepare import prepare
from perfdoctor.metrics.host import feeding
from perfdoctor.metrics.host.feeding import loader, unhidden_share
from perfdoctor.metrics.host.loader_workers import Cores
from perfdoctor.model.run import Run
from perfdoctor.model.timeline import merge
from perfdoctor.system.run_folder import LoaderTrial, ReportedLoader, TriedWorkers

WHOLE_NS = 10 * 10_000_000


def run(ranks=1, of_all=math.nan, bound=math.nan, *, devices=(0, 1, 2, 3), idle=math.nan, own=1.0, loaders=(), **used):
    """Ten steps of 10 ms on as many GPUs. `of_all`: cores of the machine; `bound`: of each process."""
    drawn = merge([draw(kernels="#" * 100, host=["l" + " " * 99], repeat=10, rank=rank, device=devices[rank])
                   for rank in range(ranks)])  # fmt: skip
    when = {"start_ns": BASE_NS, "end_ns": BASE_NS + WHOLE_NS}
    samples = [
        {
            "name": "cpu.csv",
            "is_on_clock": True,
            **when,
            "allowed_cores": of_all,
            "idle_cores": idle,
            "program_cores": 0,
        }
    ]
    processes = [
        {"rank": rank, "process": 100 + rank, "name": "recorded steps", **when, "allowed_cores": bound,
         "cpu_ns": own * WHOLE_NS, **used}
        for rank in range(ranks)
    ]  # fmt: skip
    whole = beside(drawn, cpu_samples=samples, cpu_processes=processes)
    return prepare(replace(whole, loaders=tuple(loaders)))


@pytest.mark.parametrize(
    ("ranks", "of_all", "bound", "devices", "count"),
    [
        (1, 16, 16, (0,), 16),
        (4, 16, 16, (0, 1, 2, 3), 4),  # they share them
        (4, 16, 4, (0, 1, 2, 3), 4),  # each has its own
        (4, 2.5, 16, (0, 1, 2, 3), 0.625),  # a quota of all together
        (4, 16, 16, (0, 1, 0, 1), 8),  # two machines
        (2, math.nan, 8, (0, 1), 4),
        (2, 8, math.nan, (0, 1), 4),
    ],
)
def test_processes_of_a_machine_share_its_cores(ranks, of_all, bound, devices, count):
    assert feeding.cores(run(ranks, of_all, bound, devices=devices)).count == count


def test_without_samples_cores_are_not_known():
    found = feeding.cores(run())
    assert not found.is_known
    assert feeding.prospect(run(), 4e6, 0).workers >= 1


def test_idle_cores_are_shared_and_own_ones_are_each_processs():
    found = feeding.cores(run(2, 8, 8, devices=(0, 1), idle=5, own=1.5))
    assert (found.idle, found.own, found.computing) == (2.5, 1.5, 1.0)


@pytest.mark.parametrize(
    ("cpu", "delay", "io"), [(1.0, 0.0, 0.0), (0.4, 0.0, 1.0), (0.7, 0.0, 0.6), (0.6, 0.04, 0.64), (0.4, 0.2, 0.4)]
)
def test_what_the_training_thread_slept_in_its_waits_was_for_files(cpu, delay, io):
    """It waits for half of each step. As long as it waited for a core, it slept for threads that had none."""
    drawn = draw(host=["o" * 50 + "I" * 50], repeat=10)
    row = {"rank": 0, "process": 100, "name": "recorded steps", "start_ns": BASE_NS, "end_ns": BASE_NS + WHOLE_NS,
           "thread_cpu_ns": cpu * WHOLE_NS, "thread_delay_ns": delay * WHOLE_NS}  # fmt: skip
    found = prepare(beside(drawn, cpu_processes=[row]))
    assert feeding._io_share(found, 0.5 * found.step_ns) == pytest.approx(io)


def test_the_loader_that_gave_most_batches_counts():
    training, validation = ReportedLoader(9, 2, 2, 1000), ReportedLoader(3, 0, 4, 9000)
    found = run(loaders=[validation, training])
    assert feeding.reported_loader(found) == training


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


@pytest.mark.parametrize(
    ("long", "short", "reported", "kind"),
    [
        ("i", "I", None, "workers"),
        ("I", "i", None, "single-process"),
        ("i", "I", (4, 0), "single-process"),
        ("I", "i", (4, 2), "workers"),
    ],
)
def test_of_a_loader_of_each_kind_that_of_the_training_counts(long, short, reported, kind):
    """Each step waits for a batch for 9 units, and for one of validation for 2."""
    host = ["l" + " " * 19, " " * 7 + long * 10 + " " + short * 2]
    drawn = draw(kernels=WAIT, host=host, repeat=6)
    loaders = [ReportedLoader(reported[0], reported[1], 2, 1000), ReportedLoader(1, 0, 2, 1000)] if reported else []
    assert loader(prepare(replace(drawn, loaders=tuple(loaders)))) == kind


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


@pytest.mark.parametrize(
    ("count", "delay", "make"),
    [
        (math.nan, 500, 1000),  # not known
        (2, 0, 1000),
        (2, 500, 500),  # it reads files for 200, as long as before
        (2, 880, 300),  # what it computed it computed
        (0.25, 700, 1000),  # a quota
    ],
)
def test_a_trial_counts_without_what_else_ran_beside_it(count, delay, make):
    tried = LoaderTrial(9, 1000, 300, 2000, 1, delay, (TriedWorkers(2, 800, 300, 0, 0),))
    found = feeding._without_others(tried, count)
    assert (found.make_ns, found.slowest_ns) == (make, 2 * make)


@pytest.mark.parametrize(
    ("count", "workers", "ran", "waited", "alone"),
    [
        (2, 2, 1200, 400, 600),  # they would have had both cores
        (2, 2, 400, 400, 600),  # and sleep as long as before
        (2, 4, 1200, 2000, 600),  # what they waited for beyond two cores was for each other
        (2, 4, 1600, 1600, 800),  # that had both cores
        (4, 4, 800, 2400, 200),
        (0.5, 2, 600, 200, 800),  # other ranks rest meanwhile
        (2, 2, 600, 0, 800),  # they slept
    ],
)
def test_workers_would_have_had_the_cores_that_they_waited_for(count, workers, ran, waited, alone):
    """From one batch to the next it took 800 ns."""
    assert feeding._taken_alone_ns(TriedWorkers(workers, 800, ran, 0, 0, waited), count) == alone


def test_the_process_that_takes_batches_has_its_own_core():
    assert feeding._taken_alone_ns(TriedWorkers(2, 800, 800, 800, 0, 800), 2) == 800


def test_a_trial_counts_as_beside_what_else_ran_while_steps_were_recorded(monkeypatch):
    tried = LoaderTrial(9, 1000, 300, 1000, 1, 500, (TriedWorkers(2, 800, 300, 0, 0),))
    monkeypatch.setattr(feeding.cpu_use, "contended_share", lambda _: 0.75)
    recorded = run(of_all=2)
    found = feeding.trial(prepare(replace(recorded.timeline, loader_trials=(tried,))))
    assert (found.make_ns, found.slowest_ns, found.taken[0].batch_ns) == (2000, 2000, 3200)


@pytest.mark.parametrize(("make_cpu", "used", "count"), [(10, 9, 1), (10, 15, 1.5), (10, 30, 2), (1, 1, 2)])
def test_there_are_no_more_cores_than_workers_got_that_wanted_more(make_cpu, used, count):
    """Two workers take 10 ns a batch together; those that hardly compute show nothing of cores."""
    tried = LoaderTrial(9, 10, make_cpu, 10, 1, 0, (TriedWorkers(1, 10, 9, 0, 0), TriedWorkers(2, 10, used, 0, 0)))
    assert feeding._as_tried(Cores(2, 1, 1, 1), tried).count == count
