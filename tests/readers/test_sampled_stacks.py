"""Are sampled stacks put on the clock of the recording, and do findings name the line in which their time passes?"""

from __future__ import annotations

import gzip
import json

import numpy as np
import pytest
from builders import only_finding, timeline
from talking import UNIT_NS, talking

from perfdoctor.diagnosis.lines import code_lines
from perfdoctor.errors import PerfdoctorError
from perfdoctor.metrics.accounting.prepare import prepare
from perfdoctor.metrics.host.sampled_lines import of_ops
from perfdoctor.model.host_rows import sampled_instants
from perfdoctor.model.intervals import Intervals
from perfdoctor.readers import sampled_stacks
from perfdoctor.vocabulary.rulebook import load_rules

GRAPH = "lib/python3.11/site-packages/torch/autograd/graph.py(979): _engine_run_backward"
LOADER = "lib/python3.11/site-packages/torch/utils/data/dataloader.py(725): __next__"
FETCH = "lib/python3.11/site-packages/torch/utils/data/_utils/fetch.py(54): fetch"
QUEUE = "lib/python3.11/multiprocessing/queues.py(103): get"
TRAIN = "train.py(30): <module>"
MS = 1_000_000
EPOCH = 1_700_000_000_000_000_000


def document(stacks, samples, *, hertz=200, pid=7, of=7, source=None):
    """`samples`: (start ms, end ms, number of the stack); `stacks`: lists of frames."""
    frames = list(dict.fromkeys(frame for stack in stacks for frame in stack))
    starts, ends, numbers = zip(*samples, strict=True)
    return {
        "format": 1, "tool": "py-spy 0.4.3", "hertz": hertz, "pid": pid, "of": of, "is_worker": pid != of,
        "frames": frames, "stacks": [[frames.index(frame) for frame in stack] for stack in stacks],
        "threads": [{"tid": pid, "name": ""}], "source": source or {},
        "samples": {
            "thread": [0] * len(samples), "stack": list(numbers),
            "start_unix_ns": [EPOCH + round(start * MS) for start in starts],
            "end_unix_ns": [EPOCH + round(end * MS) for end in ends],
        },
    }  # fmt: skip


def written(folder, content, name="torch-7.json.gz"):
    file = folder / name
    file.write_bytes(gzip.compress(json.dumps(content).encode()))
    return file


def steps(*, backward_ms=(4, 9), count=8, step_ms=20):
    """A CPU training: each step waits for its batch from 12 ms on, and runs ops before that."""
    begins = [number * step_ms for number in range(count)]
    where = {"rank": 0, "process": 7, "thread": 7}

    def rows(name, start, end):
        return [
            {**where, "name": name, "start_ns": round((b + start) * MS), "end_ns": round((b + end) * MS)}
            for b in begins
        ]

    marks = [
        {**where, "name": f"ProfilerStep#{n}", "start_ns": b * MS, "end_ns": (b + step_ms) * MS}
        for n, b in enumerate(begins)
    ]
    waits = rows("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 12, step_ms)
    ranges = marks + rows("backward", *backward_ms) + waits
    ops = rows("aten::mm", 0, backward_ms[0]) + rows("autograd::engine", *backward_ms) + rows("aten::add_", 9, 12)
    return timeline(
        ranges=sorted(ranges, key=lambda row: row["start_ns"]), ops=sorted(ops, key=lambda r: r["start_ns"])
    )


def stacks_of_steps(shift_ms, count=8, step_ms=20):
    """Samples each ms, on a clock that is late by `shift_ms`: forward, backward, update, then two lines of own code."""
    stacks = [
        [TRAIN], [TRAIN, GRAPH], [TRAIN, LOADER, FETCH, "data.py(9): __getitem__"],
        [TRAIN, LOADER, FETCH, "data.py(5): __getitem__", "data.py(6): <listcomp>"],
    ]  # fmt: skip
    samples = []
    for step in range(count):
        base = step * step_ms - shift_ms
        samples += [(base, base + 4, 0), (base + 4, base + 9, 1), (base + 9, base + 12, 0)]
        samples += [(base + 12, base + 14, 2), (base + 14, base + 20, 3)]
    return document(stacks, samples, hertz=1000, source={"data.py(6)": ["[slow(x) for x in row]"]})


@pytest.mark.parametrize("shift_ms", [-7, 0, 3.5, 8])
def test_backward_passes_and_waits_that_both_recorded_put_the_samples_on_the_clock(tmp_path, shift_ms):
    file = written(tmp_path, stacks_of_steps(shift_ms))
    rows = sampled_stacks.read(file, {7: 0}, EPOCH)
    shift_ns = sampled_stacks.shift_ns(rows, steps().ranges)
    assert abs(shift_ns / MS - shift_ms) <= 0.5
    anchored = sampled_stacks.anchors(rows, steps().ranges)
    assert sampled_stacks.inside(anchored, np.array([shift_ns])) == sum(each.at_ns.size for each in anchored)


def test_a_training_in_a_thread_of_its_own_is_not_the_main_thread_that_waits_for_it(tmp_path):
    content = document([["train.py(31): <module>"], ["train.py(11): summary"]], [(0, 160, 0)] * 2, hertz=1000)
    content["threads"].append({"tid": 9, "name": "Thread-1"})
    content["samples"].update(thread=[0, 1], stack=[0, 1])
    drawn = steps()
    in_thread = drawn.with_frame("ranges", drawn.ranges.with_columns(thread=np.full(len(drawn.ranges), 9)))
    for recorded, name in ((drawn, "train.py(31): <module>"), (in_thread, "train.py(11): summary")):
        joined = sampled_stacks.join(recorded, [written(tmp_path, content)], {7: 0}, EPOCH)
        (line,) = of_ops(joined, [(0, Intervals.single(0, 160 * MS))])
        assert (line.name, line.share) == (name, 1.0)


def test_too_few_samples_to_tell_leave_the_clock_as_it_is(tmp_path):
    file = written(tmp_path, document([[TRAIN, GRAPH]], [(5, 6, 0)], hertz=1000))
    assert sampled_stacks.shift_ns(sampled_stacks.read(file, {7: 0}, EPOCH), steps().ranges) == 0


def test_a_wait_for_data_names_the_line_of_the_dataset_and_its_text(tmp_path):
    joined = sampled_stacks.join(steps(), [written(tmp_path, stacks_of_steps(5))], {7: 0}, EPOCH)
    assert joined.notes == ()
    run = prepare(joined)
    rule = load_rules()["input-wait"]
    lines = code_lines(rule, only_finding("input-wait", run), run)
    first, second = lines[:2]
    # Six of the eight ms are in line 6, inside of a comprehension of the same function.
    assert (first.file, first.line, first.function) == ("data.py", 6, "__getitem__")
    assert first.share == pytest.approx(0.75, abs=0.02)
    assert first.text == ("[slow(x) for x in row]",)
    assert (second.line, second.share) == (9, pytest.approx(0.25, abs=0.02))
    assert not first.is_worker


def test_ops_name_the_line_of_the_forward_pass_unless_only_the_backward_was_sampled(tmp_path):
    """Of 20 ms a step 4 are forward, 5 backward in the engine, and 3 in own code inside a backward pass."""
    stacks = [["model.py(3): forward"], [TRAIN, GRAPH], [TRAIN, GRAPH, "autograd_function.py(8): backward"]]
    samples = [
        (20 * step + begin, 20 * step + end, number)
        for step in range(8)
        for begin, end, number in ((0, 4, 0), (4, 9, 1), (9, 12, 2))
    ]
    whole = [(0, Intervals.single(0, 160 * MS))]
    joined = sampled_stacks.join(steps(), [written(tmp_path, document(stacks, samples, hertz=1000))], {7: 0}, EPOCH)
    forward, own = of_ops(joined, whole)
    assert (forward.name, own.name) == ("model.py(3): forward", "autograd_function.py(8): backward")
    assert (forward.samples, own.samples) == (pytest.approx(32, abs=2), pytest.approx(24, abs=2))
    alone = document([[TRAIN, GRAPH]], [(5, 15, 0)], hertz=1000)
    joined = sampled_stacks.join(steps(), [written(tmp_path, alone)], {7: 0}, EPOCH)
    assert [line.name for line in of_ops(joined, whole)] == [TRAIN]


def test_with_workers_their_lines_are_named_and_their_own_waits_left_out(tmp_path):
    main = document([[TRAIN, LOADER, QUEUE]], [(0, 160, 0)])
    stacks = [["worker.py(1): loop", QUEUE], ["x.py(1): loop", FETCH, "site-packages/vision/io.py(8): read"]]
    worker = document(stacks, [(0, 120, 0), (120, 160, 1)], pid=8)
    files = [written(tmp_path, main), written(tmp_path, worker, "torch-7-worker-8.json.gz")]
    run = prepare(sampled_stacks.join(steps(), files, {7: 0}, EPOCH))
    rule = load_rules()["input-wait"]
    (line,) = code_lines(rule, only_finding("input-wait", run), run)
    assert (line.file, line.line, line.share, line.is_worker) == ("site-packages/vision/io.py", 8, 1.0, True)
    assert 6 <= line.samples <= 8  # of those in the steps analysed


def test_a_training_without_a_gpu_names_the_line_that_waits_for_its_collectives(tmp_path):
    """Of 112 units a step 10 are compute and 102 wait for messages; a unit is a sample."""
    drawn, step = talking([[10] + [0] * 31] * 2, [2] * 31 + [40], parts=32, steps=4)
    at_ns = np.arange(0, 4 * step * UNIT_NS, UNIT_NS)
    waits = prepare(drawn).places[0].exposed_communication
    samples = [
        (ns / MS, (ns + UNIT_NS) / MS, int(waiting)) for ns, waiting in zip(at_ns, waits.covers(at_ns), strict=True)
    ]
    stacks = [["train.py(3): forward"], ["train.py(8): average"]]
    file = written(tmp_path, document(stacks, samples, hertz=round(1e9 / UNIT_NS), pid=0, of=0))
    run = prepare(sampled_stacks.join(drawn, [file], {0: 0}, EPOCH))
    line, *others = code_lines(load_rules()["exposed-communication"], only_finding("exposed-communication", run), run)
    assert (line.file, line.line, others) == ("train.py", 8, [])


def test_whose_code_a_frame_is_stands_in_the_file_and_where_it_does_not_its_name_says_it(tmp_path):
    """Names alone take these two the wrong way round: a folder of the user's, and sources that were installed."""
    content = document([["logging/board.py(3): log", "venv/src/board/api.py(9): send"]], [(0, 160, 0)])
    named = sampled_stacks.read(written(tmp_path, content), {7: 0}, EPOCH)
    assert list(named.name) == ["venv/src/board/api.py(9): send"]
    known = sampled_stacks.read(written(tmp_path, {**content, "own": [0]}), {7: 0}, EPOCH)
    assert list(known.name) == ["logging/board.py(3): log"]


@pytest.mark.parametrize(
    "damage",
    [
        {"stacks": [[99]]}, {"samples": {}}, {"threads": "none"}, {"frames": 5}, {"hertz": "fast"}, {"of": None},
        {"samples": {"thread": [0], "stack": [0], "start_unix_ns": [5], "end_unix_ns": ["x"]}},
    ],
)  # fmt: skip
def test_a_damaged_file_is_named_and_left_out(tmp_path, damage):
    file = written(tmp_path, {**document([[TRAIN]], [(0, 1, 0)]), **damage})
    with pytest.raises(PerfdoctorError, match=r"torch-7\.json\.gz cannot be read"):
        sampled_stacks.read(file, {7: 0}, EPOCH)
    joined = sampled_stacks.join(steps(), [file], {7: 0}, EPOCH)
    assert "torch-7.json.gz" in joined.notes[0]
    assert not len(joined["stack_samples"])


def test_functions_of_perfdoctors_own_agent_are_left_out_of_stacks(tmp_path):
    stack = [TRAIN, "perfdoctor_agent/ranges.py(80): around", GRAPH]
    rows = sampled_stacks.read(written(tmp_path, document([stack], [(0, 1, 0)])), {7: 0}, EPOCH)
    assert list(rows.text("stack")) == [f"{TRAIN}\n{GRAPH}"]


def test_stacks_of_a_process_without_a_rank_are_left_out(tmp_path):
    joined = sampled_stacks.join(steps(), [written(tmp_path, stacks_of_steps(0))], {}, EPOCH)
    assert not len(joined["stack_samples"])


def test_samples_that_were_counted_are_not_derived_from_the_time_and_old_files_without_them_are_read(tmp_path):
    content = document([[TRAIN], [TRAIN, GRAPH]], [(0, 80, 0), (80, 90, 1)], hertz=100)
    old = sampled_stacks.read(written(tmp_path, content), {7: 0}, EPOCH)
    assert old["samples"].tolist() == [8, 1]
    content["samples"]["count"] = [1, 2]
    assert sampled_stacks.read(written(tmp_path, content), {7: 0}, EPOCH)["samples"].tolist() == [1, 2]


def test_instants_are_spread_over_the_time_that_a_row_stands_for(tmp_path):
    rows = sampled_stacks.read(written(tmp_path, document([[TRAIN]], [(0, 20, 0), (20, 21, 0)])), {7: 0}, EPOCH)
    row, at_ns = sampled_instants(rows)
    assert row.tolist() == [0, 0, 0, 0, 1]
    assert at_ns.tolist() == [0, 5 * MS, 10 * MS, 15 * MS, 20 * MS]
