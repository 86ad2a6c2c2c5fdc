"""Are files of py-spy read as the program ran, and put on a recording's clock only where that is proven?"""

from __future__ import annotations

import gzip
import json
import random
import subprocess
import sys
from pathlib import Path

import pytest
from builders import only_finding, timeline
from torch_python import torch_python

from perfdoctor.diagnosis.lines import code_lines
from perfdoctor.errors import PerfdoctorError
from perfdoctor.metrics.accounting.prepare import prepare
from perfdoctor.metrics.host import sampled_lines
from perfdoctor.readers import stack_clock, stack_files
from perfdoctor.readers.open import read
from perfdoctor.vocabulary.rulebook import load_rules

MS = 1_000_000
PACKAGES = "/opt/env/lib/python3.11/site-packages/"
TRAIN = ("main", "/home/me/project/train.py", 30)
GRAPH = ("_engine_run_backward", PACKAGES + "torch/autograd/graph.py", 979)
UPDATE = ("SGD.step", PACKAGES + "torch/optim/sgd.py", 80)
LOADER = ("_BaseDataLoaderIter.__next__", PACKAGES + "torch/utils/data/dataloader.py", 725)
FETCH = ("_MapDatasetFetcher.fetch", PACKAGES + "torch/utils/data/_utils/fetch.py", 54)
SLOW = ("__getitem__", "/home/me/project/data/images.py", 9)
STOP = ("profile.stop_trace", PACKAGES + "torch/profiler/profiler.py", 200)
WORKER = ("_worker_loop", PACKAGES + "torch/utils/data/_utils/worker.py", 320)
SECRET = "--api-key=hunter2"


def program(steps, *, seed):
    """What a training does, in ms: (stack, begin, end). Its steps are of uneven lengths, if there is a seed."""
    lengths = random.Random(seed) if seed is not None else None
    at, found = 0, []
    for _ in range(steps):
        for stack, usual in (
            ([TRAIN], 20),
            ([TRAIN, GRAPH], 30),
            ([TRAIN, UPDATE], 10),
            ([TRAIN, LOADER, FETCH, SLOW], 60),
        ):
            end = at + (usual * lengths.uniform(0.4, 1.6) if lengths else usual)
            found.append((stack, at, end))
            at = end
    return found


def recorded(pieces, first, last, epoch_ms=5_000_000):
    """A trace of torch.profiler of these steps of the program, on a clock of its own."""
    begin, end = pieces[4 * first][1], pieces[4 * last][1]
    where = {"rank": 0, "process": 7, "thread": 7}
    names = {
        GRAPH: "autograd::engine::evaluate_function: MulBackward0", UPDATE: "Optimizer.step#SGD.step",
        FETCH: "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__",
    }  # fmt: skip
    ranges, ops = [], []
    for number, (stack, start, stop) in enumerate(pieces):
        if begin <= start < end:
            kind = next((name for frame, name in names.items() if frame in stack), "aten::mm")
            ns = {"start_ns": round((start + epoch_ms) * MS), "end_ns": round((stop + epoch_ms) * MS)}
            (ranges if "#" in kind else ops).append({**where, "name": kind, **ns})
            if number % 4 == 0:
                after = pieces[number + 4][1] if number + 4 < len(pieces) else stop
                name = f"ProfilerStep#{number // 4}"
                ranges.append(
                    {**where, "name": name, "start_ns": ns["start_ns"], "end_ns": round((after + epoch_ms) * MS)}
                )
    in_order = {"key": lambda row: row["start_ns"]}
    return timeline(ranges=sorted(ranges, **in_order), ops=sorted(ops, **in_order))


def chrometrace(pieces, *, period_ms=10, begins_ms=0, late_ms=0.0, seed=1):
    """As py-spy writes it: B and E of the frames that come and go between two samples; `late_ms`: of each, at most."""
    rest, events, last, at = random.Random(seed), [], [], 0.0
    place = {"cat": "py-spy", "pid": 7, "tid": 139}
    index = 0
    while index < len(pieces):
        while index < len(pieces) and pieces[index][2] <= at:
            index += 1
        stack = pieces[index][0] if index < len(pieces) else []
        same = next(
            (n for n, (a, b) in enumerate(zip(last, stack, strict=False)) if a != b), min(len(last), len(stack))
        )
        ts = round((at + begins_ms + rest.uniform(0, late_ms)) * 1000)
        for kind, frames in (("E", reversed(last[same:])), ("B", stack[same:])):
            for name, file, line in frames:
                events.append({"args": {"filename": file, "line": line}, "name": name, "ph": kind, "ts": ts, **place})
        last, at = stack, at + period_ms
    return json.dumps(events, separators=(",", ":")).encode()


def written(folder, content, name="stacks"):
    file = folder / name
    file.write_bytes(content)
    return file


def test_stacks_are_put_on_the_clock_and_name_the_line_of_the_dataset(tmp_path):
    pieces = program(60, seed=3)
    trace = recorded(pieces, 20, 40)
    file = written(tmp_path, chrometrace(pieces, begins_ms=700, late_ms=3))
    joined = stack_clock.joined(trace, [stack_files.read(file)])
    assert not joined.notes
    rows = joined["stack_samples"]
    # What the file calls 700 ms is the program's begin, 5,000 s on the recording's clock.
    assert abs(int(rows.start_ns[0]) / MS - 5_000_000) < 10
    run = prepare(joined)
    line = code_lines(load_rules()["input-wait"], only_finding("input-wait", run), run)[0]
    assert (line.file, line.line, line.function) == ("data/images.py", 9, "__getitem__")
    assert line.samples > 20
    assert line.share > 0.8


@pytest.mark.parametrize(
    ("why", "trace", "sampled"),
    [
        ("steps that are all alike fit after one step, too", (None, 20, 40), (None, 60)),
        ("another run of the same training", (3, 20, 40), (4, 60)),
        ("too few samples", (3, 20, 21), (3, 60)),
        ("sampled before the recording began", (3, 40, 58), (3, 30)),
    ],
)
def test_without_proof_they_are_a_profile_and_findings_name_no_line(tmp_path, why, trace, sampled):
    seed, first, last = trace
    of_run, count = sampled
    file = written(tmp_path, chrometrace(program(60, seed=of_run)[: 4 * count]))
    joined = stack_clock.joined(recorded(program(60, seed=seed), first, last), [stack_files.read(file)])
    assert any("cannot be put on the recording's clock" in note for note in joined.notes), why
    assert not joined["stack_samples"]["is_on_clock"].any()
    assert not sampled_lines.on_clock(joined)
    profile = sampled_lines.of_profile(joined, is_worker=False)
    assert {line.place[0] for line in profile} == {"train.py", "data/images.py"}
    assert sum(line.share for line in profile) == pytest.approx(1)


def test_equal_steps_are_on_the_clock_where_the_stacks_show_that_the_profiler_stopped(tmp_path):
    pieces = program(60, seed=None)
    stops_ms = pieces[4 * 40][1]
    after = [(stack, begin + 100, end + 100) for stack, begin, end in pieces[4 * 40 :]]
    whole = [*pieces[: 4 * 40], ([TRAIN, STOP], stops_ms, stops_ms + 100), *after]
    joined = stack_clock.joined(recorded(pieces, 20, 40), [stack_files.read(written(tmp_path, chrometrace(whole)))])
    assert not joined.notes
    assert abs(int(joined["stack_samples"].start_ns[0]) / MS - 5_000_000) < 10


def speedscope(weights=(0.01, 0.01, 0.01), samples=([0, 1], [0, 1], [0]), **changed):
    frames = [{"name": "main", "file": "/p/train.py", "line": 3}, {"name": "slow", "file": "/p/data.py", "line": 8}]
    profile = {"type": "sampled", "name": 'Process 7 Thread 7 "MainThread"', "unit": "seconds", "startValue": 0.0,
               "endValue": 0.03, "samples": list(samples), "weights": list(weights), **changed}  # fmt: skip
    schema = "https://www.speedscope.app/file-format-schema.json"
    return json.dumps({"$schema": schema, "profiles": [profile], "shared": {"frames": frames}}).encode()


def test_three_formats_say_the_same_of_lines(tmp_path):
    command = f'process 7:"python train.py {SECRET};x (y:1);";'
    raw = "".join(
        f"{command}thread (7): MainThread;main (/p/train.py:3);{rest}\n"
        for rest in ("slow (/p/data.py:8) 2", "main (/p/train.py:3) 1")
    )
    for name, content in (("a", speedscope()), ("b", raw.encode()), ("c", gzip.compress(raw.encode()))):
        rows = stack_files.read(written(tmp_path, content, name)).rows
        counts = dict(zip(rows.name, rows["samples"].tolist(), strict=True))
        assert counts == {"data.py(8): slow": 2, "train.py(3): main": 1}
        assert set(rows["process"].tolist()) == {7}
        assert rows["is_main"].all()
        assert not any(SECRET in str(column) or "y(1)" in str(column) for column in rows.text("stack").values)


def test_a_command_line_is_kept_nowhere(tmp_path):
    frame = {"args": {"filename": "", "line": 0}, "cat": "py-spy", "pid": 9, "tid": 1}
    own = {**frame, "args": {"filename": "/p/train.py", "line": 3}, "name": "main"}
    command = {**frame, "name": f'process 12:"python {SECRET}"'}
    events = [{**command, "ph": "B", "ts": 0}, {**own, "ph": "B", "ts": 0}, {**own, "ph": "E", "ts": 10_000}]
    found = stack_files.read(written(tmp_path, json.dumps(events).encode()))
    assert SECRET not in repr(found.rows.columns)
    assert found.rows["process"].tolist() == [12]
    assert list(found.rows.name) == ["train.py(3): main"]


def test_a_workers_line_is_that_of_its_dataset(tmp_path):
    utils = "torch/utils/data/_utils"
    fetching = (
        f"main (/p/train.py:3);_worker_loop ({utils}/worker.py:320);fetch ({utils}/fetch.py:54);get (/p/data.py:8)"
    )
    raw = f'process 7:"python";main (/p/train.py:3) 4\nprocess 8:"python";{fetching} 6\n'
    rows = stack_files.read(written(tmp_path, raw.encode())).rows
    worker = rows.take(rows["is_worker"].astype(bool))
    assert list(worker.name) == ["data.py(8): get"]
    assert worker["training"].tolist() == [7]


@pytest.mark.parametrize(
    "content",
    [
        speedscope()[:-40], speedscope(weights=(0.01, -0.01, 0.01)), speedscope(weights=(0.01,)),
        speedscope(weights=(1e300, 1, 1)), speedscope(weights=("x", 1, 1)), speedscope(samples=([0, 9], [0], [0])),
        speedscope(unit="bytes"), speedscope(type="evented"), speedscope(samples="5"),
        chrometrace(program(2, seed=1))[:-20], b"main (/p/train.py:3) 1\nmain (/p/train.py:3) -5\n",
        b"main (/p/train.py:3) 99999999999999\n", b'{"$schema": "https://www.speedscope.app/", "shared": []}',
        b'{"shared":{"frames": ' + b"[" * 100_000,
    ],
    ids=range(14),
)  # fmt: skip
def test_a_damaged_file_gets_one_line_of_what_and_one_of_what_to_do(tmp_path, content):
    file = written(tmp_path, content)
    assert stack_files.looks_like(content[:4000])
    with pytest.raises(PerfdoctorError) as raised:
        stack_files.read(file)
    assert "stacks" in raised.value.what
    assert "\n" not in raised.value.what
    assert "py-spy" in raised.value.do


def test_long_names_and_deep_stacks_are_cut(tmp_path):
    name = "x" * 100_000
    raw = ";".join([f"{name} (/p/train.py:3)"] * 2_000) + " 1\n"
    (stack,) = stack_files.read(written(tmp_path, raw.encode())).rows.text("stack")
    assert len(stack) < 300 * 450


def test_alone_such_a_file_is_named_with_what_to_pass_it_to(tmp_path):
    for name, content in (
        ("a", speedscope()),
        ("b", b"main (/p/train.py:3) 1\n"),
        ("c", chrometrace(program(2, seed=1))),
    ):
        with pytest.raises(PerfdoctorError) as raised:
            read([written(tmp_path, content, name)])
        assert "beside the recording of the same training" in raised.value.do


# --- with py-spy itself ---

PROGRAM = """
import sys, math, torch
from torch.profiler import ProfilerActivity, profile
class Data(torch.utils.data.Dataset):
    def __len__(self): return 400
    def __getitem__(self, index):
        sum(math.sin(tick) for tick in range(20_000 + 20_000 * (index * 7919 % 5)))
        return torch.ones(64)
model = torch.nn.Linear(64, 64)
update = torch.optim.SGD(model.parameters(), lr=0.1)
with profile(activities=[ProfilerActivity.CPU]) as prof:
    for step, batch in enumerate(torch.utils.data.DataLoader(Data(), batch_size=4)):
        model(batch).sum().backward()
        update.step()
        update.zero_grad()
        prof.step()
        if step == 20: break
prof.export_chrome_trace(sys.argv[1])
"""


@pytest.mark.torch
@pytest.mark.parametrize("kind", ["speedscope", "raw", "chrometrace"])
def test_files_of_py_spy_beside_a_real_trace_name_the_slow_line(tmp_path, kind):
    py_spy = Path(sys.executable).with_name("py-spy")
    if not py_spy.exists():
        pytest.skip("py-spy is not installed")
    program_file, trace, stacks = tmp_path / "train.py", tmp_path / "trace.json", tmp_path / "stacks"
    program_file.write_text(PROGRAM)
    command = [
        py_spy,
        "record",
        "--idle",
        "--format",
        kind,
        "--output",
        stacks,
        "--",
        torch_python(),
        program_file,
        trace,
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    if "Permission denied" in done.stderr or "Operation not permitted" in done.stderr:
        pytest.skip("this system forbids to read other processes")
    joined = read([trace, stacks])
    slow = next(number for number, line in enumerate(PROGRAM.splitlines(), 1) if "math.sin" in line)
    if sampled_lines.on_clock(joined):  # which a busy machine's sampler may miss
        run = prepare(joined)
        found = sampled_lines.of_training(
            joined, [(place.rank, place.idle_causes["input_wait"]) for place in run.places]
        )
    else:
        assert any("cannot be put on the recording's clock" in note for note in joined.notes)
        found = sampled_lines.of_profile(joined, is_worker=False)
    assert kind != "raw" or not sampled_lines.on_clock(joined)
    assert slow in [line.place[1] for line in found if line.place[2].endswith("__getitem__")][:1]


@pytest.mark.parametrize("part", [b"(", b"a (b:1) 5;", b'"cat" ', b" ", b'"$schema":"', b"x;"])
def test_a_long_line_is_looked_at_once(part):
    """Each of these took minutes where a pattern could be cut in several ways."""
    for head in (part * (65_536 // len(part)), b'{"a": 1, "b": "' + part * (65_000 // len(part))):
        assert not stack_files.looks_like(head)
