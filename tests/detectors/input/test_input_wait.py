"""input-wait: the training waits for its next batch while the device has nothing to do."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from builders import BASE_NS, draw, findings, full_queue, of_step, only_finding, summary
from machine_builders import beside
from measured_builders import measurement, rates
from msgspec.structs import replace

from perfdoctor.diagnosis.engine import diagnose
from perfdoctor.metrics.accounting.prepare import prepare
from perfdoctor.model.timeline import merge
from perfdoctor.system.run_folder import LoaderTrial, ReportedLoader, TriedWorkers
from perfdoctor.vocabulary.names.torch import CONCATENATES
from perfdoctor.vocabulary.rulebook import load_rules

MS = 1_000_000


def step(wait: int, char: str = "i", *, of: int = 40, repeat: int = 6, unit_us: float = 1000, **more):
    """A step of `of` units, busy but for the last `wait`, in which the loader is awaited."""
    kernels = "#" * (of - wait) + " " * wait
    host = ["l" + " " * (of - 1), " " * (of - wait - 1) + char * (wait + 1)]
    return draw(kernels=kernels, host=host, repeat=repeat, unit_us=unit_us, **more)


def test_it_fires_where_the_device_waits_for_workers():
    finding = only_finding("input-wait", step(10), recoverable_share_low=0.7, recoverable_share_likely=0.95)
    assert finding.situation == "workers"
    assert finding.confidence == "medium"
    # 10 of 40 ms
    assert finding.values == {
        **of_step("wait", 10.0, 40.0),
        "longest_ms": 10.0,
        "stays_ms": pytest.approx(0.1, abs=0.01),
        "stays_most_ms": pytest.approx(0.1, abs=0.01),
    }
    assert (finding.saving_ns_per_step.low, finding.saving_ns_per_step.likely) == (0.7 * 9.9 * MS, 0.95 * 9.9 * MS)
    assert finding.saving_ns_per_step.high == 10 * MS
    assert "10.0 ms of a 40.0 ms step (25 %)" in summary(finding)
    assert "workers that cannot keep up" in summary(finding)


def test_it_tells_a_loader_without_workers():
    finding = only_finding("input-wait", step(10, "I"))
    assert finding.situation == "single-process"
    assert "`num_workers=0`" in summary(finding)


def test_it_tells_a_wait_that_only_the_users_own_range_marks():
    finding = only_finding("input-wait", step(10, "z", legend={"z": ("ranges", "wait_for_batch")}))
    assert (finding.situation, finding.confidence) == ("other", "medium")


def test_a_wait_that_is_only_inferred_is_reported_as_such():
    picture = draw(
        copies="  h" + " " * 22,
        kernels="   #######" + " " * 15,
        host=["  cl" + " " * 21, "zzzzzzzzzz" + " " * 15],
        legend={"z": ("ranges", "train_step")},
        repeat=5,
        mark=None,
        unit_us=1000,
    )
    finding = only_finding("input-wait", picture)
    assert (finding.situation, finding.confidence) == ("unmarked", "medium")
    assert finding.values["wait_ms"] == 15.0
    assert "is inferred" in summary(finding)


def test_it_stays_silent_just_below_the_threshold():
    assert findings("input-wait", step(1, of=40)) == []  # 2.5 %
    assert len(findings("input-wait", step(1, of=33))) == 1  # 3.03 %


def test_it_stays_silent_where_the_loader_is_awaited_while_the_device_is_busy():
    """The host runs ahead: it stands in `__next__` for most of the step, and the device never notices."""
    assert findings("input-wait", full_queue("i" * 36)) == []


def test_it_stays_silent_where_copies_and_not_the_loader_fill_the_step():
    """A copy-bound run: the loader is awaited, but the device is busy copying all the time."""
    picture = draw(
        copies="h" * 38 + "  ",
        kernels=" " * 38 + "# ",
        host=["cl" + " " * 38, "   " + "i" * 34],
        repeat=6,
        unit_us=1000,
    )
    assert findings("input-wait", picture) == []


def test_it_averages_ranks_and_shows_the_longest_wait_of_the_worst():
    finding = only_finding("input-wait", merge([step(4, rank=0), step(16, rank=1)]))
    assert finding.values["wait_ms"] == pytest.approx(10.0)
    assert finding.values["longest_ms"] == 16.0


def test_without_steps_numbers_are_for_the_window():
    picture = draw(kernels="####        ++++", host=["l          l    ", "   iiiiiiii     "], unit_us=1000)
    assert only_finding("input-wait", picture).values["step_ms"] == 16.0


# --- workers are promised where they can win


FETCH_OPS = {
    "S": ("ops", "aten::select"), "Z": ("ops", "aten::select"),
    "s": ("ops", "aten::slice"), "m": ("ops", "aten::mul"), "t": ("ops", "aten::stack"),
    "T": ("ops", "aten::stack"), "n": ("ops", "aten::cat"), "N": ("ops", "aten::cat"),
}  # fmt: skip


def on_a_processor(wait: int, *, char: str = "I", of: int = 100, cores: float = 2, threads: float = 2, busy: float = 1.9,
                   loader: ReportedLoader | None = None, unit_us: float = 100, fetch: tuple[str, str] = ("", ""),
                   others: float = 0, **more):  # fmt: skip
    """Ten steps of the training thread of 10 ms: `wait` tenths of a ms of it in the loader, else ops.

    `cores`: that it may use; `busy`: that it uses, on the mean; `others`: that other programs use. `fetch`: the ops in the
    wait, outer and inner ones.
    """
    ops = [" " * (of - wait) + lane.ljust(wait) for lane in fetch]
    drawn = draw(host=["o" * (of - wait) + char * wait, *ops], repeat=10, unit_us=unit_us, legend=FETCH_OPS)
    whole_ns = round(10 * of * unit_us * 1000)
    when = {"start_ns": BASE_NS, "end_ns": BASE_NS + whole_ns}
    used = {
        "rank": 0, "process": 100, "name": "recorded steps", **when, "allowed_cores": cores, "torch_threads": threads,
        "cpu_ns": busy * whole_ns, "thread_cpu_ns": whole_ns, "thread_delay_ns": 0,
    }  # fmt: skip
    sampled = {"name": "cpu.csv", "is_on_clock": True, **when, "allowed_cores": cores, "idle_cores": cores - busy - others,
               "program_cores": busy, "recorder_cores": 0, "busy_cores": busy + others, "waiting_threads": 0}  # fmt: skip
    beside_it = beside(drawn, cpu_processes=[{**used, **more}], cpu_samples=[sampled])
    return prepare(replace(beside_it, loaders=(loader or ReportedLoader(10, 0, 2, 50_000),)))


def likely_ms(finding) -> float:
    return finding.saving_ns_per_step.likely / MS


def test_a_data_set_in_memory_gets_no_workers():
    """A batch from a worker costs more than to index it."""
    finding = only_finding("input-wait", on_a_processor(8, threads=1, busy=1))
    assert (finding.situation, likely_ms(finding)) == ("cheap-batches", 0.4)
    assert finding.saving_ns_per_step.high == 0.8 * MS
    assert "Workers would save nothing: to receive a batch from one takes about 1.1 ms, and a step" in summary(finding)


def test_where_torch_computes_on_all_cores_workers_are_not_promised():
    finding = only_finding("input-wait", on_a_processor(50))
    assert (finding.situation, likely_ms(finding)) == ("busy-cores", 2.5)
    assert "on the cores that the training itself uses: a step with them would take about 11.7 ms" in summary(finding)


def test_with_an_idle_core_a_worker_brings_the_wait_without_the_cost_of_receiving():
    finding = only_finding("input-wait", on_a_processor(40, threads=1, busy=1))
    assert (finding.situation, finding.values["workers"]) == ("single-process", 1)
    assert likely_ms(finding) == pytest.approx(4 - (0.7 + 2 * 0.17 + 50_000 * 0.6e-6))


def test_large_batches_cost_more_than_making_them():
    """16 MB a batch: their memory comes page by page."""
    finding = only_finding(
        "input-wait", on_a_processor(40, threads=1, busy=1, loader=ReportedLoader(10, 0, 2, 16_000_000))
    )
    assert (finding.situation, likely_ms(finding)) == ("cheap-batches", 2)


def test_what_is_left_with_workers_that_keep_up_is_no_lack_of_workers():
    finding = only_finding(
        "input-wait", on_a_processor(10, char="i", loader=ReportedLoader(10, 4, 2, 50_000), cores=16, busy=3)
    )
    assert (finding.situation, likely_ms(finding)) == ("handed-over", 0)


def test_more_workers_are_promised_only_with_idle_cores():
    few = ReportedLoader(10, 1, 2, 50_000)
    fed = {"char": "i", "loader": few, "threads": 2, "busy": 2, "cpu_ns": 100 * MS}  # one core each
    idle = only_finding("input-wait", on_a_processor(60, cores=8, **fed))
    none = only_finding("input-wait", on_a_processor(60, cores=2, **fed))
    assert (idle.situation, none.situation) == ("workers", "busy-cores")
    assert idle.values["workers"] == 2  # one takes 10 ms for a batch; without the wait a step takes 5.1
    assert (likely_ms(idle) > 4, likely_ms(none)) == (True, 3)


def test_workers_that_sleep_need_no_core_of_their_own():
    """One worker reads a batch in 10 ms, in which nobody but the training uses a core."""
    few = ReportedLoader(10, 1, 2, 50_000)
    finding = only_finding(
        "input-wait", on_a_processor(60, char="i", loader=few, cores=2, threads=1, busy=0.4, cpu_ns=40 * MS)
    )
    assert (finding.situation, finding.values["workers"]) == ("workers", 2)
    assert likely_ms(finding) > 4


def test_only_a_machine_that_was_measured_gives_high_confidence():
    run = on_a_processor(40, threads=1, busy=1)
    rows = [
        measurement(what, 10e3 + 5e3 * n + 0.1 * size, unit="ns", tensors=n, bytes=size)
        for what in ("worker_receive", "worker_send") for n, size in ((1, 4096), (16, 65_536), (1, 4 << 20))
    ]  # fmt: skip
    known = prepare(replace(run.timeline, measured=(rates(*rows),)))
    assert only_finding("input-wait", run).confidence == "medium"
    finding = only_finding("input-wait", known)
    assert finding.confidence == "high"
    assert likely_ms(finding) == pytest.approx(4 - (0.01 + 2 * 0.005 + 50_000 * 0.1e-6))


def test_an_older_recording_of_a_processor_promises_nothing_for_certain():
    """Neither cores nor batches are known."""
    finding = only_finding("input-wait", draw(host=["o" * 60 + "I" * 40], repeat=10))
    assert (finding.situation, finding.confidence) == ("single-process", "low")
    assert finding.saving_ns_per_step.low == 0
    assert finding.saving_ns_per_step.likely > 0


# --- what a copy of the program has tried


def tried(make: float, cpu: float, receive: float, **paces: float) -> LoaderTrial:
    """In ms; `paces`: from one batch to the next, with w1, w2, w4 workers."""
    taken = [TriedWorkers(int(name[1:]), round(ns * MS), round(cpu * MS), 0, 0) for name, ns in paces.items()]
    return LoaderTrial(10, round(make * MS), round(cpu * MS), round(make * MS), round(receive * MS), 0, tuple(taken))


def with_trial(run, *trials: LoaderTrial):
    return prepare(replace(run.timeline, loader_trials=trials))


def test_a_dataset_that_sleeps_gets_workers_although_torch_computes_on_all_cores():
    """A step of 10 ms, of which 8 are slept: nobody needs a core for that, tried or not."""
    asleep = on_a_processor(80, busy=0.4, thread_cpu_ns=25 * MS, loader=ReportedLoader(10, 0, 2, 16_000))
    known = with_trial(asleep, tried(8, 0.5, 0.5, w1=8.5, w2=4.2, w4=2.1))
    for run, least in ((asleep, 4), (known, 6)):
        finding = only_finding("input-wait", run)
        assert (finding.situation, finding.confidence != "low") == ("single-process", True)
        assert likely_ms(finding) > least
        assert finding.saving_ns_per_step.low > 0
    assert finding.values["workers"] == 4


@pytest.mark.parametrize(("batches", "wins"), [(1, 7.5), (4, 6)])
def test_with_accumulated_gradients_a_step_receives_several_batches(batches, wins):
    """Of a step of 10 ms 8 are waited, for one batch or for four; to receive one takes 0.5."""
    loader = ReportedLoader(10 * batches, 0, 2, 50_000, batches_per_step=batches)
    make = 8 / batches
    paces = {"w1": make + 0.2, "w2": make / 2 + 0.1, "w4": make / 4, "w8": make / 8}
    asleep = on_a_processor(80, threads=1, busy=0.3, loader=loader)
    finding = only_finding("input-wait", with_trial(asleep, tried(make, 0.1, 0.5, **paces)))
    assert (finding.situation, likely_ms(finding)) == ("single-process", pytest.approx(wins, abs=0.01))
    assert finding.values["receive_ms"] == pytest.approx(0.5)


def test_small_batches_of_many_tensors_get_no_workers():
    """They take 4 of 10 ms to make, and 12 to get from a worker."""
    run = on_a_processor(40, threads=1, busy=1, cores=8)
    finding = only_finding("input-wait", with_trial(run, tried(4, 4, 7, w1=12, w2=11, w4=11)))
    assert (finding.situation, likely_ms(finding)) == ("cheap-batches", 2)


def test_what_was_not_tried_may_make_the_step_longer_and_is_said_with_low_confidence():
    """Three times what 10 tensors usually cost is more than to make them."""
    many = on_a_processor(40, threads=1, busy=1, cores=8, loader=ReportedLoader(10, 0, 10, 50_000))
    finding = only_finding("input-wait", many)
    assert (finding.confidence, finding.saving_ns_per_step.low) == ("low", 0)
    assert likely_ms(finding) > 1
    known = only_finding("input-wait", with_trial(many, tried(4, 4, 0.8, w1=4.5, w2=2.3, w4=1.2)))
    assert (known.confidence, known.saving_ns_per_step.low > 0) == ("high", True)


def test_what_was_tried_is_not_called_unmeasured_where_workers_share_the_cores():
    """Two cores for the training and for workers that need one each."""
    run = with_trial(on_a_processor(80, threads=1, busy=1, cores=2), tried(8, 8, 0.5, w1=8.5, w2=4.2, w4=4.2))
    finding = only_finding("input-wait", run)
    assert (finding.confidence, finding.doubt) == ("medium", "shared-cores")
    (advice,) = [
        each for each in diagnose(run.timeline, tuple(load_rules().values())).findings if each.rule == "input-wait"
    ]
    assert "on the same cores was not measured" in advice.confidence_because
    assert "what a batch" not in advice.confidence_because


def of_workers(waits: list[int], workers: int, make: float):
    """A training on two cores that `workers` keep busy: after each step of 1 ms it waits for so many ms."""
    host = "".join("o" * 10 + "i" * 10 * wait for wait in waits)
    marks = "".join(str(n % 10) * 10 * (1 + wait) for n, wait in enumerate(waits))
    drawn = draw(host=[host, marks], unit_us=100)
    when = {"start_ns": BASE_NS, "end_ns": BASE_NS + len(host) * MS // 10}
    span_ns = when["end_ns"] - when["start_ns"]
    used = {"rank": 0, "process": 100, "name": "recorded steps", **when, "allowed_cores": 2, "torch_threads": 1,
            "cpu_ns": len(waits) * MS, "thread_cpu_ns": len(waits) * MS, "thread_delay_ns": span_ns // 10}  # fmt: skip
    sampled = {"name": "cpu.csv", "is_on_clock": True, **when, "allowed_cores": 2, "idle_cores": 0, "program_cores": 2,
               "recorder_cores": 0, "busy_cores": 2, "waiting_threads": 2}  # fmt: skip
    run = beside(drawn, cpu_processes=[used], cpu_samples=[sampled])
    return with_trial(
        prepare(replace(run, loaders=(ReportedLoader(len(waits), workers, 2, 50_000),))),
        tried(make, make, 0.2, w1=make, w2=make / 2, w4=make / 2),
    )


def test_workers_that_deliver_in_bursts_are_no_workers_that_start():
    """Four workers on two cores finish a batch of 16 ms each at about the same time: 32 ms, and then three at once."""
    bursts = only_finding("input-wait", of_workers([28, 0, 0, 0] * 6, 4, 16))
    evenly = only_finding("input-wait", of_workers([7] * 24, 4, 16))
    assert bursts.situation == evenly.situation == "busy-cores"
    start = only_finding("input-wait", of_workers([0] * 8 + [28] + [0] * 15, 4, 1))
    assert start.situation == "workers"


# --- items of tensors in memory, one by one

#: 100 items of two tensors, each of which is stacked; copying the first takes 20 µs, the second 10.
ONE_BY_ONE = ("SZ" * 100 + "t" * 40 + "T" * 40, " " * 210 + "n" * 20 + " " * 20 + "N" * 10)


def in_memory(fetch: tuple[str, str], **more):
    """A step of 1 ms, of which the loader takes 400 µs."""
    return on_a_processor(400, of=1000, unit_us=1, fetch=fetch, threads=1, busy=1, **more)


def test_items_that_are_indexed_one_by_one_are_indexed_at_once():
    finding = only_finding("input-wait", in_memory(ONE_BY_ONE))
    assert (finding.situation, finding.confidence) == ("items", "medium")
    assert (finding.values["items"], finding.values["ops_per_item"]) == (100, 2)
    # both copies, and 100 indices for each of two tensors
    assert finding.saving_ns_per_step.likely == pytest.approx(400e3 - 30e3 - 200 * 110, abs=1)
    assert finding.saving_ns_per_step.high == 400e3
    assert "from 100 items one by one, about 2 ops each (`aten::select`)" in summary(finding)


def test_an_op_that_computes_on_each_item_computes_on_the_whole_batch():
    """One tensor of 100 items, multiplied one by one: its bytes are gone through twice."""
    finding = only_finding("input-wait", in_memory(("Sm" * 100 + "t" * 40, " " * 210 + "n" * 20)))
    assert (finding.values["items"], finding.values["ops_per_item"]) == (100, 2)
    assert finding.values["at_once_us"] == pytest.approx(2 * 20 + 100 * 0.11)


def test_a_thread_that_loses_its_core_while_it_copies_makes_no_gather_longer():
    """In one of ten batches the first copy takes 38 instead of 20 µs: within the op that stacks."""
    run = in_memory(ONE_BY_ONE)
    ops = run.timeline.ops
    first = int(np.flatnonzero(ops.name.matches(CONCATENATES))[0])
    end_ns = ops.end_ns.copy()
    end_ns[first] += 18_000
    frames = {**run.timeline.frames, "ops": ops.with_columns(end_ns=end_ns)}
    disturbed = only_finding("input-wait", prepare(replace(run.timeline, frames=frames)))
    assert disturbed.values["at_once_us"] == only_finding("input-wait", run).values["at_once_us"]


def test_items_of_different_views_are_counted():
    """A slice and an item of one table: three views for two tensors."""
    finding = only_finding("input-wait", in_memory(("SsZ" * 50 + "t" * 40 + "T" * 40, " " * 160 + "n" * 20)))
    assert (finding.values["items"], finding.values["ops_per_item"]) == (50, 3)


def test_what_the_dataset_computes_in_python_stays():
    """A gap of 7 µs behind each item, of which 4 are usual: 40 items, between which lie 39."""
    fetch = ("S" + " " * 7) * 40
    finding = only_finding("input-wait", in_memory((fetch + "t" * 40, " " * 330 + "n" * 20)))
    assert finding.saving_ns_per_step.likely == pytest.approx(400e3 - 20e3 - 40 * 110 - 39 * (7 - 4) * 1e3, abs=1)


def test_python_that_makes_items_is_not_won_by_indexing():
    """The same ops in a hundred times the time; no view of a tensor; and items that nobody stacks."""
    slow = on_a_processor(400, of=1000, fetch=ONE_BY_ONE, threads=1, busy=1)
    made = in_memory(("m " * 100 + "t" * 40, " " * 210 + "n" * 20))
    listed = in_memory(("SZ" * 100, ""))
    assert [only_finding("input-wait", run).situation for run in (slow, made, listed)] == [
        "single-process", "cheap-batches", "cheap-batches",
    ]  # fmt: skip


def test_cores_that_other_programs_use_would_be_free_for_workers_though_it_is_not_sure():
    """Beside others on a core of two a worker brings what it brings beside nobody, at most; or nothing."""
    alone = only_finding("input-wait", on_a_processor(50, busy=1, threads=1))
    beside_others = only_finding("input-wait", on_a_processor(50, busy=1, others=1, threads=1))
    own = only_finding("input-wait", on_a_processor(50, busy=1.9))
    assert [each.situation for each in (alone, beside_others, own)] == ["single-process"] * 2 + ["busy-cores"]
    assert likely_ms(beside_others) == likely_ms(alone) > 0
    assert beside_others.saving_ns_per_step.low == 0 < alone.saving_ns_per_step.low


def test_as_much_as_other_programs_use_of_the_cores_is_what_a_worker_may_have_once_they_end():
    """Workers that sleep leave 1.2 cores of two to others; 0.4 cores of others are less than a worker could use."""
    fed = {"char": "i", "loader": ReportedLoader(10, 1, 2, 50_000), "threads": 2, "cores": 2}
    others = only_finding("input-wait", on_a_processor(60, busy=0.8, others=1.2, cpu_ns=80 * MS, **fed))
    own = only_finding("input-wait", on_a_processor(60, busy=1.6, others=0.4, cpu_ns=100 * MS, **fed))
    assert (others.situation, own.situation) == ("workers", "busy-cores")


# --- what its fixes say


def fix(situation: str) -> str:
    """The first fix of a PyTorch program, with nothing predicted."""
    fixes = load_rules()["input-wait"].fixes
    return next(each for each in fixes if each.fits(situation, frozenset({"torch"}))).filled({})


@pytest.mark.parametrize(
    ("info", "given"),
    [(None, "abc"), (SimpleNamespace(id=0, num_workers=2), "ac"), (SimpleNamespace(id=1, num_workers=2), "b")],
)
def test_a_stream_is_divided_before_its_samples_are_made(info, given):
    """Each worker makes its own samples alone, and without workers the training makes all."""
    data = SimpleNamespace(IterableDataset=object, get_worker_info=lambda: info)
    names = {"torch": SimpleNamespace(utils=SimpleNamespace(data=data)), "files": "abc", "read": list}
    code = fix("single-process")
    exec(code[code.index("class Stream") :], names)
    assert list(names["Stream"]()) == list(given)


def test_no_count_of_workers_is_made_up_where_none_was_predicted():
    assert "num_workers=workers_now + 1," in fix("workers")


def test_a_stream_in_memory_yields_batches_itself():
    """A sampler for an IterableDataset raises ValueError."""
    assert "DataLoader(Stream(), batch_size=None)" in fix("items")
